"""`headscope.read`: a corpus from a file, a folder or any iterable.

Finds out the format and hands over to the reader of that format; nothing is parsed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Unit
from headscope.text.readers.conll2012 import conll2012_sentences
from headscope.text.readers.conllu import conllu_sentences
from headscope.text.readers.items import item_documents, json_documents
from headscope.text.readers.lines import Lines, OnError, Report, read_lines
from headscope.text.readers.ontogum import join_coreference, ontogum_documents
from headscope.text.readers.plain import LAYOUTS, Layout, plain_documents
from headscope.text.readers.sentence import assemble

__all__ = ["FileSource", "Format", "ItemSource", "read"]

Format = Literal["conllu", "conll2012", "ontogum", "jsonl", "plain"]

_SUFFIXES: dict[str, Format] = {
    ".conllu": "conllu",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "plain",
    ".text": "plain",
}
_COLUMN_SUFFIXES = ("conll", ".conll12", ".conll2012")


def read(
    source: str | Path | Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    unit: Unit = "document",
    format: Format | None = None,  # noqa: A002, the word everybody looks for
    layout: Layout = "auto",
    coreference: str | Path | None = None,
    text_key: str = "text",
    sample: int | None = None,
    seed: int = 0,
    one_per_document: bool = False,
    on_error: OnError = "raise",
    name: str | None = None,
) -> Corpus:
    """A corpus to measure attention on. Nothing is read before it is iterated.

    Args:
        source: A file, plain or gzipped: CoNLL-U, CoNLL-2012, OntoGUM, JSON lines or plain
            text, told apart by suffix and content. A folder: all such files in it, by name.
            Or an iterable of strings, of dicts (see `text_key`), of `Document`s, of `Path`s;
            or a function that returns one anew each time.
        unit: What is one document: the file's own documents, its paragraphs or its sentences.
        format: The format, where suffix and content do not tell.
        layout: For plain text, what is a document: a `line`, a `paragraph` (blank lines
            between) or the `file`. By default paragraphs where there are any.
        coreference: A second file with the same documents (OntoGUM's for GUM's trees) whose
            mentions are taken.
        text_key: For dicts and JSON lines, the name of the text.
        sample: Draw so many documents at random.
        seed: Which random draw.
        one_per_document: Draw at most one paragraph or sentence of a document.
        on_error: `raise` at the first broken line, or `skip` what it breaks (the sentence,
            the document, the mention) and count it in `Corpus.summary`.
        name: What to call it in results and figures; by default the file, or the iterable's
            type.

    Raises:
        InputError: No such file, or an iterator that could be read only once.
        UnknownName: An unknown unit, format, layout or on_error.
    """
    if format is not None and format not in get_args(Format):
        raise UnknownName.of("format", format, get_args(Format))
    if layout not in LAYOUTS:
        raise UnknownName.of("layout", layout, LAYOUTS)
    made: FileSource | ItemSource
    if isinstance(source, list | tuple) and source and all(isinstance(x, Path) for x in source):
        paths = tuple(file for path in source for file in _files(path))
    elif isinstance(source, str | Path):
        paths = _files(Path(source))
    else:
        paths = ()
    if paths:
        beside = None if coreference is None else _files(Path(coreference))[0]
        made = FileSource(paths, format, layout, beside, text_key)
    elif coreference is not None:
        raise InputError("coreference=… joins a file onto a file, but the source is an iterable.")
    elif isinstance(source, Iterator):
        raise InputError(
            f"A {type(source).__name__} can be read only once, but a corpus is read several times. "
            "Pass a list, or a function that returns the iterator anew."
        )
    elif isinstance(source, Mapping | bytes) or not (
        isinstance(source, Iterable) or callable(source)
    ):
        raise InputError(
            f"Cannot read a corpus from {type(source).__name__}: expected a path or an iterable of "
            "texts or dicts. For a single one pass a list."
        )
    else:
        made = ItemSource(source, text_key)
    return Corpus(
        made,
        unit=unit,
        sample=sample,
        seed=seed,
        one_per_document=one_per_document,
        on_error=on_error,
        label=name,
    )


@dataclass(frozen=True)
class FileSource:
    """Documents of files."""

    paths: tuple[Path, ...]
    format: Format | None
    layout: Layout
    coreference: Path | None
    text_key: str

    @property
    def name(self) -> str:
        """The file, or the first and how many more."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """The documents of one file after the other."""
        joined = self.coreference is not None
        documents = self._all("document" if joined else unit, report)
        if self.coreference is not None:
            others = self._file(self.coreference, None, "document", report)
            joint = join_coreference(documents, others, str(self.coreference), report)
            documents = (part for document in joint for part in document.split(unit))
        yield from documents

    def _all(self, unit: Unit, report: Report) -> Iterator[Document]:
        for path in self.paths:
            is_empty, before = True, report.counts.total()
            for document in self._file(path, self.format, unit, report):
                is_empty = False
                yield document
            if is_empty and report.counts.total() == before:
                report.leave_out(
                    "files",
                    FileFormatError(f"{path} has no documents: it is empty. Expected text."),
                )

    def _file(
        self, path: Path, kind: Format | None, unit: Unit, report: Report
    ) -> Iterator[Document]:
        name, lines = str(path), read_lines(path)
        kind = kind or detect(path)
        if kind == "conllu":
            return assemble(conllu_sentences(lines, name, report), name, unit, report)
        if kind == "conll2012":
            return assemble(conll2012_sentences(lines, name, report), name, unit, report)
        return (
            part
            for document in self._whole(kind, lines, name, report)
            for part in document.split(unit)
        )

    def _whole(self, kind: Format, lines: Lines, name: str, report: Report) -> Iterator[Document]:
        if kind == "ontogum":
            return ontogum_documents(lines, name, report)
        if kind == "jsonl":
            return json_documents(lines, name, report, self.text_key)
        return plain_documents(lines, name, report, self.layout)


@dataclass(frozen=True)
class ItemSource:
    """Documents of an iterable, or of what a function returns."""

    items: Iterable[Any] | Callable[[], Iterable[Any]]
    text_key: str

    @property
    def name(self) -> str:
        """The type of the iterable."""
        return type(self.items).__name__

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """The documents from the first item on."""
        items = self.items() if callable(self.items) else self.items
        for document in item_documents(items, self.name, report, self.text_key):
            yield from document.split(unit)


def detect(path: Path) -> Format:
    """The format of a file, by its suffix and, for column formats, its first lines."""
    name = path.name.lower().removesuffix(".gz")
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    start = [t for _, t in islice(read_lines(path), 100) if isinstance(t, str) and t.strip()]
    rows = [text for text in start if not text.startswith("#")]
    widths = {len(row.split("\t")) for row in rows[:20]}
    if any(text.lstrip("# ").startswith("begin document") for text in start):
        return "ontogum" if widths == {3} else "conll2012"
    if widths == {10}:
        return "conllu"
    if rows and all(row.lstrip().startswith("{") for row in rows[:20]):
        return "jsonl"
    if name.endswith(_COLUMN_SUFFIXES):
        found = rows[0][:60] if rows else "nothing"
        raise FileFormatError(
            f"{path} has columns, but of no known format; it begins with {found!r}. Expected "
            "CoNLL-U (ten columns), CoNLL-2012 ('#begin document (…)') or OntoGUM (three "
            "columns, '# begin document …'). Name it with format=… if it is one of them."
        )
    return "plain"


def _files(path: Path) -> tuple[Path, ...]:
    try:
        path = path.expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError):  # longer than names can be (a text), or nobody's home
        is_folder = is_file = False
    if is_folder:
        known = (*_SUFFIXES, *_COLUMN_SUFFIXES)
        files = tuple(
            file
            for file in sorted(path.iterdir())
            if file.is_file() and file.name.lower().removesuffix(".gz").endswith(known)
        )
        if not files:
            raise InputError(f"The folder {path} has no files ending in {', '.join(known)}.")
        return files
    if not is_file:
        raise InputError(
            f"No file or folder {str(path)[:200]!r}. A text itself is read from a file, or in "
            "Python from a list: [text]."
        )
    return (path,)
