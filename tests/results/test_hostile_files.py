"""`headscope.open` loads nothing of a file that does what ours never do."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import FileFormatError, HeadscopeError
from headscope.results import hdf5
from headscope.results.files import decode_groups, save_groups
from headscope.results.hdf5 import MIN_CHECKED_EXPANSION, check_library
from tests.results.sealing import seal_as_stranger


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A trace as we write it."""
    weights = np.full((1, 1, 3, 3), 1 / 3)
    path = tmp_path / "trace.nc"
    hs.Trace.from_arrays(weights, ["a", "b", "c"]).save(path)
    assert isinstance(hs.open(path), hs.Trace)
    return path


def open_sealed(path: Path) -> object:
    """Open a file as if a stranger had written it, with a seal that fits."""
    seal_as_stranger(path)
    return hs.open(path)


def test_values_of_another_file_are_refused(saved: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 64)
    with h5py.File(saved, "a") as file:
        file.create_dataset("stolen", (64,), "S1", external=[(str(secret), 0, 64)])
    with pytest.raises(FileFormatError, match="'stolen' has or is values that lie in another file"):
        open_sealed(saved)


def test_virtual_values_are_refused(saved: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.arange(4)
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (4,))
    with h5py.File(saved, "a") as file:
        file.create_virtual_dataset("virtual", layout)
    with pytest.raises(FileFormatError, match="values made up of other files"):
        open_sealed(saved)


@pytest.mark.parametrize(
    "link", [h5py.SoftLink("/blocks"), h5py.ExternalLink("elsewhere.h5", "/x")]
)
def test_links_are_refused(saved: Path, link: h5py.SoftLink | h5py.ExternalLink) -> None:
    with h5py.File(saved, "a") as file:
        file["blocks/again"] = link
    with pytest.raises(FileFormatError, match="'blocks/again' has or is a link to somewhere else"):
        open_sealed(saved)


def test_circles_are_refused(saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        file["blocks/self/round"] = file["blocks"]
    with pytest.raises(FileFormatError, match="a second name of something in it"):
        open_sealed(saved)


def test_groups_of_other_kinds_are_refused(saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        file.create_group("unheard")
    with pytest.raises(FileFormatError, match="'unheard' has or is a group that files of its kind"):
        open_sealed(saved)


def test_other_filters_are_refused(saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        file.create_dataset("x", (64,), "i4", compression="lzf")
    with pytest.raises(FileFormatError, match=r"packed by the filters \[32000\]"):
        open_sealed(saved)


def test_sizes_beyond_measure_are_refused(saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        file.create_dataset("large", (MIN_CHECKED_EXPANSION // 4,), "f8", chunks=(1024,))
    assert saved.stat().st_size < 200_000
    with pytest.raises(FileFormatError, match="bytes of values in a file of"):
        open_sealed(saved)


def test_chunks_beyond_measure_are_refused(saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        chunk = (MIN_CHECKED_EXPANSION // 4,)
        file.create_dataset("x", (8,), "f8", chunks=chunk, maxshape=(None,), compression="gzip")
    with pytest.raises(FileFormatError, match="bytes of values in a file of"):
        open_sealed(saved)


def test_more_variables_than_ours_have_are_refused(saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        for number in range(hdf5.MAX_OBJECTS):
            file[f"x{number}"] = number
    with pytest.raises(FileFormatError, match="more than 2,000 objects"):
        open_sealed(saved)


def test_more_attributes_than_ours_have_are_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(saved, "a") as file:
        for number in range(400):
            file["blocks"].attrs[f"a{number}"] = number
    assert isinstance(open_sealed(saved), hs.Trace)
    monkeypatch.setattr(hdf5, "MAX_ATTRIBUTES", 400)
    with pytest.raises(FileFormatError, match="more than 400 attributes"):
        hdf5.read_groups(saved)


def test_one_long_text_does_not_make_all_texts_long(tmp_path: Path) -> None:
    path = tmp_path / "texts.nc"
    texts = np.array(["y" * 100_000, *["x"] * 999], dtype=object)
    data = xr.Dataset(
        {"texts": ("n", texts), "few": ("m", texts[-3:])}, attrs={"headscope": "probe"}
    )
    save_groups(path, {"/": data})
    loaded = decode_groups(hdf5.read_groups(path))["/"]
    assert loaded["texts"].dtype == object
    assert list(loaded["texts"].values) == list(texts)
    assert loaded["few"].dtype.kind == "U"


def test_an_old_hdf5_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_library((1, 14, 2))
    check_library((2, 0, 0))
    monkeypatch.setattr(h5py.version, "hdf5_version_tuple", (1, 12, 1))
    monkeypatch.delitem(sys.modules, "headscope.results.hdf5")
    with pytest.raises(HeadscopeError, match=r"HDF5 1\.12\.1.*at least 1\.14\.2 is needed"):
        importlib.import_module("headscope.results.hdf5")
