"""Read HDF5 files as plain arrays: in this process, or in a child process with limits.

HDF5 allows data in other files, circular links, extreme compression and plug-in filters. headscope
does not write these, so they are refused before anything is loaded. A damaged or hostile file can
also make the HDF5 library loop or crash. Only a file that this user's headscope wrote, intact by
its seal, is therefore read here; `read_in_child` reads all others. Needs h5py and NumPy alone, so
that a child starts quickly.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import h5py  # type: ignore[import-untyped, unused-ignore]
import numpy as np

from headscope.errors import FileFormatError, HeadscopeError

MIN_HDF5 = (1, 14, 2)
"""Lowest HDF5 library: that of the lowest h5py in pyproject.toml. Older ones have known crashes."""


def check_library(version: tuple[int, ...]) -> None:
    """Raise HeadscopeError if the HDF5 library is older than `MIN_HDF5`."""
    if version < MIN_HDF5:
        found, lowest = (".".join(map(str, numbers)) for numbers in (version, MIN_HDF5))
        raise HeadscopeError(
            f"h5py uses HDF5 {found}, which has known crashes on damaged files; at least {lowest} "
            "is needed. Install h5py's own build, which contains the library: pip install "
            "--force-reinstall --only-binary h5py h5py."
        )


check_library(tuple(h5py.version.hdf5_version_tuple))

KINDS: Mapping[str, frozenset[str]] = {
    "trace": frozenset({"blocks", "stacks", "media", "predictions", "effects"}),
    "result": frozenset({"blocks", "groups", "states", "documents"}),
    "probe": frozenset({"parameters", "log"}),
    "wires": frozenset(),
}
"""Kind of a file → the groups at its root."""
NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
HIDDEN_ATTRIBUTES = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid"}
HIDDEN_ATTRIBUTES |= {"_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"}
"""Attributes of the netCDF layout in HDF5."""
MAX_OBJECTS = 2_000
"""Maximum groups, variables and axes of a file; headscope writes some hundreds."""
MAX_ATTRIBUTES = 20_000
"""Maximum attributes of all objects together; headscope writes some thousands."""
MAX_LEVELS = 5
MAX_NAME_LENGTH = 255
MAX_UNPACKED_BYTES = 64 << 30
"""Maximum unpacked bytes of all variables. Larger files would not fit into memory."""
MAX_FILE_EXPANSION = 2000
"""Maximum ratio of unpacked to stored bytes: gzip reaches about 1,000 for mostly zeros."""
MIN_CHECKED_EXPANSION = 256 << 20
"""Unpacked bytes below which the ratio is not checked."""
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
MAX_CPU_SECONDS = 5
"""CPU time of a child, and another second for each `BYTES_PER_SECOND` of the file."""
MAX_CLOCK_RATIO = 3
"""Maximum ratio of a child's time by the clock to its CPU time: 15 seconds for a small file."""
BYTES_PER_SECOND = 5_000_000
MAX_CHILD_BYTES = 2 << 30
"""Address space of a child, and another `BYTES_PER_BYTE` for each byte of the file."""
BYTES_PER_BYTE = 30


class RawVariable(NamedTuple):
    """A variable before xarray decodes it."""

    dims: list[str]
    values: np.ndarray
    attributes: dict[str, Any]


class RawGroup(NamedTuple):
    """A group before xarray decodes it."""

    attributes: dict[str, Any]
    variables: dict[str, RawVariable]


def read_groups(path: Path) -> dict[str, RawGroup]:
    """Check a file and read every group by path (`/`, `/log`)."""
    try:
        with h5py.File(path, "r") as root:
            groups = [("/", root), *_check(path, root)]
            names: dict[int, str] = {}
            return {name: _read_group(group, names) for name, group in groups}
    except (HeadscopeError, MemoryError):
        raise
    except Exception as error:  # h5py raises many kinds for a damaged file
        raise FileFormatError(
            f"{str(path)!r} cannot be read as netCDF ({type(error).__name__}: {error}). Expected a "
            "file written by Trace.save, Result.save or Probe.save."
        ) from error


