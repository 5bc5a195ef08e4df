"""The contract of a reader: one file format, from the lines of a file to documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from headscope.text.document import Document, Unit
from headscope.text.readers.lines import Lines, Report

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
        self, lines: Lines, name: str, options: ReadOptions, report: Report
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
