"""OntoGUM reader (three columns), and its coreference joined to GUM's trees.

OntoGUM has GUM's words with OntoNotes-style coreference. Sentences and spaces are in GUM's CoNLL-U.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from headscope.errors import FileFormatError, InputError
from headscope.text.document import NO_PARENT, Document
from headscope.text.readers.brackets import Bracket
from headscope.text.readers.conll2012 import begins_documents
from headscope.text.readers.reader import Lines, Reader, ReadLog, ReadOptions, broken, column_counts
from headscope.text.readers.sentences import Sentence, assemble, locate, spaced

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
            empty = ["_"] * len(current.words)
            current.upos = current.xpos = current.lemmas = empty
            current.features = current.relations = empty
            current.parents = [NO_PARENT] * len(empty)
            current.text, current.spans = locate(spaced(current.words), None, name, current.line)
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
                problem = broken(
                    name,
                    number,
                    f"{text[:60]!r}",
                    f"three columns separated by tabs, beginning with {expected}",
                )
                continue
            current.words.append(columns[1])
            if columns[2] != "_":
                current.brackets.append(Bracket(expected, columns[2], number, ("eid",)))
    yield from finish()


def join_coreference(
    documents: Iterable[Document], coreference: Iterable[Document], name: str, report: ReadLog
) -> Iterator[Document]:
    """Yield the documents with the mentions of the same documents in another file.

    Both files are read in parallel, so memory stays small while their order is the same. Earlier
    mentions are replaced.

    Args:
        documents: Whole documents, such as GUM's CoNLL-U.
        coreference: The same documents with other mentions, such as OntoGUM.
        name: The coreference file, for messages.
        report: Log of documents that are missing or have other words.
    """
    ahead: dict[str, Document] = {}
    source = iter(coreference)
    for document in documents:
        while document.id not in ahead:
            other = next(source, None)
            if other is None:
                break
            ahead[other.id] = other
        other = ahead.pop(document.id, None)
        try:
            if other is None:
                raise InputError(f"{name} has no document {document.id!r}.")
            # OntoGUM drops the word "|" and keeps its place.
            if len(other) != len(document) or any(
                a != b and b for a, b in zip(document.words, other.words, strict=True)
            ):
                raise InputError(_difference(document, other, name))
        except InputError as error:
            report.leave_out("documents", FileFormatError(str(error)))
            continue
        yield replace(document, mentions=other.mentions)


def _difference(document: Document, other: Document, name: str) -> str:
    pairs = zip(document.words, other.words, strict=False)
    index = next(
        (i for i, (a, b) in enumerate(pairs) if a != b and b), min(len(document), len(other))
    )
    return (
        f"Document {document.id!r} has other words in {name} ({len(other)} against "
        f"{len(document)}): word {index} is {other.words[index : index + 1]} against "
        f"{document.words[index : index + 1]}. Expected two versions of the same text."
    )
