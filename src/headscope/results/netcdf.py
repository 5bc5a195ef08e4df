"""Write and decode xarray datasets as groups of a netCDF file.

xarray encodes and decodes; h5py writes and reads (`results.hdf5`). xarray with h5netcdf looks up
every variable about fifty times, which takes seconds for two hundred small variables. The file is
netCDF-4 as specified for HDF5: every axis is a dimension scale.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count

import h5py  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import xarray as xr

from headscope.results.hdf5 import NO_VARIABLE, RawGroup

MIN_COMPRESSED = 1000
"""Smaller arrays take more space compressed than plain."""
MAX_PADDED = 64 << 20
"""Maximum bytes of texts as an array of strings."""


def save_groups(
    path: str | os.PathLike[str], datasets: Mapping[str, xr.Dataset], compression: int = 1
) -> None:
    """Write datasets as groups of a new file, by path (`/`, `/states/self`)."""
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


def decode_groups(groups: Mapping[str, RawGroup]) -> dict[str, xr.Dataset]:
    """Return groups as datasets, by path (`/`, `/log`)."""
    datasets = {}
    for place, group in groups.items():
        variables = {
            name: xr.Variable(
                dims, _text(values) if values.dtype.kind == "O" else values, attributes
            )
            for name, (dims, values, attributes) in group.variables.items()
        }
        datasets[place] = xr.decode_cf(xr.Dataset(variables, attrs=group.attributes)).load()
    return datasets


def _text(values: np.ndarray) -> np.ndarray:
    """Return an array of strings, padded to the longest; objects if padding exceeds a limit."""
    longest = max((len(text) for text in values.flat), default=0)
    return values if 4 * longest * values.size > MAX_PADDED else values.astype(str)
