"""Plain text reader: a document per line, paragraph or file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

from headscope.errors import FileFormatError
from headscope.text.document import Document, Span
from headscope.text.readers.reader import Lines, Reader, ReadLog, ReadOptions
from headscope.text.splitting import split_words

_LOOK_AHEAD = 1000


class PlainReader(Reader):
    """Plain text."""

    name: ClassVar[str] = "plain"
    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".text")

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """Yield the documents of a text file, by `options.layout`.

        `line`: one per line. `paragraph`: one per block between blank lines, with spaces for line
        ends. `file`: one, with its paragraphs; this needs the whole file in memory. `auto`:
        `paragraph` if a blank line separates text within the first 1,000 lines, else `line`.
        """
        layout = options.layout
        if layout == "auto":
            start = list(islice(lines, _LOOK_AHEAD))
            layout = "paragraph" if _has_blocks(start) else "line"
            lines = chain(start, lines)
        stem = Path(name).name.split(".")[0]
        blocks = _lines(lines, report) if layout == "line" else _blocks(lines, report)
        if layout == "file":
            yield from _whole(blocks, stem)
            return
        for number, text in enumerate(blocks, 1):
            yield Document.from_text(text, f"{stem}-{number}")


def _whole(blocks: Iterator[str], stem: str) -> Iterator[Document]:
    texts = list(blocks)
    spans: list[Span] = []
    paragraphs: list[Span] = []
    offset = 0
    for text in texts:
        first = len(spans)
        spans += [(start + offset, end + offset) for start, end in split_words(text)]
        if len(spans) > first:
            paragraphs.append((first, len(spans)))
        offset += len(text) + 2
    if texts:
        whole = "\n\n".join(texts)
        words = tuple(whole[start:end] for start, end in spans)
        yield Document(stem, whole, words, tuple(spans), paragraphs=tuple(paragraphs))


def _has_blocks(start: list[tuple[int, str | FileFormatError]]) -> bool:
    filled = [not isinstance(text, str) or bool(text.strip()) for _, text in start]
    if True not in filled:
        return False
    last = len(filled) - filled[::-1].index(True)
    return False in filled[filled.index(True) : last]


def _lines(lines: Lines, report: ReadLog) -> Iterator[str]:
    for _, text in lines:
        if isinstance(text, FileFormatError):
            report.leave_out("lines", text)
        elif text.strip():
            yield text.strip()


def _blocks(lines: Lines, report: ReadLog) -> Iterator[str]:
    block: list[str] = []
    for _, text in lines:
        if isinstance(text, FileFormatError):
            report.leave_out("lines", text)
        elif text.strip():
            block.append(text.strip())
        elif block:
            yield " ".join(block)
            block = []
    if block:
        yield " ".join(block)
