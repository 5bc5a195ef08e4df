"""Documents from JSON lines: an object, or a string, in each line of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import ClassVar

from headscope.errors import FileFormatError, InputError
from headscope.text.document import Document
from headscope.text.readers.items import document_from_item
from headscope.text.readers.lines import Lines, Report, broken, stem_of
from headscope.text.readers.reader import Reader, ReadOptions


class JsonLinesReader(Reader):
    """JSON lines, as `Corpus.save` writes them: see `document_from_dict` for the keys."""

    name: ClassVar[str] = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    expects: ClassVar[str] = "a JSON object in each line"

    def detect(self, start: Sequence[str]) -> bool:
        """Every line opens an object."""
        rows = [text for text in start if not text.startswith("#")]
        return bool(rows) and all(row.lstrip().startswith("{") for row in rows[:20])

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: Report
    ) -> Iterator[Document]:
        """A document for each line; a line that is none is left out."""
        stem = stem_of(name)
        for number, text in lines:
            try:
                if isinstance(text, FileFormatError):
                    raise text
                if not text or text.isspace():
                    continue
                document = _document(text, f"{stem}-{number}", name, number, options.text_key)
            except FileFormatError as error:
                report.leave_out("documents", error)
                continue
            yield document


def _document(text: str, document_id: str, name: str, number: int, text_key: str) -> Document:
    try:
        item: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise broken(
            name, number, f"not JSON ({error}): {text[:60]!r}", "one JSON object per line"
        ) from None
    try:
        return document_from_item(item, document_id, text_key)
    except InputError as error:
        raise broken(name, number, str(error).rstrip(".")) from None
