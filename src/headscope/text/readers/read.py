"""`headscope.read`: corpora from files, folders or iterables, by registered readers.

A corpus keeps the readers that were registered when it was created, so that workers read the same.
The demo corpus has eleven short texts, annotated by hand (UD v2, Penn tags, coreference): too small
for conclusions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import TypeGuard, TypeVar, get_args

from headscope.arguments import expect, whole_number
from headscope.errors import FileFormatError, HeadscopeError, InputError, UnknownName, warn
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Unit
from headscope.text.readers.conll2012 import Conll2012Reader
from headscope.text.readers.conllu import ConlluReader
from headscope.text.readers.ontogum import OntoGumReader, join_coreference
from headscope.text.readers.plain import PlainReader
from headscope.text.readers.reader import (
    NO_MARKS,
    Layout,
    Lines,
    OnError,
    Reader,
    ReadLog,
    ReadOptions,
    read_lines,
)
from headscope.text.readers.records import JsonLinesReader, item_documents

# Readers in the order of `detect`.
BUILT_IN: tuple[type[Reader], ...] = (
    OntoGumReader,
    Conll2012Reader,
    ConlluReader,
    JsonLinesReader,
    PlainReader,
)
FALLBACK: type[Reader] = PlainReader
"""Reader of files that no suffix and no reader matches."""

REGISTERED: dict[str, type[Reader]] = {}

_LOOKED_AT = 100

R = TypeVar("R", bound=type[Reader])


def register_reader(reader: R) -> R:
    """Register a reader for `headscope.read`: by suffix, in folders, by content, and by
    `format="name"`.

    Usable as a decorator of the class. Registering a class again, as when a notebook cell runs
    twice, replaces it.

    Raises:
        InputError: It is not a reader, is incomplete, or its name or suffix is taken.
    """
    if not (isinstance(reader, type) and issubclass(reader, Reader)):
        raise InputError(f"Expected a class derived from headscope.Reader, not {reader!r}.")
    missing = [] if isinstance(getattr(reader, "name", None), str) else ["name"]
    if missing := [*missing, *sorted(reader.__abstractmethods__)]:
        raise InputError(f"{reader.__name__} lacks {', '.join(missing)}: see headscope.Reader.")
    if not reader.name:
        raise InputError(f"{reader.__name__} has an empty name. Name the format it reads.")
    _check_suffixes(reader)
    names = (reader.__module__, reader.__qualname__)
    for other in known_readers():
        is_again = REGISTERED.get(reader.name) is other  # a redefinition
        if reader is other or (is_again and (other.__module__, other.__qualname__) == names):
            continue
        if other.name == reader.name:
            raise InputError(
                f"{reader.__name__} is named {reader.name!r}, and so is {other.__name__} of "
                f"{other.__module__}. Choose another name."
            )
        shared = sorted(set(reader.suffixes) & set(other.suffixes))
        blind = next((x for x in (reader, other) if x.detect is Reader.detect), None)
        if shared and blind is not None:
            raise InputError(
                f"{reader.__name__} reads files ending in {shared[0]!r}, and so does "
                f"{other.__name__} ({other.name!r}). {blind.__name__} has no `detect` to "
                "recognize its files. Choose another suffix, or none: "
                f"format={reader.name!r} always works."
            )
    REGISTERED[reader.name] = reader
    return reader


def known_readers() -> tuple[type[Reader], ...]:
    """Return all readers in the order of detection: the latest registered first."""
    return (*reversed(REGISTERED.values()), *BUILT_IN)


def known_suffixes(readers: Sequence[type[Reader]]) -> tuple[str, ...]:
    """Return the suffixes of all readers."""
    return tuple(sorted({suffix for reader in readers for suffix in reader.suffixes}))


def reader_named(name: str) -> type[Reader]:
    """Return the reader of a format; raise UnknownName if no reader has this name."""
    by_name = {reader.name: reader for reader in known_readers()}
    if not isinstance(name, str) or name not in by_name:
        raise UnknownName.of("format", name, tuple(by_name))
    return by_name[name]


def reader_for(path: Path, readers: Sequence[type[Reader]]) -> type[Reader]:
    """Return the reader of a file, by its suffix or its first lines.

    The longest matching suffix decides. If none or several readers have it, `detect` is called in
    order. Other files are plain text. If readers have the suffix, but do not detect the content,
    FileFormatError is raised.
    """
    file_name = path.name.lower().removesuffix(".gz")
    suffixes = [suffix for suffix in known_suffixes(readers) if file_name.endswith(suffix)]
    suffix = max(suffixes, key=len, default="")
    claiming = [reader for reader in readers if suffix and suffix in reader.suffixes]
    if len(claiming) == 1:
        return claiming[0]
    texts = (text for _, text in islice(read_lines(path), _LOOKED_AT))
    start = [text for text in texts if isinstance(text, str) and text.strip()]
    for reader in (*claiming, *(other for other in readers if other not in claiming)):
        if reader().detect(start):
            return reader
    if not claiming:
        return FALLBACK
    rows = [text for text in start if not text.startswith("#")]
    begins = repr(rows[0][:60]) if rows else "nothing"
    expected = "; ".join(f"{reader.name}: {reader.expects}" for reader in readers if reader.expects)
    raise FileFormatError(
        f"{path} ends in {suffix!r}, but its format is unknown: it begins with {begins}. Expected "
        f"one of these ({expected}). If it is one of them, pass format=…."
    )


def _check_suffixes(reader: type[Reader]) -> None:
    suffixes: object = reader.suffixes
    if not isinstance(suffixes, tuple):
        expected = "expected a tuple of strings, such as ('.tsv',)."
        raise InputError(f"{reader.__name__}.suffixes is {suffixes!r}: {expected}")
    for suffix in suffixes:
        problem = ""
        if not isinstance(suffix, str) or not suffix or suffix != suffix.lower():
            problem = "expected the end of a file's name in lower case, such as '.tsv'."
        elif suffix.endswith(".gz"):
            problem = "leave '.gz' out: compressed files are read as if they were not."
        if problem:
            raise InputError(f"{reader.__name__} has the suffix {suffix!r}: {problem}")


FILE_UNIT: Unit = "sentence"
"""Default unit of files, as in Vig & Belinkov."""
LONGEST_NAME = 4096
"""Maximum length of a string that may be a file name."""

DocumentRule = int | str | Callable[[Document], str]
"""Rule for the documents that sentences and paragraphs belong to: see `read`."""
EACH = "each"
"""Rule that takes every unit as independent."""
BLOCKS: Mapping[Unit, int] = {"sentence": 20, "paragraph": 5}
"""Units of a block, in files that mark no documents. `studies/blocks.py` measures block sizes."""

Readable = str | Path | Document | Iterable[object] | Callable[[], Iterable[object]]

_SMALL_FILES = 4 << 20
"""Maximum bytes of files that are read through to count documents."""


def read(
    source: Readable,
    *,
    unit: Unit | None = None,
    format: str | None = None,  # noqa: A002, the usual name
    layout: Layout = "auto",
    coreference: str | Path | None = None,
    text_key: str = "text",
    documents: DocumentRule | None = None,
    sample: int | None = None,
    seed: int = 0,
    one_per_document: bool = False,
    on_error: OnError = "raise",
    name: str | None = None,
) -> Corpus:
    """Return a corpus to measure attention on. Nothing is read before it is iterated.

    Args:
        source: A file, plain or gzipped: CoNLL-U, CoNLL-2012, OntoGUM, JSON lines, plain
            text, or a registered format (`headscope.register_reader`), detected by suffix and
            content. A folder: all such files in it, by name. Or a `Document`, or an iterable of
            strings, of dicts (see `text_key`), of `Document`s, of `Path`s; or a function that
            returns such an iterable.
        unit: Unit of one document: a `sentence`, a `paragraph`, or a whole `document`. By
            default files are cut into sentences, while strings, dicts and `Document`s are not
            cut.
        format: Format of the files, if suffix and content do not decide.
        layout: Unit of a document in plain text: a `line`, a `paragraph` (blank lines between)
            or the `file`. By default paragraphs if there are any, else lines.
        coreference: Second file with the same documents (OntoGUM's for GUM's trees) and their
            mentions.
        text_key: Name of the text in dicts and JSON lines.
        documents: Which sentences or paragraphs belong to one document. Intervals take documents
            as independent, not their parts. A number joins blocks of that many units; a name joins
            units with equal values in `Document.meta`, or in a comment of CoNLL-U; a function
            returns the name of a unit's document; `"each"` takes every unit as independent.
            Default: as marked in the file. In a file without marks, blocks of 20 sentences or 5
            paragraphs; results say so.
        sample: Number of documents to draw at random.
        seed: Seed of the sample.
        one_per_document: Draw at most one paragraph or sentence of a document.
        on_error: `raise` at the first broken line, or `skip` the sentence, document or mention
            and count it in `Corpus.summary`. If a reader fails, the rest of the file is skipped.
        name: Name in results and figures; by default the file, or the iterable's type.

    Raises:
        InputError: The file does not exist, or an iterator can be read only once.
        UnknownName: An unknown unit, format, layout or on_error.
    """
    chosen = None if format is None else reader_named(format)
    expect("name", name, str | None, "a text, or None")
    UnknownName.check("layout", layout, get_args(Layout))
    expect("documents", documents, int | str | Callable | None, "a number, name or function")
    if isinstance(documents, int):
        whole_number("documents", documents)
    corpus_source: FileSource | ItemSource
    if _is_of_files(source):
        paths = source if isinstance(source, list | tuple) else [source]
        files = tuple(file for path in paths for file in _files(path))
        coreference_file = None if coreference is None else _files(Path(coreference))[0]
        corpus_source = FileSource(
            files, chosen, known_readers(), layout, coreference_file, text_key, documents
        )
        unit = FILE_UNIT if unit is None else unit
    elif coreference is not None:
        raise InputError("coreference=… joins a file onto a file, but the source is an iterable.")
    elif isinstance(source, Iterator):
        raise InputError(
            f"A {type(source).__name__} can be read only once, but a corpus is read several times. "
            "Pass a list, or a function that returns a new iterator."
        )
    elif isinstance(source, Document):
        corpus_source = ItemSource((source,), text_key, documents)
    elif _are_names_of_files(source):
        raise InputError(
            f"{source[0]!r} is the name of a file, but texts are expected in a list of strings. "
            "For several files pass paths: [pathlib.Path(name) for name in names]."
        )
    elif isinstance(source, Mapping | bytes) or not (
        isinstance(source, Iterable) or callable(source)
    ):
        raise InputError(
            f"Cannot read a corpus from {type(source).__name__}: expected a path or an iterable of "
            "texts or dicts. For a single one pass a list."
        )
    else:
        corpus_source = ItemSource(source, text_key, documents)
    return Corpus(
        corpus_source,
        unit=unit,
        sample_size=sample,
        seed=seed,
        one_per_document=one_per_document,
        on_error=on_error,
        label=name,
    )


def as_corpus(corpus: Corpus | Readable, files_by: Unit = FILE_UNIT) -> Corpus:
    """Return a corpus, or `read` its argument: files are cut by `files_by`, all else is not."""
    if isinstance(corpus, Corpus):
        return corpus
    return read(corpus, unit=files_by if _is_of_files(corpus) else None)


@dataclass(frozen=True)
class FileSource:
    """Documents of files."""

    paths: tuple[Path, ...]
    chosen: type[Reader] | None
    """Reader that the user named; None to detect it for each file."""
    readers: tuple[type[Reader], ...]
    """Readers registered when the corpus was created."""
    layout: Layout
    coreference: Path | None
    text_key: str
    by: DocumentRule | None = None
    """Rule for documents; None for those that the files mark."""

    @property
    def name(self) -> str:
        """Name of the first file, and the number of others."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"

    @property
    def is_small(self) -> bool:
        """True if the files are plain and a few megabytes in all."""
        paths = self.paths if self.coreference is None else (*self.paths, self.coreference)
        is_plain = all(path.suffix.lower() != ".gz" for path in paths)
        return is_plain and sum(path.stat().st_size for path in paths) <= _SMALL_FILES

    def documents(self, unit: Unit, report: ReadLog) -> Iterator[Document]:
        """Yield the documents of one file after the other."""
        if self.coreference is None:
            for path in self.paths:
                yield from _grouped(self._of_path(path, unit, report), self.by, unit, report)
            return
        whole = chain.from_iterable(self._of_path(path, "document", report) for path in self.paths)
        coreferences = self._of_file(self.coreference, None, "document", report)
        joined = join_coreference(whole, coreferences, str(self.coreference), report)
        yield from _grouped(_split(joined, unit), self.by, unit, report)

    def _of_path(self, path: Path, unit: Unit, report: ReadLog) -> Iterator[Document]:
        is_empty, before = True, report.counts.total()
        for document in self._of_file(path, self.chosen, unit, report):
            is_empty = False
            yield document
        if is_empty and report.counts.total() == before:
            problem = f"{path} has no documents: it is empty. Expected text."
            report.leave_out("files", FileFormatError(problem))

    def _of_file(
        self, path: Path, chosen: type[Reader] | None, unit: Unit, report: ReadLog
    ) -> Iterator[Document]:
        reader = (chosen or reader_for(path, self.readers))()
        key = self.by if isinstance(self.by, str) and self.by != EACH else None
        options = ReadOptions(unit, self.layout, self.text_key, key)
        documents = _guarded(reader, path, options, report)
        pieces = documents if reader.cuts else _split(documents, unit)
        is_plain = isinstance(reader, PlainReader) and self.layout != "file"
        if self.by is not None or not (reader.cuts or is_plain):
            return pieces
        if unit != "document" and (reader.cuts or self.layout == "auto"):
            said = f"blocks of {BLOCKS[unit]} {unit}s are taken as independent"
            said += ": the file marks no documents"
            return _blocks(pieces, BLOCKS[unit], said, report, keep_marked=reader.cuts)
        if is_plain:
            said = f"{self.layout}s are taken as independent (layout={self.layout!r})"
            report.independence[NO_MARKS if self.layout == "auto" else said] = None
        return pieces


