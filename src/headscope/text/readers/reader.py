"""The contract of a reader: one file format, from the lines of a file to documents.

Lines of a text file with their numbers, and what to do about those that are broken.

Reads plain and gzipped UTF-8 line by line; the whole file is never in memory, and neither is a
line that is longer than any text. What a line means is up to the reader of its format.
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
"""Number (from 1) and text of each line, without its line end; or why it cannot be read."""

KEPT_MESSAGES = 20
LONGEST_LINE = 16 << 20
"""Bytes of a line; a longer one is no line of text."""
LONGEST_NUMBER = 9
"""Digits of a number in a file: as many as any count of words has."""
MAX_EXPANSION = 200
"""How many times its size a gzipped file may unfold to. Text takes a tenth to a third of its
size; a bomb a thousandth."""
EXPANSION_FROM = 64 << 20
"""Bytes up to which a file may unfold whatever its size."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class ReadLog:
    """What one pass over a corpus left out."""

    on_error: OnError = "raise"
    counts: Counter[str] = field(default_factory=Counter)
    """How many sentences, documents, mentions …"""
    messages: list[str] = field(default_factory=list)
    """The first few reasons."""

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "skip"):
            raise UnknownName.of("on_error", self.on_error, ("raise", "skip"))

    def leave_out(self, what: str, error: FileFormatError) -> None:
        """Counts one more of `what`, or raises the error, as the user asked."""
        if self.on_error == "raise":
            raise error
        self.counts[what] += 1
        if len(self.messages) < KEPT_MESSAGES:
            self.messages.append(str(error))


def broken(name: str, line: int, problem: str, expected: str = "") -> FileFormatError:
    """The error for a line of a file: what is wrong there, and what was expected."""
    hint = f" Expected {expected}." if expected else ""
    return FileFormatError(
        f"{name}, line {line}: {problem}.{hint} "
        'Repair the line, or read with on_error="skip" to leave it out and count it.'
    )


def stem_of(name: str) -> str:
    """The name of a file without its folders and suffixes, to name documents after."""
    return name.replace("\\", "/").rsplit("/", 1)[-1].split(".")[0]


def whole_number(text: str) -> int | None:
    """The number that a field of a file spells; None if it is none, or longer than any count."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def read_lines(path: Path) -> Lines:
    """The lines of a file, gzipped or not.

    Ends of Windows lines, a byte order mark and a missing last line end make no difference.

    Raises:
        FileFormatError: The file is UTF-16, its compression is broken, or it unfolds beyond all
            measure. A line that is too long or not UTF-8 does not raise: the error takes its
            place.
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
        is_inside = False  # of a line that is too long, the rest of which is not kept
        try:
            while line := stream.readline(LONGEST_LINE):
                unfolded += len(line)
                if is_gzip and unfolded > max(EXPANSION_FROM, MAX_EXPANSION * raw.tell()):
                    raise FileFormatError(
                        f"{path} unfolds to more than {MAX_EXPANSION} times its size, as text "
                        f"does not (line {number + 1}). Unpack it, look at it, and read the "
                        "unpacked file if it is text."
                    )
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
                    yield (
                        number,
                        broken(
                            str(path),
                            number,
                            f"byte 0x{line[error.start]:02x} at position {error.start} is not "
                            "UTF-8",
                            "UTF-8 text",
                        ),
                    )
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FileFormatError(
                f"{path} is gzipped, but its compression breaks off after line {number} "
                f"({error}). Fetch or compress it again."
            ) from error


Layout = Literal["auto", "line", "paragraph", "file"]
LAYOUTS = ("auto", "line", "paragraph", "file")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What `headscope.read` was asked for, as far as readers need to know."""

    unit: Unit = "document"
    """What is to be one document. Only readers with `cuts` look at it."""
    layout: Layout = "auto"
    """For plain text: what is a document of the file."""
    text_key: str = "text"
    """For records: the name of the text."""


class Reader(ABC):
    """Reads one file format. Derive from it, and register the class with `register_reader`.

    A reader has no state: it is made anew for every file. Class and module must be importable
    wherever the corpus is read: worker processes find the class by its name.
    """

    name: ClassVar[str]
    """What `headscope.read(format=…)` calls it."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Files whose names end so are in this format, in lower case and without `.gz`. Where
    several readers share a suffix (`.conll`), `detect` decides."""
    expects: ClassVar[str] = ""
    """What its files look like, for messages: `ten columns separated by tabs`."""
    cuts: ClassVar[bool] = False
    """Does `documents` cut by `options.unit` itself? Otherwise headscope cuts what it gives."""

    def detect(self, start: Sequence[str]) -> bool:
        """Are these the first lines of a file in this format?

        Asked where the suffix does not tell. By default no: then suffix or `format=` decide.

        Args:
            start: The first lines that are not blank, at most 100.
        """
        return False

    @abstractmethod
    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """The documents of a file, one after the other.

        Args:
            lines: Number and text of each line. In place of a line that cannot be decoded
                stands the error: raise it, or hand it to `report.leave_out`.
            name: The file, for messages and to name documents after.
            options: What the user asked for.
            report: `report.leave_out("documents", error)` raises the `FileFormatError`, or
                counts it, as the user chose with `on_error`.
        """


def column_counts(start: Sequence[str]) -> set[int]:
    """How many columns, separated by tabs, the first 20 lines have that are no comments."""
    rows = [text for text in start if not text.startswith("#")]
    return {len(row.split("\t")) for row in rows[:20]}
