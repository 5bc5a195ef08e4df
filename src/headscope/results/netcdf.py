"""Write and read xarray datasets as groups of a netCDF file, and check files before loading.

xarray encodes and decodes; h5py writes and reads. xarray with h5netcdf looks up every variable
about fifty times, which takes seconds for two hundred small variables. The file is netCDF-4 as
specified for HDF5: every axis is a dimension scale.

HDF5 also allows data in other files, circular links, extreme compression and plug-in filters.
headscope does not write these, so `check_file` rejects them.
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
HIDDEN_ATTRIBUTES = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid"}
HIDDEN_ATTRIBUTES |= {"_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"}
"""Attributes of the netCDF layout in HDF5."""


MIN_COMPRESSED = 1000
"""Smaller arrays take more space compressed than plain."""
MAX_PADDED = 64 << 20
"""Maximum bytes of texts as an array of strings."""


def save_groups(
    path: str | os.PathLike[str], datasets: Mapping[str, xr.Dataset], compression: int = 1
) -> None:
    """Write datasets as groups of a new file, by path (`/`, `/states/self`).

    Args:
        path: the file.
        datasets: datasets by path.
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
        is_many = values.size > MIN_COMPRESSED
        level = compression if is_many else None
        item = group.create_dataset(name, data=values, compression=level, shuffle=is_many)
    _write_attributes(item, encoded.attrs)
    return item


def _write_attributes(item: h5py.Group | h5py.Dataset, attributes: Mapping[str, object]) -> None:
    for name, value in attributes.items():
        item.attrs[name] = value if isinstance(value, str) else np.atleast_1d(np.asarray(value))


def load_groups(path: str | os.PathLike[str]) -> dict[str, xr.Dataset]:
    """Read every group by path (`/`, `/log`) and close the file."""
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
    """Read a variable. `names` caches the names of axes by address: a lookup is slow."""
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
    """Return an array of strings, padded to the longest; objects if padding exceeds a limit."""
    longest = max((len(text) for text in values.flat), default=0)
    return values if 4 * longest * values.size > MAX_PADDED else values.astype(str)


def _attributes(item: h5py.Group | h5py.Dataset) -> dict[str, object]:
    """Return the attributes of an item; arrays of one number as numbers."""
    attributes = {}
    for name, value in item.attrs.items():
        if name in HIDDEN_ATTRIBUTES:
            continue
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind != "O":
            value = value.ravel()[0]
        attributes[name] = value
    return attributes


MAX_OBJECTS = 10_000
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


def check_file(path: Path, top_groups: frozenset[str]) -> None:
    """Reject a file with content that headscope does not write.

    Args:
        path: the file.
        top_groups: groups at the root of a file of its kind.

    Raises:
        FileFormatError: the file has foreign content.
    """
    with h5py.File(path, "r") as root:
        allowed = max(MIN_CHECKED_EXPANSION, MAX_FILE_EXPANSION * path.stat().st_size)
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
            if n_bytes > min(allowed, MAX_UNPACKED_BYTES):
                raise _refusal(
                    path, name, f"{n_bytes:,} bytes of values in a file of {path.stat().st_size:,}"
                )


def _objects(root: h5py.File) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """Yield all groups and datasets once, by hard links alone."""
    seen = {h5py.h5o.get_info(root.id).addr}
    waiting: list[tuple[str, h5py.Group]] = [("", root)]
    while waiting:
        prefix, group = waiting.pop()
        for key in group:
            name = f"{prefix}{key}"
            if len(key) > MAX_NAME_LENGTH or name.count("/") >= MAX_LEVELS:
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
    """Return the number of attributes; raise FileFormatError if the total is too large."""
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


def _refusal(path: Path, name: str, content: str) -> FileFormatError:
    return FileFormatError(
        f"{str(path)!r} is not a file that headscope wrote: {name[:200]!r} has or is {content}. "
        "It was not loaded."
    )
