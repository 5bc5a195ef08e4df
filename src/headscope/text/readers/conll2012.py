"""CoNLL-2012 reader (OntoNotes, WinoBias), with coreference.

The format lacks spaces, so the text is spaced as English, and Penn Treebank spellings (`-LRB-`, two
backquotes) are undone. Tags are language-specific; constituents are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from headscope.errors import FileFormatError
from headscope.text.document import Document
from headscope.text.readers.brackets import Bracket
from headscope.text.readers.reader import Lines, Reader, ReadLog, ReadOptions, broken, whole_number
from headscope.text.readers.sentences import Sentence, assemble

_BEGIN = re.compile(r"#\s*begin document\s*\((?P<name>.*?)\)\s*;?\s*(?:part\s*(?P<part>\d{1,9}))?")
_ESCAPED = ["-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-", "``", "''", "/.", "/?", "/-"]
_SPELLINGS = dict(zip(_ESCAPED, '()[]{}"".?-', strict=True))
"""Words by their spelling in the Penn Treebank."""


class Conll2012Reader(Reader):
    """CoNLL-2012."""

    name: ClassVar[str] = "conll2012"
    suffixes: ClassVar[tuple[str, ...]] = ("conll", ".conll12", ".conll2012")
    expects: ClassVar[str] = "'#begin document (…)', then columns"
    cuts: ClassVar[bool] = True

    def detect(self, start: Sequence[str]) -> bool:
        """Detect a line that begins a document. OntoGUM's reader is called before."""
        return begins_documents(start)

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """Yield the file's documents or sentences; paragraphs are unknown."""
        return assemble(conll2012_sentences(lines, name, report), name, options.unit, report)


def begins_documents(start: Sequence[str]) -> bool:
    """Return whether a line begins a document, as in OntoNotes and OntoGUM."""
    return any(text.lstrip("# ").startswith("begin document") for text in start)


def conll2012_sentences(lines: Lines, name: str, report: ReadLog) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL-2012 file. Later parts of a document add their number to its
    name, whose first component (`nw`, `bc`) is the genre.
    """
    document: str | None = None
    opens, problem = False, None
    rows: list[tuple[int, str]] = []

    def finish() -> Iterator[Sentence]:
        nonlocal opens, problem
        try:
            if problem is not None:
                raise problem
            if rows:
                sentence = _sentence(rows, name)
                sentence.opens_document = opens
                if opens and document:
                    sentence.document = document
                    sentence.meta = {"genre": document.split("/")[0]}
                opens = False
                yield sentence
        except FileFormatError as error:
            report.leave_out("sentences", error)
        problem = None
        rows.clear()

    for number, text in lines:
        if isinstance(text, FileFormatError):
            problem = text
        elif text.startswith("#"):
            yield from finish()
            begin = _BEGIN.match(text)
            if begin:
                part = int(begin["part"] or 0)
                document = begin["name"] + (f"/{part}" if part else "")
                opens = True
            elif not re.match(r"#\s*end document", text):
                report.leave_out(
                    "lines",
                    broken(name, number, f"{text[:60]!r}", "'#begin document (name); part 000'"),
                )
        elif text and not text.isspace():
            if document is None:
                raise broken(name, number, "a word before any '#begin document (…); part 000'")
            rows.append((number, text))
        else:
            yield from finish()
    yield from finish()


def _sentence(rows: list[tuple[int, str]], name: str) -> Sentence:
    sentence = Sentence(line=rows[0][0])
    for word, (number, row) in enumerate(rows):
        columns = row.split()
        if len(columns) < 5 or whole_number(columns[2]) != word:
            found = f"word number {columns[2][:60]!r}" if len(columns) > 4 else ""
            problem = f"{found or f'{len(columns)} columns'} in {row[:60]!r}"
            expected = f"(document, part, word number {word}, word, tag … coreference)"
            raise broken(name, number, problem, f"CoNLL-2012's columns {expected}")
        sentence.words.append(_SPELLINGS.get(columns[3], columns[3]))
        sentence.xpos.append("_" if columns[4] == "-" else columns[4])
        if columns[-1] != "-":
            sentence.brackets.append(Bracket(word, columns[-1], number, ("eid",)))
    return sentence
