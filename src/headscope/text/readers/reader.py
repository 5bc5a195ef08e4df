"""Contract of a reader, and the numbered lines of a text file.

Plain and gzipped UTF-8 is read line by line, without the whole file in memory.
"""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar, Literal, cast

from headscope.errors import FileFormatError, UnknownName
from headscope.text.document import Document, Unit

OnError = Literal["raise", "skip"]
Lines = Iterator[tuple[int, str | FileFormatError]]
"""Number (from 1) and text of each line without its line end, or the error of an unreadable line.
"""

KEPT_MESSAGES = 20
LONGEST_LINE = 16 << 20
LONGEST_NUMBER = 9
MAX_EXPANSION = 200
"""Maximum expansion of a gzipped file. Text expands 3 to 10 times, a bomb a thousand times."""
EXPANSION_FROM = 4 << 20
"""Bytes up to which any expansion is allowed."""
MAX_LINES_PER_BYTE = 4
"""Maximum lines per byte of a gzipped file. Even lines of one random digit are 2 a byte."""
LINES_FROM = 100_000
"""Lines up to which any number per byte is allowed."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


NO_MARKS = "the file marks no documents: each of its texts is taken as independent"


@dataclass(slots=True)
class ReadLog:
    """Log of items that one pass over a corpus left out."""

    on_error: OnError = "raise"
    counts: Counter[str] = field(default_factory=Counter)
    """Number of sentences, documents, mentions … that were left out."""
    messages: list[str] = field(default_factory=list)
    independence: dict[str, None] = field(default_factory=dict)
    """Sentences on what is taken as independent; empty if files mark their documents."""

    def __post_init__(self) -> None:
        UnknownName.check("on_error", self.on_error, ("raise", "skip"))

    def leave_out(self, what: str, error: FileFormatError) -> None:
        """Count one more of `what`, or raise the error, as `on_error` says."""
        if self.on_error == "raise":
            raise error
        self.counts[what] += 1
        if len(self.messages) < KEPT_MESSAGES:
            self.messages.append(str(error))


def broken(name: str, line: int, problem: str, expected: str = "") -> FileFormatError:
    """Return the error for a line of a file, with the problem and the expected content."""
    hint = f" Expected {expected}." if expected else ""
    return FileFormatError(
        f"{name}, line {line}: {problem}.{hint} "
        'Repair the line, or read with on_error="skip" to leave it out and count it.'
    )


def stem_of(name: str) -> str:
    """Return the name of a file without folders and suffixes, to name documents after."""
    return name.replace("\\", "/").rsplit("/", 1)[-1].split(".")[0]


def whole_number(text: str) -> int | None:
    """Return the number in a field of a file; None if it is not a number, or too long."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def read_lines(path: Path) -> Lines:
    """Yield the lines of a file, gzipped or not; an error takes the place of an unreadable line.

    Windows line ends, a byte order mark and a missing last line end are accepted. Raises
    FileFormatError for UTF-16, broken compression, or a file that expands too much.
    """
    with path.open("rb") as raw:
        start = raw.read(2)
        raw.seek(0)
        if start in _UTF16:
            raise FileFormatError(
                f"{path} is UTF-16 (it starts with {start.hex(' ')}). Expected UTF-8: "
                f"convert it, e.g. with `iconv -f UTF-16 -t UTF-8`."
            )
        is_gzip = start == b"\x1f\x8b"
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if is_gzip else raw)
        number = unfolded = 0
        is_inside = False  # in the rest of a line that is too long
        try:
            while line := stream.readline(LONGEST_LINE):
                unfolded += len(line)
                if is_gzip and (unfolded > EXPANSION_FROM or number >= LINES_FROM):
                    _check_expansion(path, raw.tell(), unfolded, number + 1)
                was_inside, is_inside = is_inside, not line.endswith(b"\n")
                if was_inside:
                    continue
                number += 1
                if len(line) == LONGEST_LINE and is_inside:
                    problem = f"the line has more than {LONGEST_LINE:,} bytes"
                    yield number, broken(str(path), number, problem, "lines of text")
                    continue
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield number, line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    byte = f"byte 0x{line[error.start]:02x} at position {error.start}"
                    yield number, broken(str(path), number, f"{byte} is not UTF-8", "UTF-8 text")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FileFormatError(
                f"{path} is gzipped, but its compression breaks off after line {number} "
                f"({error}). Fetch or compress it again."
            ) from error


def _check_expansion(path: Path, packed: int, unfolded: int, lines: int) -> None:
    """Raise FileFormatError if the first `packed` bytes of a gzipped file hold too much."""
    limit = f"more than {MAX_LINES_PER_BYTE} lines a byte"
    if unfolded > max(EXPANSION_FROM, MAX_EXPANSION * packed):
        limit = f"more than {MAX_EXPANSION} times its size"
    elif lines <= max(LINES_FROM, MAX_LINES_PER_BYTE * packed):
        return
    raise FileFormatError(
        f"{path} unfolds to {limit}, unlike text: its first {packed:,} bytes to {unfolded:,} "
        f"bytes in {lines:,} lines. Unpack it, and read it if it is text."
    )


Layout = Literal["auto", "line", "paragraph", "file"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of `headscope.read` that readers need."""

    unit: Unit = "document"
    """Unit of one document. Only readers with `cuts` use it."""
    layout: Layout = "auto"
    """Unit of a document in plain text."""
    text_key: str = "text"
    """Name of the text in records."""
    document_key: str | None = None
    """Comment whose value names a sentence's document, in formats with comments."""


class Reader(ABC):
    """Reader of one file format. Derive from it, and register the class with `register_reader`.

    A reader has no state: a new one is made for every file. Workers find the class by its name, so
    its module must be importable.
    """

    name: ClassVar[str]
    """Name of the format in `headscope.read(format=…)`."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Ends of file names in this format, in lower case and without `.gz`. If readers share a suffix
    (`.conll`), `detect` decides."""
    expects: ClassVar[str] = ""
    """Description of the format in messages: `ten columns separated by tabs`."""
    cuts: ClassVar[bool] = False
    """True if `documents` cuts by `options.unit` itself. Otherwise headscope cuts its documents."""

    def detect(self, start: Sequence[str]) -> bool:
        """Return whether these are the first lines of a file in this format.

        Called if the suffix does not decide. By default false.

        Args:
            start: The first lines that are not blank, at most 100.
        """
        return False

    @abstractmethod
    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """Yield the documents of a file.

        Any exception becomes a `FileFormatError` with file and line. With `on_error="skip"` the
        rest of the file is left out; to leave out one document, call `report.leave_out`.

        Args:
            lines: Number and text of each line, or the error of an undecodable line: raise it, or
                pass it to `report.leave_out`.
            name: Path of the file, for messages and document ids.
            options: Options of `headscope.read`.
            report: `report.leave_out("documents", error)` raises the `FileFormatError` or counts
                it, as `on_error` says.
        """


def column_counts(start: Sequence[str]) -> set[int]:
    """Return the numbers of tab-separated columns in the first 20 lines without comments."""
    rows = [text for text in start if not text.startswith("#")]
    return {len(row.split("\t")) for row in rows[:20]}
