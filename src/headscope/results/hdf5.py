"""Looks a file of ours over before anything of it is loaded.

HDF5 can do more than we write: take data from other files, link in circles, unfold a few bytes to
gigabytes, run filters of plug-ins. A file that does any of this is not one of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import h5py  # type: ignore[import-untyped, unused-ignore]

from headscope.errors import FileFormatError

MOST_OBJECTS = 10_000
"""Groups, variables and axes of a file: ours have some hundreds."""
MOST_ATTRIBUTES = 20_000
"""Of all objects together: ours have some thousands."""
MOST_LEVELS = 5
LONGEST_NAME = 255
MOST_BYTES = 64 << 30
"""Of all variables together, unfolded. What is larger would not fit into memory."""
MOST_EXPANSION = 2000
"""How many times its size a file may unfold to: attention that is mostly zero packs well, but no
better than gzip can (about 1,000)."""
EXPANSION_FROM = 256 << 20
"""Bytes up to which a file may unfold whatever its size."""
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}


def check_file(path: Path, top_groups: frozenset[str]) -> None:
    """Refuse a file with anything that we do not write.

    Args:
        path: the file.
        top_groups: the groups that a file of its kind has at its root.

    Raises:
        FileFormatError: what it holds that ours never do.
    """
    with h5py.File(path, "r") as root:
        allowed = max(EXPANSION_FROM, MOST_EXPANSION * path.stat().st_size)
        n_bytes, n_attributes = 0, _count_attributes(path, root)
        for number, (name, item) in enumerate(_objects(root), 1):
            if number > MOST_OBJECTS:
                raise _refusal(path, name, f"more than {MOST_OBJECTS:,} objects")
            n_attributes += _count_attributes(path, item, n_attributes)
            if isinstance(item, h5py.Dataset):
                _check_dataset(path, name, item)
                n_bytes += max(item.nbytes, prod(item.chunks or ()) * item.dtype.itemsize)
            elif "/" not in name and name not in top_groups:
                raise _refusal(path, name, "a group that files of its kind do not have")
            if n_bytes > min(allowed, MOST_BYTES):
                raise _refusal(
                    path, name, f"{n_bytes:,} bytes of values in a file of {path.stat().st_size:,}"
                )


def _objects(root: h5py.File) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """All groups and datasets, by hard links alone, each once."""
    seen = {h5py.h5o.get_info(root.id).addr}
    waiting: list[tuple[str, h5py.Group]] = [("", root)]
    while waiting:
        prefix, group = waiting.pop()
        for key in group:
            name = f"{prefix}{key}"
            if len(key) > LONGEST_NAME or name.count("/") >= MOST_LEVELS:
                raise _refusal(Path(root.filename), name, "groups nested deeper or named longer")
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise _refusal(Path(root.filename), name, "a link to somewhere else")
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise _refusal(Path(root.filename), name, "a second name of something in it")
            seen.add(address)
            yield name, item
            if isinstance(item, h5py.Group):
                waiting.append((f"{name}/", item))


def _count_attributes(path: Path, item: h5py.Group | h5py.Dataset, before: int = 0) -> int:
    """How many attributes an object has; refused if with those before it they are too many."""
    n: int = h5py.h5a.get_num_attrs(item.id)
    if before + n > MOST_ATTRIBUTES:
        raise _refusal(path, item.name, f"more than {MOST_ATTRIBUTES:,} attributes")
    return n


def _check_dataset(path: Path, name: str, data: h5py.Dataset) -> None:
    created = data.id.get_create_plist()
    if created.get_external_count():
        raise _refusal(path, name, "values that lie in another file")
    if created.get_layout() == h5py.h5d.VIRTUAL:
        raise _refusal(path, name, "values made up of other files")
    filters = {created.get_filter(i)[0] for i in range(created.get_nfilters())}
    if filters - FILTERS:
        raise _refusal(path, name, f"values packed by the filters {sorted(filters - FILTERS)}")


def _refusal(path: Path, name: str, what: str) -> FileFormatError:
    return FileFormatError(
        f"{str(path)!r} is not a file that headscope wrote: {name[:200]!r} has or is {what}. "
        "It was not loaded."
    )