def _split(documents: Iterable[Document], unit: Unit) -> Iterator[Document]:
    return (piece for document in documents for piece in document.split(unit))


def _grouped(
    pieces: Iterator[Document], by: DocumentRule | None, unit: Unit, report: ReadLog
) -> Iterator[Document]:
    """Yield the units of one file as parts of the documents that the rule gives."""
    if by is None:
        yield from pieces
    elif isinstance(by, int):
        said = f"blocks of {by} {unit}s are taken as independent (documents={by})"
        yield from _blocks(pieces, by, said, report)
    elif by == EACH:
        report.independence[f"{unit}s are taken as independent (documents={EACH!r})"] = None
        yield from (piece.within(None) for piece in pieces)
    else:
        rule = f"the rule {getattr(by, '__name__', 'given')!r}" if callable(by) else repr(by)
        report.independence[f"{unit}s with the same value of {rule} are one document"] = None
        for piece in pieces:
            name = _named_by(by, piece) if callable(by) else piece.meta.get(by)
            if not isinstance(name, str):
                known = ", ".join(piece.meta) or "none"
                raise InputError(
                    f"documents: {rule} is {name!r} for {piece.id!r}, not a text. Its metadata: "
                    f"{known}."
                )
            yield piece.within(name)


def _named_by(rule: Callable[[Document], str], piece: Document) -> str:
    try:
        return rule(piece)
    except Exception as error:
        raise InputError(
            f"documents: the function failed for {piece.id!r} ({type(error).__name__}: {error}). "
            "It gets a headscope.Document and returns the name of the document it belongs to."
        ) from error


