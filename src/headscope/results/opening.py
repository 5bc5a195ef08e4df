"""Files opened by what they say they are."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import h5py  # type: ignore[import-untyped, unused-ignore]

from headscope.arguments import expect
from headscope.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from headscope.results.probe import Probe
    from headscope.results.result import Result
    from headscope.results.trace import Trace

__all__ = ["RESULT", "open_file"]

RESULT = "result.nc"
"""What a run calls its result in its folder."""

_LOADERS = {
    "trace": "headscope.results.trace_file:load_trace",
    "result": "headscope.results.result_file:load_result",
    "probe": "headscope.results.probe_file:load_probe",
}
"""What a file says it is → who reads it. By name: nothing is imported before it is needed."""


def open_file(path: str | os.PathLike[str]) -> Trace | Result | Probe:
    """Open what `save` wrote: a trace, a result (also by the folder of its run), a probe.

    Raises:
        InputError: there is no such file.
        FileFormatError: it is not a file of ours, or it is damaged.
    """
    expect("path", path, str | os.PathLike, "the name of a file or folder")
    file = Path(path)
    if file.is_dir():
        file = file / RESULT
        if not file.is_file():
            raise InputError(
                f"The folder {str(file.parent)!r} has no {RESULT}: no run has finished there. "
                "Run the same analysis again to go on with it."
            )
    if not file.is_file():
        raise InputError(f"There is no file or run folder {str(file)!r}.")
    try:
        # h5py alone: h5netcdf complains again when what it could not open is collected.
        with h5py.File(file, "r") as root:
            kind = root.attrs.get("headscope")
    except Exception as error:  # h5py raises many kinds for a damaged file
        raise FileFormatError(
            f"{str(file)!r} cannot be read as netCDF ({type(error).__name__}: {error}). "
            "Expected a file written by Trace.save, Result.save or Probe.save."
        ) from error
    if not isinstance(kind, str) or kind not in _LOADERS:
        raise FileFormatError(
            f"{str(file)!r} is netCDF, but not a headscope file (its 'headscope' attribute is "
            f"{kind!r}, expected {' or '.join(map(repr, _LOADERS))})."
        )
    module, _, name = _LOADERS[kind].partition(":")
    load: Callable[[Path], Trace | Result | Probe] = getattr(importlib.import_module(module), name)
    try:
        found = load(file)
        repr(found)  # asks for what everything needs: names, sizes, how many documents
    except Exception as error:
        raise FileFormatError(
            f"{str(file)!r} says it is a headscope {kind}, but its content is damaged "
            f"({type(error).__name__}: {error})."
        ) from error
    return found
