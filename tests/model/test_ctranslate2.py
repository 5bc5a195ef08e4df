"""The CTranslate2 reader: what a file says is read exactly, and what it should not say refused."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from headscope.errors import ModelError
from headscope.model.packaged.ctranslate2 import convert_whisper, read_variables

NUMBERS = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def text(name: str) -> bytes:
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


def variable(name: str, array: np.ndarray, kind: int | None = None) -> bytes:
    number = NUMBERS[str(array.dtype)] if kind is None else kind
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    data = array.tobytes()
    return text(name) + shape + struct.pack("<BI", number, len(data)) + data


def file(
    folder: Path,
    *variables: bytes,
    aliases: tuple[tuple[str, str], ...] = (),
    version: int = 6,
    after: bytes = b"",
) -> Path:
    path = folder / "model.bin"
    raw = struct.pack("<I", version) + text("WhisperSpec") + struct.pack("<II", 3, len(variables))
    raw += b"".join(variables) + struct.pack("<I", len(aliases))
    raw += b"".join(text(alias) + text(name) for alias, name in aliases)
    path.write_bytes(raw + after)
    return path


MATRIX = np.array([[1.5, -0.25, 3.0], [0.0, 127.0, -64.0]], dtype=np.float32)


def test_numbers_of_every_type(tmp_path: Path) -> None:
    upper_halves = (MATRIX.view(np.uint32) >> 16).astype(np.uint16)
    path = file(
        tmp_path,
        variable("a", MATRIX),
        variable("b", MATRIX.astype(np.float16)),
        variable("c", upper_halves, kind=5),
        variable("n", np.array(6, dtype=np.int16)),
        aliases=(("again", "a"),),
    )
    name, revision, variables = read_variables(path)
    assert (name, revision) == ("WhisperSpec", 3)
    for key in ("a", "b", "c", "again"):
        np.testing.assert_array_equal(variables[key], MATRIX)
        assert variables[key].dtype == np.float32
    assert int(variables["n"]) == 6


def test_integers_are_divided_by_their_scales(tmp_path: Path) -> None:
    """By hand: rows of 8-bit integers have a scale each, 16-bit ones one for all."""
    rows = np.array([[127, -64], [10, 5]], dtype=np.int8)
    path = file(
        tmp_path,
        variable("w", rows),
        variable("w_scale", np.array([254.0, 2.0], dtype=np.float32)),
        variable("v", np.array([[1024, -512]], dtype=np.int16)),
        variable("v_scale", np.array(512.0, dtype=np.float32)),
    )
    _, _, variables = read_variables(path)
    np.testing.assert_allclose(variables["w"], [[0.5, -64 / 254], [5.0, 2.5]])
    np.testing.assert_allclose(variables["v"], [[2.0, -1.0]])
    assert set(variables) == {"w", "v"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": 5}, "has binary version 5; expected 6"),
        ({"after": b"x"}, "continues after its end"),
        ({"aliases": (("b", "nothing"),)}, "has the invalid alias 'b' for 'nothing'"),
        ({"aliases": (("a", "a"),)}, "has the invalid alias 'a' for 'a'"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read_variables(file(tmp_path, variable("a", MATRIX), **options))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ([variable("a", MATRIX), variable("a", MATRIX)], "has two variables 'a'"),
        ([variable("a", MATRIX, kind=9)], "of type 9; types 0 to 5 are read"),
        ([variable("a", MATRIX, kind=1)], r"of shape \(2, 3\) and type 1 in 24 bytes"),
        ([variable("a", np.zeros((1, 1, 1, 1, 1), np.float32))], "with 5 axes; at most 4"),
        ([variable("a", np.ones((2, 2), np.int8))], "int8 of shape .* with no scale"),
        ([variable("a", np.ones((2, 2), np.int32))], "int32 of shape .* with no scale"),
        (
            [variable("a", np.ones((2, 2), np.int8)), variable("a_scale", np.ones(3, np.float32))],
            r"scales of shape \(3,\)",
        ),
        ([struct.pack("<H", 2) + b"ab"], "has an invalid name"),
    ],
)
def test_wrong_variables_are_refused(tmp_path: Path, variables: list[bytes], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read_variables(file(tmp_path, *variables))


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    path = file(tmp_path, variable("a", MATRIX), aliases=(("b", "a"),))
    whole = path.read_bytes()
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(ModelError, match="ends where"):
            read_variables(path)


def test_counts_have_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, 2**32 - 1))
    with pytest.raises(ModelError, match="states 4,294,967,295 variables; at most 10,000"):
        read_variables(path)


def test_another_layout_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, variable("a", MATRIX))
    path.write_bytes(path.read_bytes().replace(b"WhisperSpec", b"WhaleerSpec"))
    with pytest.raises(ModelError, match="WhaleerSpec 3; WhisperSpec 3 is converted"):
        convert_whisper(path, tmp_path)
