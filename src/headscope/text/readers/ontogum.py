"""OntoGUM reader (three columns), and its coreference joined to GUM's trees.

OntoGUM has GUM's words with OntoNotes-style coreference. Sentences and spaces are in GUM's CoNLL-U.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from headscope.errors import FileFormatError
from headscope.text.document import Document
from headscope.text.readers.brackets import Bracket
from headscope.text.readers.conll2012 import begins_documents
from headscope.text.readers.reader import Lines, Reader, ReadLog, ReadOptions, broken, column_counts
from headscope.text.readers.sentences import Sentence, assemble

_BEGIN = re.compile(r"#\s*begin document\s+(?P<name>\S.*)")


class OntoGumReader(Reader):
    """OntoGUM."""

    name: ClassVar[str] = "ontogum"
    suffixes: ClassVar[tuple[str, ...]] = ("conll",)
    expects: ClassVar[str] = "'# begin document …', then three columns"

    def detect(self, start: Sequence[str]) -> bool:
        """Detect a line that begins a document, and three columns."""
        return begins_documents(start) and column_counts(start) == {3}

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """Yield the file's documents; their sentences and paragraphs are unknown.

        A document with a broken line is left out as a whole.
        """
        for document in assemble(_as_sentences(lines, name, report), name, "document", report):
            yield replace(document, sentences=(), paragraphs=())


def _as_sentences(lines: Lines, name: str, report: ReadLog) -> Iterator[Sentence]:
    current: Sentence | None = None
    problem: FileFormatError | None = None

    def finish() -> Iterator[Sentence]:
        if problem is not None:
            report.leave_out("documents", problem)
        elif current is not None and current.words:
            yield current

    for number, text in lines:
        if isinstance(text, FileFormatError):
            problem = problem or text
            continue
        if text.startswith("#") and "\t" not in text:
            begin = _BEGIN.match(text.rstrip())
            yield from finish()
            current = problem = None
            if begin:
                current = Sentence(line=number, opens_document=True, document=begin["name"])
                if match := re.match(r"GUM_([a-z]+)_", begin["name"]):
                    current.meta = {"genre": match[1]}
        elif text and not text.isspace() and problem is None:
            columns = text.split("\t")
            expected = len(current.words) if current is not None else 0
            if current is None:
                raise broken(name, number, "a word before any '# begin document NAME'")
            if len(columns) != 3 or columns[0] != str(expected):
                columns_wanted = f"three columns separated by tabs, beginning with {expected}"
                problem = broken(name, number, f"{text[:60]!r}", columns_wanted)
                continue
            current.words.append(columns[1])
            if columns[2] != "_":
                current.brackets.append(Bracket(expected, columns[2], number, ("eid",)))
    yield from finish()


def join_coreference(
    documents: Iterable[Document], coreference: Iterable[Document], name: str, report: ReadLog
) -> Iterator[Document]:
    """Yield the documents with the mentions of the same documents in another file, `name`.

    Both files are read in parallel, so memory stays small while their order is the same. Earlier
    mentions are replaced. Documents that are missing or have other words go to the report.
    """
    ahead: dict[str, Document] = {}
    source = iter(coreference)
    for document in documents:
        while document.id not in ahead and (read := next(source, None)) is not None:
            ahead[read.id] = read
        other = ahead.pop(document.id, None)
        if other is None:
            problem = f"{name} has no document {document.id!r}."
            report.leave_out("documents", FileFormatError(problem))
            continue
        # OntoGUM drops the word "|" and keeps its place.
        pairs = enumerate(zip(document.words, other.words, strict=False))
        index = next((i for i, (a, b) in pairs if a != b and b), min(len(document), len(other)))
        if index < max(len(document), len(other)):
            problem = (
                f"Document {document.id!r} has other words in {name} ({len(other)} against "
                f"{len(document)}): word {index} is {other.words[index : index + 1]} against "
                f"{document.words[index : index + 1]}. Expected two versions of the same text."
            )
            report.leave_out("documents", FileFormatError(problem))
            continue
        yield replace(document, mentions=other.mentions)