def _check(path: Path, root: h5py.File) -> list[tuple[str, h5py.Group]]:
    """Refuse content that headscope does not write; return the groups below the root."""
    size = path.stat().st_size
    allowed = min(MAX_UNPACKED_BYTES, max(MIN_CHECKED_EXPANSION, MAX_FILE_EXPANSION * size))
    n_bytes, n_attributes = 0, h5py.h5a.get_num_attrs(root.id)
    groups = []
    for number, (name, item) in enumerate(_objects(path, root), 1):
        if number > MAX_OBJECTS:
            raise _refusal(path, name, f"more than {MAX_OBJECTS:,} objects")
        n_attributes += h5py.h5a.get_num_attrs(item.id)
        if n_attributes > MAX_ATTRIBUTES:
            raise _refusal(path, name, f"more than {MAX_ATTRIBUTES:,} attributes")
        if isinstance(item, h5py.Dataset):
            _check_dataset(path, name, item)
            n_bytes += max(item.nbytes, prod(item.chunks or ()) * item.dtype.itemsize)
        else:
            groups.append((f"/{name}", item))
        if n_bytes > allowed:
            raise _refusal(path, name, f"{n_bytes:,} bytes of values in a file of {size:,}")
    kind = root.attrs.get("headscope")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileFormatError(
            f"{str(path)!r} is netCDF, but not a headscope file (its 'headscope' attribute is "
            f"{kind!r:.80}, expected {' or '.join(map(repr, KINDS))})."
        )
    for name, _ in groups:
        if name.count("/") == 1 and name[1:] not in KINDS[kind]:
            raise _refusal(path, name[1:], "a group that files of its kind do not have")
    return groups


def _objects(path: Path, root: h5py.File) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """Yield all groups and datasets once, by hard links alone."""
    seen = {h5py.h5o.get_info(root.id).addr}
    waiting: list[tuple[str, h5py.Group]] = [("", root)]
    while waiting:
        prefix, group = waiting.pop()
        for key in group:
            name = f"{prefix}{key}"
            if len(key) > MAX_NAME_LENGTH or name.count("/") >= MAX_LEVELS:
                raise _refusal(
                    path, name, f"a name over {MAX_NAME_LENGTH} characters or {MAX_LEVELS} levels"
                )
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise _refusal(path, name, "a link to somewhere else")
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise _refusal(path, name, "a second name of something in it")
            seen.add(address)
            yield name, item
            if isinstance(item, h5py.Group):
                waiting.append((f"{name}/", item))


def _check_dataset(path: Path, name: str, data: h5py.Dataset) -> None:
    created = data.id.get_create_plist()
    if created.get_external_count():
        raise _refusal(path, name, "values that lie in another file")
    if created.get_layout() == h5py.h5d.VIRTUAL:
        raise _refusal(path, name, "values made up of other files")
    filters = {created.get_filter(i)[0] for i in range(created.get_nfilters())}
    if filters - FILTERS:
        raise _refusal(path, name, f"values packed by the filters {sorted(filters - FILTERS)}")


def _refusal(path: Path, name: str, content: str) -> FileFormatError:
    return FileFormatError(
        f"{str(path)!r} is not a file that headscope wrote: {name[:200]!r} has or is {content}. "
        "It was not loaded."
    )


def _read_group(group: h5py.Group, names: dict[int, str]) -> RawGroup:
    """Read a group. `names` caches the names of axes by address: a lookup is slow."""
    variables: dict[str, RawVariable] = {}
    for name, item in group.items():
        if isinstance(item, h5py.Group) or bytes(item.attrs.get("NAME", b"")).startswith(
            NO_VARIABLE
        ):
            continue
        is_text = h5py.check_string_dtype(item.dtype) is not None
        values = np.asarray(item.asstr()[()], object) if is_text else np.asarray(item[()])
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
        variables[name] = RawVariable(dims, values, _attributes(item))
    return RawGroup(_attributes(group), variables)