def _blocks(
    pieces: Iterator[Document], size: int, said: str, report: ReadLog, *, keep_marked: bool = False
) -> Iterator[Document]:
    """Yield units as parts of blocks of consecutive ones, except units of marked documents."""
    name, n = "", 0
    for piece in pieces:
        if keep_marked and piece.part_of is not None:
            yield piece
            continue
        report.independence[said] = None
        name = name if n % size else f"block of {piece.id}"
        n += 1
        yield piece.within(name)


@dataclass(frozen=True)
class ItemSource:
    """Documents of an iterable, or of a function that returns one."""

    items: Iterable[object] | Callable[[], Iterable[object]]
    text_key: str
    by: DocumentRule | None = None

    @property
    def name(self) -> str:
        """Type of the iterable."""
        return type(self.items).__name__

    @property
    def is_small(self) -> bool:
        """True if the items are in memory."""
        return isinstance(self.items, list | tuple)

    def documents(self, unit: Unit, report: ReadLog) -> Iterator[Document]:
        """Yield the documents from the first item on."""
        items = self.items() if callable(self.items) else self.items
        documents = item_documents(items, self.name, report, self.text_key)
        yield from _grouped(_split(documents, unit), self.by, unit, report)


def _guarded(
    reader: Reader, path: Path, options: ReadOptions, report: ReadLog
) -> Iterator[Document]:
    """Yield the documents of a reader up to its first error, which names the file and line."""
    line, is_readable = 0, True

    def counted() -> Lines:
        nonlocal line, is_readable
        try:
            for number, text in read_lines(path):
                line = number
                yield number, text
        except FileFormatError:
            is_readable = False
            raise

    try:
        for document in reader.documents(counted(), str(path), options, report):
            if not isinstance(document, Document):
                raise InputError(
                    f"the reader returned {type(document).__name__}, not headscope.Document"
                )
            yield document
    except Exception as error:
        if isinstance(error, OSError) or not is_readable:
            raise
        located = _located(error, reader, path, line)
        if report.on_error == "raise":
            raise located from (None if located is error else error)
        report.leave_out("files", located)
        warn(f"{located} The rest of the file is left out.")


