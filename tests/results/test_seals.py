"""Damaged files never become numbers; unknown ones are read by a process that may hang or crash."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope import atomic
from headscope.atomic import SEAL_SIZE, DamagedFile, UnsealedFile
from headscope.errors import FileFormatError
from headscope.results import files, hdf5
from headscope.results.files import decode_groups
from headscope.run.measure import measure
from tests.results.sealing import seal_as_stranger, sealed_by_a_stranger, unsealed


def save(folder: Path, kind: str) -> Path:
    weights = np.random.default_rng(0).dirichlet(np.ones(4), (2, 2, 4))
    trace = hs.Trace.from_arrays(weights, ["The", " cat", " sat", "."])
    path = folder / f"{kind}.nc"
    (trace if kind == "trace" else measure(trace, ["distance", "exemplars"])).save(path)
    return path


@pytest.mark.parametrize("kind", ["trace", "result"])
def test_no_flipped_bit_is_opened(kind: str, tmp_path: Path) -> None:
    path = save(tmp_path, kind)
    content = path.read_bytes()
    assert hs.open(path) is not None
    chance = random.Random(1)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[chance.randrange(len(content) - SEAL_SIZE)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match="was damaged after it was written"):
            hs.open(path)


def test_a_flipped_bit_of_the_seal_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, "trace")
    content = path.read_bytes()
    for place in range(1, SEAL_SIZE - 32, 7):  # the mark and the hash; the signature is not needed
        damaged = bytearray(content)
        damaged[len(content) - SEAL_SIZE + place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises((DamagedFile, UnsealedFile)):
            hs.open(path)


def test_files_that_were_cut_off_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "trace")
    content = path.read_bytes()
    for length in (len(content) - SEAL_SIZE, len(content) - 1, len(content) // 2, 10, 0):
        path.write_bytes(content[:length])
        with pytest.raises(UnsealedFile):
            hs.open(path)


def test_other_programs_read_a_sealed_file(tmp_path: Path) -> None:
    with xr.open_dataset(save(tmp_path, "result"), engine="h5netcdf") as data:
        assert "distance" in data


def test_a_file_of_another_user_gives_the_same_numbers(tmp_path: Path) -> None:
    path = save(tmp_path, "result")
    own = decode_groups(hdf5.read_groups(path))
    seal_as_stranger(path)
    assert not atomic.check_seal(path)
    others = decode_groups(hdf5.read_in_child(path))
    assert own.keys() == others.keys()
    for name, data in own.items():
        assert data.identical(others[name])
        assert {n: v.dtype for n, v in data.variables.items()} == {
            n: v.dtype for n, v in others[name].variables.items()
        }
    assert isinstance(hs.open(path), hs.Result)


def test_only_own_files_are_read_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, "result")

    def fail(path: Path) -> None:
        raise AssertionError("the wrong process")

    monkeypatch.setattr(files, "read_in_child", fail)
    hs.open(path)
    monkeypatch.undo()
    seal_as_stranger(path)
    monkeypatch.setattr(files, "read_groups", fail)
    hs.open(path)


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    path = save(tmp_path, "trace")
    key = tmp_path / "cache" / "key"
    assert len(key.read_bytes()) == atomic.KEY_SIZE
    assert key.stat().st_mode & 0o077 == 0
    assert atomic.check_seal(path)
    assert [file.name for file in key.parent.iterdir()] == ["key"]
    code = (
        "import pathlib, sys, headscope.atomic as s; print(s.check_seal(pathlib.Path(sys.argv[1])))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, path],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert shown.stdout.strip() == "True"
    key.write_bytes(b"short")  # a damaged key: nothing is known, nothing is lost
    atomic._key.cache_clear()
    assert not atomic.check_seal(path)
    assert isinstance(hs.open(path), hs.Trace)
    atomic._key.cache_clear()


@cache
def looping() -> bytes:
    """A result whose free heap space has size 0: HDF5 searches it forever, deaf to Ctrl-C."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        content = bytearray(unsealed(save(Path(folder), "result").read_bytes()))
    heap = content.index(b"GCOL")
    place = heap + 16
    while index := struct.unpack_from("<H", content, place)[0]:
        size = struct.unpack_from("<Q", content, place + 8)[0]
        assert index
        place += 16 + (size + 7) // 8 * 8
    content[place + 8 : place + 16] = bytes(8)
    return bytes(content)


def test_a_file_that_makes_hdf5_loop_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "MAX_CPU_SECONDS", 2)
    path = tmp_path / "loop.nc"
    path.write_bytes(sealed_by_a_stranger(looping()))
    with pytest.raises(FileFormatError, match="took more than 2 seconds of CPU time"):
        hs.open(path)


def test_a_child_that_waits_is_stopped_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a child may take long without much CPU time."""
    assert hdf5.MAX_CLOCK_RATIO * hdf5.MAX_CPU_SECONDS < 20
    (tmp_path / "sleep.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(hdf5, "__name__", "sleep")
    monkeypatch.setattr(hdf5, "MAX_CPU_SECONDS", 1)
    path = save(tmp_path, "trace")
    seal_as_stranger(path)
    with pytest.raises(FileFormatError, match="took more than 3 seconds"):
        hs.open(path)


def test_a_small_file_with_much_text_is_refused(tmp_path: Path) -> None:
    """Many references to one long text on the heap: 300 GB in 0.4 MB."""
    path = tmp_path / "large.nc"
    with h5py.File(path, "w") as root:
        root.attrs["headscope"] = "probe"
        root.attrs["format"] = files.FILE_FORMAT
        texts = root.create_dataset("texts", (20_000,), h5py.string_dtype())
        texts[0] = "x" * 60_000
        texts[1:] = "y"
    content = bytearray(path.read_bytes())
    with h5py.File(path) as root:
        start, size = root["texts"].id.get_offset(), 16
    first = bytes(content[start : start + size])
    content[start : start + 20_000 * size] = first * 20_000
    path.write_bytes(sealed_by_a_stranger(bytes(content)))
    with pytest.raises(FileFormatError, match=r"bytes of memory|CPU time"):
        hs.open(path)


def test_a_crash_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crash.py").write_text("import os; os.abort()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(hdf5, "__name__", "crash")
    path = save(tmp_path, "trace")
    seal_as_stranger(path)
    with pytest.raises(FileFormatError, match="the process that read it crashed"):
        hs.open(path)


def test_a_module_beside_the_file_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, "trace")
    seal_as_stranger(path)
    (tmp_path / "h5py.py").write_text("import os; os.abort()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    assert isinstance(hs.open("trace.nc"), hs.Trace)


def test_editions(tmp_path: Path) -> None:
    path = save(tmp_path, "trace")
    editions = ((2, "an earlier edition"), (99, "Install a newer headscope"))
    for number, message in (*editions, ([3, 3], "an earlier edition")):
        with h5py.File(path, "a") as root:
            root.attrs["format"] = number
        with pytest.raises(FileFormatError, match=message):
            hs.open(path)
        seal_as_stranger(path)
        with pytest.raises(FileFormatError, match=message):
            hs.open(path)
