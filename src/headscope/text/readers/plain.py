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
            ahead = list(islice(lines, _LOOK_AHEAD))
            filled = [not isinstance(text, str) or text.strip() for _, text in ahead]
            marks = "".join("x" if is_filled else " " for is_filled in filled)
            layout = "paragraph" if " " in marks.strip() else "line"
            lines = chain(ahead, lines)
        stem = Path(name).name.split(".")[0]
        blocks = _blocks(lines, report, is_by_line=layout == "line")
        if layout != "file":
            for number, text in enumerate(blocks, 1):
                yield Document.from_text(text, f"{stem}-{number}")
        elif texts := list(blocks):
            spans: list[Span] = []
            paragraphs: list[Span] = []
            offset = 0
            for text in texts:
                first = len(spans)
                spans += [(start + offset, end + offset) for start, end in split_words(text)]
                if len(spans) > first:
                    paragraphs.append((first, len(spans)))
                offset += len(text) + 2
            whole = "\n\n".join(texts)
            words = tuple(whole[start:end] for start, end in spans)
            yield Document(stem, whole, words, tuple(spans), paragraphs=tuple(paragraphs))


def _blocks(lines: Lines, report: ReadLog, *, is_by_line: bool) -> Iterator[str]:
    """Yield the lines, or the lines between blank lines with spaces for line ends."""
    block: list[str] = []
    for _, text in chain(lines, [(0, "")]):
        if isinstance(text, FileFormatError):
            report.leave_out("lines", text)
            continue
        if text.strip():
            block.append(text.strip())
        if block and (is_by_line or not text.strip()):
            yield " ".join(block)
            block = []