def _located(error: Exception, reader: Reader, path: Path, line: int) -> FileFormatError:
    """Return the error with its file and line; unchanged if it names them."""
    if isinstance(error, FileFormatError) and str(path) in str(error):
        return error
    problem = str(error) if isinstance(error, HeadscopeError) else repr(error)
    place, where = ("line", f"{path}, line {line}") if line else ("file", str(path))
    return FileFormatError(
        f"{where}: the reader {reader.name!r} failed: {problem.rstrip('.')}. Repair the {place}, "
        'or read with on_error="skip" to leave out the rest of the file.'
    )


def _is_of_files(source: object) -> TypeGuard[str | Path | list[Path] | tuple[Path, ...]]:
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(item, Path) for item in source)
    return isinstance(source, str | Path)


def _are_names_of_files(source: object) -> TypeGuard[list[str] | tuple[str, ...]]:
    if not isinstance(source, list | tuple) or not source:
        return False
    names = [item for item in source if isinstance(item, str) and 0 < len(item) < LONGEST_NAME]
    try:
        return len(names) == len(source) and all(Path(name).is_file() for name in names)
    except (OSError, ValueError):  # not a valid file name
        return False


def _files(path: str | Path) -> tuple[Path, ...]:
    if path == "":  # which would be the current folder
        raise InputError("The name of the file is empty. Give a file, a folder, or [text].")
    path = Path(path)
    try:
        path = path.expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError):  # too long for a name, or an unknown home folder
        is_folder = is_file = False
    if is_folder:
        suffixes = known_suffixes(known_readers())
        files = tuple(
            file
            for file in sorted(path.iterdir())
            if file.is_file() and file.name.lower().removesuffix(".gz").endswith(suffixes)
        )
        if not files:
            raise InputError(f"The folder {path} has no files ending in {', '.join(suffixes)}.")
        return files
    if not is_file:
        raise InputError(
            f"No file or folder {str(path)[:200]!r}. To measure a text itself, put it in a file or "
            "(in Python) in a list."
        )
    return (path,)


def demo_corpus(unit: Unit = FILE_UNIT) -> Corpus:
    """Return the bundled corpus, by default cut into sentences.

    >>> len(demo_corpus()), len(demo_corpus("document"))
    (88, 11)
    """
    return read(Path(str(resources.files("headscope.text") / "demo.conllu")), unit=unit)
