"""The groups of one of our files, in memory."""

from __future__ import annotations

import os

import xarray as xr


def load_groups(path: str | os.PathLike[str]) -> dict[str, xr.Dataset]:
    """Every group by its path (`/`, `/log`), read whole; the file is closed again."""
    groups = xr.open_groups(path, engine="h5netcdf")
    try:
        return {name: data.load() for name, data in groups.items()}
    finally:
        for data in groups.values():
            data.close()
