"""Datasets and the groups of a netCDF file.

Encoded and decoded by xarray, written and read with h5py: xarray's own way through h5netcdf looks
every variable up some fifty times, which takes seconds where there are two hundred small ones. The
file is netCDF-4 as its specification lays it out in HDF5: every axis is a dimension scale.

Looks a file of ours over before anything of it is loaded.

HDF5 can do more than we write: take data from other files, link in circles, unfold a few bytes to
gigabytes, run filters of plug-ins. A file that does any of this is not one of ours.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from math import prod
from pathlib import Path

import h5py  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import xarray as xr

from headscope.errors import FileFormatError

NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
HIDDEN = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid"}
HIDDEN |= {"_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"}
"""Attributes by which netCDF lies in HDF5."""


MANY = 1000
"""Smaller arrays take more room compressed than plain."""
MAX_PADDED = 64 << 20
"""Bytes that texts may take as an array of strings."""


def save_groups(
    path: str | os.PathLike[str], datasets: Mapping[str, xr.Dataset], compression: int = 1
) -> None:
    """Write datasets as the groups of a new file, by their paths (`/`, `/states/self`).

    Args:
        path: the file.
        datasets: what to write.
        compression: from 1, the fastest, to 9, the smallest.
    """
    numbers = count()
    with h5py.File(path, "w", track_order=True) as root:
        for place, data in datasets.items():
            group = root if place == "/" else root.create_group(place, track_order=True)
            variables, attributes = xr.conventions.encode_dataset_coordinates(data)
            _write_attributes(group, attributes)
            items = {
                str(name): _write(group, str(name), variable, compression)
                for name, variable in variables.items()
            }
            scales: dict[str, h5py.Dataset] = {}
            for dim, size in data.sizes.items():
                name = str(dim)
                if name not in items:
                    empty = group.create_dataset(name, (size,), ">f4")
                    empty.make_scale(f"{NO_VARIABLE.decode()}. {size:10d}")
                    scales[name] = empty
                else:
                    items[name].make_scale(name)
                    scales[name] = items[name]
                scales[name].attrs["_Netcdf4Dimid"] = np.int32(next(numbers))
            for name, item in items.items():
                if name not in scales:
                    for axis, dim in enumerate(variables[name].dims):
                        h5py.h5ds.attach_scale(item.id, scales[str(dim)].id, axis)


def _write(group: h5py.Group, name: str, variable: xr.Variable, compression: int) -> h5py.Dataset:
    encoded = xr.conventions.encode_cf_variable(variable, name=name)
    values = np.asarray(encoded.values)
    if values.dtype.kind in "UO":
        item = group.create_dataset(name, values.shape, h5py.string_dtype())
        if values.size:
            item[()] = values.astype(object)
    else:
        is_many = values.size > MANY
        level = compression if is_many else None
        item = group.create_dataset(name, data=values, compression=level, shuffle=is_many)
    _write_attributes(item, encoded.attrs)
    return item


def _write_attributes(item: h5py.Group | h5py.Dataset, attributes: Mapping[str, object]) -> None:
    for name, value in attributes.items():
        item.attrs[name] = value if isinstance(value, str) else np.atleast_1d(np.asarray(value))


def load_groups(path: str | os.PathLike[str]) -> dict[str, xr.Dataset]:
    """Every group by its path (`/`, `/log`), read whole; the file is closed again."""
    datasets: dict[str, xr.Dataset] = {}
    with h5py.File(path, "r") as root:
        names: dict[int, str] = {}
        waiting = deque([root])
        while waiting:
            group = waiting.popleft()
            variables: dict[str, xr.Variable] = {}
            for name, item in group.items():
                if isinstance(item, h5py.Group):
                    waiting.append(item)
                elif not bytes(item.attrs.get("NAME", b"")).startswith(NO_VARIABLE):
                    variables[name] = _variable(name, item, names)
            raw = xr.Dataset(variables, attrs=_attributes(group))
            datasets[group.name] = xr.decode_cf(raw).load()
    return datasets


def _variable(name: str, item: h5py.Dataset, names: dict[int, str]) -> xr.Variable:
    """A variable. `names` keeps the names of axes by address: looking one up is slow."""
    is_text = h5py.check_string_dtype(item.dtype) is not None
    values = _text(np.asarray(item.asstr()[()], dtype=object)) if is_text else np.asarray(item[()])
    dims: list[str] = []
    if "DIMENSION_LIST" in item.attrs:
        for axis in item.attrs["DIMENSION_LIST"]:
            scale = h5py.h5r.dereference(axis[0], item.id)
            address = h5py.h5o.get_info(scale).addr
            if address not in names:
                names[address] = h5py.h5i.get_name(scale).decode().rpartition("/")[2]
            dims.append(names[address])
    elif item.attrs.get("CLASS") == b"DIMENSION_SCALE":
        dims = [name]
    return xr.Variable(dims, values, _attributes(item))


def _text(values: np.ndarray) -> np.ndarray:
    """Texts as an array of strings, which gives each the room of the longest; as objects where that
    would be much.
    """
    longest = max((len(text) for text in values.flat), default=0)
    return values if 4 * longest * values.size > MAX_PADDED else values.astype(str)


def _attributes(item: h5py.Group | h5py.Dataset) -> dict[str, object]:
    """What the item says of itself; single numbers as such."""
    attributes = {}
    for name, value in item.attrs.items():
        if name in HIDDEN:
            continue
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind != "O":
            value = value.ravel()[0]
        attributes[name] = value
    return attributes


MAX_OBJECTS = 10_000
"""Groups, variables and axes of a file: ours have some hundreds."""
MAX_ATTRIBUTES = 20_000
"""Of all objects together: ours have some thousands."""
MAX_LEVELS = 5
LONGEST_NAME = 255
MAX_BYTES = 64 << 30
"""Of all variables together, unfolded. What is larger would not fit into memory."""
MAX_EXPANSION = 2000
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
        allowed = max(EXPANSION_FROM, MAX_EXPANSION * path.stat().st_size)
        n_bytes, n_attributes = 0, _count_attributes(path, root)
        for number, (name, item) in enumerate(_objects(root), 1):
            if number > MAX_OBJECTS:
                raise _refusal(path, name, f"more than {MAX_OBJECTS:,} objects")
            n_attributes += _count_attributes(path, item, n_attributes)
            if isinstance(item, h5py.Dataset):
                _check_dataset(path, name, item)
                n_bytes += max(item.nbytes, prod(item.chunks or ()) * item.dtype.itemsize)
            elif "/" not in name and name not in top_groups:
                raise _refusal(path, name, "a group that files of its kind do not have")
            if n_bytes > min(allowed, MAX_BYTES):
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
            if len(key) > LONGEST_NAME or name.count("/") >= MAX_LEVELS:
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
    if before + n > MAX_ATTRIBUTES:
        raise _refusal(path, item.name, f"more than {MAX_ATTRIBUTES:,} attributes")
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