def _attributes(item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    attributes = {}
    for name, value in item.attrs.items():
        if name in HIDDEN_ATTRIBUTES:
            continue
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind != "O":
            value = value.ravel()[0]
        attributes[name] = value
    return attributes


def read_in_child(path: Path) -> dict[str, RawGroup]:
    """Read a file as `read_groups` does, in a child process with limits of time and memory."""
    size = path.stat().st_size
    seconds = MAX_CPU_SECONDS + size // BYTES_PER_SECOND
    longest = MAX_CLOCK_RATIO * seconds
    command = [sys.executable, "-P", "-m", __name__, str(path), str(seconds)]  # not from here
    command.append(str(MAX_CHILD_BYTES + BYTES_PER_BYTE * size))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        child = subprocess.run(
            command, env=environment, capture_output=True, timeout=longest, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failure(path, f"took more than {longest} seconds") from None
    if child.returncode == 0:
        return _unpack(child.stdout)
    if child.returncode == 1 and child.stdout:
        raise FileFormatError(child.stdout.decode("utf-8", "replace"))
    if -child.returncode in (signal.SIGXCPU, signal.SIGKILL):
        raise _failure(path, f"took more than {seconds} seconds of CPU time")
    raise _failure(path, f"crashed (exit code {child.returncode})")


def _failure(path: Path, what: str) -> FileFormatError:
    return FileFormatError(
        f"{str(path)!r} is damaged or hostile: the process that read it {what}. It was not loaded."
    )


def _pack(groups: Mapping[str, RawGroup]) -> bytes:
    """Return groups as a line of JSON and the bytes of their arrays, end to end."""
    buffers: list[bytes] = []

    def plain(value: object) -> object:
        if isinstance(value, bool | int | float | str):
            return value
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            buffers.append(np.ascontiguousarray(array).tobytes())
            return [array.dtype.str, array.shape]
        return ["O", array.shape, [str(text) for text in array.ravel()]]

    content = [
        [
            name,
            {key: plain(value) for key, value in group.attributes.items()},
            [
                [key, v.dims, plain(v.values), {k: plain(x) for k, x in v.attributes.items()}]
                for key, v in group.variables.items()
            ],
        ]
        for name, group in groups.items()
    ]
    return b"\n".join([json.dumps(content).encode(), b"".join(buffers)])


def _unpack(packed: bytes) -> dict[str, RawGroup]:
    line, _, buffer = packed.partition(b"\n")
    start = 0

    def value_of(plain: Any) -> Any:
        nonlocal start
        if not isinstance(plain, list):
            return plain
        kind, shape, *texts = plain
        if texts:
            return np.array([*texts[0], None], dtype=object)[:-1].reshape(shape)
        array = np.frombuffer(buffer, kind, prod(shape), start).reshape(shape).copy()
        start += array.nbytes
        return array[()] if array.ndim == 0 else array

    groups = {}
    for name, attributes, variables in json.loads(line):
        decoded = {key: value_of(value) for key, value in attributes.items()}
        groups[name] = RawGroup(
            decoded,
            {
                key: RawVariable(
                    dims, np.asarray(value_of(v)), {k: value_of(x) for k, x in others.items()}
                )
                for key, dims, v, others in variables
            },
        )
    return groups


def main() -> None:
    """Read a file for `read_in_child`: path, CPU seconds and bytes of address space."""
    path, seconds, n_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
    try:
        packed = _pack(read_groups(path))
    except MemoryError:
        os.write(1, f"{str(path)!r} needs more than {n_bytes:,} bytes of memory.".encode())
        os._exit(1)
    except FileFormatError as error:
        os.write(1, str(error).encode("utf-8", "replace"))
        os._exit(1)
    sys.stdout.buffer.write(packed)
    sys.stdout.flush()
    os._exit(0)  # without closing anything: HDF5 may crash while it frees a damaged file


if __name__ == "__main__":
    main()
