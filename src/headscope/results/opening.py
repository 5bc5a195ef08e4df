"""`headscope.open`: each file is read as what it says it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py  # type: ignore[import-untyped, unused-ignore]

from headscope.arguments import expect
from headscope.errors import FileFormatError, InputError
from headscope.results.hdf5 import check_file
from headscope.results.probe import Probe
from headscope.results.probe_file import load_probe
from headscope.results.result import Result
from headscope.results.result_file import load_result
from headscope.results.trace import Trace
from headscope.results.trace_file import load_trace

RESULT = "result.nc"
"""The name of the result's file in the folder of a run."""

_LOADERS: dict[str, tuple[Callable[[Path], Trace | Result | Probe], frozenset[str]]] = {
    "trace": (load_trace, frozenset({"blocks", "stacks", "media", "predictions", "effects"})),
    "result": (load_result, frozenset({"blocks", "groups", "states", "documents"})),
    "probe": (load_probe, frozenset({"parameters", "log"})),
}
"""What a file says it is → the function that reads it, and the groups that it has."""


def open(path: str | os.PathLike[str]) -> Trace | Result | Probe:
    """Open what `save` wrote: a trace, a result (also by the folder of its run), a probe.

    Raises:
        InputError: there is no such file.
        FileFormatError: headscope did not write the file, or it is damaged.
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
    try:
        load, groups = _LOADERS[kind]
        check_file(file, groups)
        opened = load(file)
        repr(opened)  # reads what everything needs: names, sizes, how many documents
    except FileFormatError:
        raise
    except Exception as error:
        raise FileFormatError(
            f"{str(file)!r} says it is a headscope {kind}, but its content is damaged "
            f"({type(error).__name__}: {error})."
        ) from error
    return opened
