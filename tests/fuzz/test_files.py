"""Damaged files are refused in words, not opened as something else and not by a crash."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.errors import FileFormatError, HeadscopeError
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.run.measure import measure
from tests.fuzz.hostile import damaged, fuzz, quick

# h5netcdf complains once more when what it could not open is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

KINDS = st.sampled_from(("trace", "result"))


@cache
def saved(kind: str) -> bytes:
    """A whole file of each kind."""
    attention = np.random.default_rng(0).dirichlet(np.ones(5), (2, 2, 5))
    trace = Trace.from_arrays(attention, ["The", " cat", " sat", ".", "<b>"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.nc"
        (trace if kind == "trace" else measure(trace, ["distance", "exemplars"])).save(path)
        return path.read_bytes()


def open_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, quick():
        path = Path(folder) / "a.nc"
        path.write_bytes(data)
        try:
            found = hs.open(path)
        except HeadscopeError as error:
            assert isinstance(error, FileFormatError)  # noqa: PT017, any other type is as wrong
        else:
            assert isinstance(found, Trace | Result)
            repr(found)


@fuzz(40)
@given(KINDS, st.data())
def test_damaged_bytes(kind: str, data: st.DataObject) -> None:
    open_bytes(data.draw(damaged(saved(kind), most=3)))


@fuzz(40)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=40).map(b"\x89HDF\r\n\x1a\n".__add__)))
def test_random_bytes(data: bytes) -> None:
    open_bytes(data)


@fuzz(20)
@given(KINDS, st.data())
def test_files_with_parts_missing_or_wrong(kind: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.nc"
        path.write_bytes(saved(kind))
        with h5py.File(path, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            name = data.draw(st.sampled_from(["/", *sorted(names)]))
            how = data.draw(st.sampled_from(("delete", "text", "number", "attribute")))
            if how == "attribute":
                attributes = list(file[name].attrs)
                if attributes:
                    chosen = data.draw(st.sampled_from(attributes))
                    del file[name].attrs[chosen]
                    if data.draw(st.booleans()):
                        file[name].attrs[chosen] = "[1, {"
            elif name != "/":
                del file[name]
                if how == "text":
                    file[name] = "}{"
                elif how == "number":
                    file[name] = np.full((3, 2), np.nan)
        open_bytes(path.read_bytes())
