"""Corpora: documents that are read from their source at every iteration.

A corpus stores its `Source`, its unit (sentence, paragraph, document) and its sample.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from numbers import Integral
from pathlib import Path
from typing import Protocol, get_args, overload

from headscope.arguments import expect, whole_number
from headscope.atomic import atomic_path
from headscope.errors import InputError, UnknownName, warn
from headscope.notebook import facts_table
from headscope.text.document import Document, Unit
from headscope.text.readers.reader import OnError, ReadLog

MAX_BYTES = 1 << 30
"""Maximum size of the temporary file of a `Spool`."""


class Spool:
    """Documents of an iterable in a temporary file, which reads ten times faster than parsing. The
    file belongs to this process and object. Raises OSError if they do not fit.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="headscope-")  # noqa: SIM115 - kept open
        self._n = 0
        for document in documents:
            pickle.dump(document, self._file, protocol=pickle.HIGHEST_PROTOCOL)
            self._n += 1
            if self._file.tell() > MAX_BYTES:
                raise OSError(f"more than {MAX_BYTES} bytes after {self._n} documents")
        self._file.flush()

    def __iter__(self) -> Iterator[Document]:
        with Path(self._file.name).open("rb") as file:
            for _ in range(self._n):
                yield pickle.load(file)


AS_GIVEN = "document as given"
"""Unit name of a corpus whose documents were not cut."""
MAX_HELD = 10_000
"""Maximum number of sampled documents that a run holds in memory."""


class Source(Protocol):
    """Origin of documents. It must pickle, because workers read documents themselves."""

    @property
    def name(self) -> str:
        """Name in messages and provenance."""
        ...

    def documents(self, unit: Unit, report: ReadLog) -> Iterator[Document]:
        """Yield the documents from the start; broken ones go to the report."""
        ...


@dataclass(frozen=True)
class DerivedSource:
    """Source of documents that a function makes of another corpus; the function must pickle."""

    name: str
    documents: Callable[[Unit, ReadLog], Iterator[Document]] = field(repr=False, compare=False)


def _is_small(source: Source) -> bool:
    return bool(getattr(source, "is_small", False))


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of one pass over a corpus."""

    documents: int
    sentences: int
    words: int
    mentions: int
    clusters: int
    """Number of clusters, summed over documents."""
    drawn_from: int
    """Number of documents before sampling."""
    hash: str
    """SHA-256 over the documents in order, independent of files and formats."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of broken items that were left out, by kind."""
    messages: tuple[str, ...] = ()


@dataclass(slots=True)
class _Known:
    summary: Summary | None = None
    length: int | None = None
    chosen: frozenset[int] | None = None
    """Numbers of the sampled documents."""
    drawn_from: int | None = None
    """Number of documents before sampling."""
    documents: tuple[Document, ...] | None = None
    """Documents for `corpus[i]`."""
    held: tuple[Iterable[Document], ReadLog] | None = None
    """Documents for a run, and the log of reading them: see `hold_documents`."""


@dataclass(frozen=True)
class Corpus:
    """Documents of one source, read again at every iteration.

    Made by `headscope.read`. Frozen and picklable; `by` and `sample` return changed copies. A small
    corpus, in memory or in plain files of a few megabytes, has a length and an index: `corpus[0]`.
    """

    source: Source
    unit: Unit | None = None
    """Unit of the documents; None if they were not cut."""
    sample_size: int | None = None
    """Number of documents to draw; None for all."""
    seed: int = 0
    one_per_document: bool = False
    """Draw at most one sentence or paragraph of each document, as Vig & Belinkov did."""
    on_error: OnError = "raise"
    label: str | None = None
    """Name of the corpus; by default its source's."""
    given_as: str = AS_GIVEN
    """Description of one document, if documents are not cut."""
    _known: _Known = field(default_factory=_Known, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in get_args(Unit):
            raise UnknownName.of("unit", self.unit, get_args(Unit))
        if self.sample_size is not None:
            whole_number("sample", self.sample_size)
        expect("seed", self.seed, Integral, "a whole number")
        ReadLog(self.on_error)

    @property
    def name(self) -> str:
        """Name of the corpus in messages and provenance."""
        return self.label or self.source.name

    @property
    def unit_name(self) -> str:
        """Unit in summaries and provenance: `sentence`, or `document as given` if not cut."""
        return self.given_as if self.unit is None else self.unit

    def __iter__(self) -> Iterator[Document]:
        return self.read(ReadLog(self.on_error))

    def __bool__(self) -> bool:
        return True  # otherwise `if corpus` would read the corpus for its length

    def __len__(self) -> int:
        """Return the number of documents; raise TypeError if the corpus is too large to count."""
        if self._known.summary is not None:
            return self._known.summary.documents
        if self._known.length is None:
            self._check_small("has no len()")
            self._known.length = sum(1 for _ in self)
        return self._known.length

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Document, ...]: ...
    def __getitem__(self, index: int | slice) -> Document | tuple[Document, ...]:
        """Return a document by its number, or several by a slice. All documents stay in memory.

        Raises:
            TypeError: The corpus is too large for that.
        """
        if self._known.documents is None:
            self._check_small("cannot be indexed")
            # tuple(self) would first read the corpus for its length.
            self._known.documents = tuple(self.read(ReadLog(self.on_error)))
        return self._known.documents[index]

    def __getstate__(self) -> dict[str, object]:
        """Return the state without documents in memory; a worker reads them again."""
        return {**self.__dict__, "_known": replace(self._known, documents=None, held=None)}

    def __repr__(self) -> str:
        drawn = "" if self.sample_size is None else f", {self.sample_size} drawn (seed {self.seed})"
        return f"<Corpus {self.name}: by {self.unit_name}{drawn}>"

    def _repr_html_(self) -> str:
        summary, size = self._known.summary, self.sample_size
        facts: list[tuple[str, object]] = [("one document is a", self.unit_name)]
        facts += [("sample", size), ("seed", None if size is None else self.seed)]
        if summary is None:
            facts.append(("counts", "corpus.summary() reads it once and counts"))
        else:
            names = ("documents", "sentences", "words", "mentions")
            facts += [(name, getattr(summary, name)) for name in names]
            skipped = [f"{n} {k[:-1] if n == 1 else k}" for k, n in summary.skipped.items()]
            facts.append(("left out", ", ".join(skipped)))
        return facts_table(f"Corpus {self.name}", facts)

    def read(self, report: ReadLog) -> Iterator[Document]:
        """Yield the documents; errors are counted in `report`."""
        if self._known.held is not None:
            documents, log = self._known.held
            report.counts.update(log.counts)
            report.messages.extend(log.messages)
            report.independence.update(log.independence)
            yield from documents
            return
        if self.sample_size is not None and self._known.chosen is None:
            self._draw(ReadLog(self.on_error), keeps=False)
        chosen = self._known.chosen
        for number, document in enumerate(self._of_source(report)):
            if chosen is None or number in chosen:
                yield document

    def by(self, unit: Unit) -> Corpus:
        """Return the same corpus with another unit."""
        return self if unit == self.unit else replace(self, unit=unit)

    def sample(self, size: int, seed: int = 0, *, one_per_document: bool = False) -> Corpus:
        """Return a corpus of `size` documents, drawn at random and kept in order."""
        if self.sample_size is not None:
            raise InputError(
                f"This corpus is already a sample of {self.sample_size}. Draw from the whole one."
            )
        return replace(self, sample_size=size, seed=seed, one_per_document=one_per_document)

    def summary(self) -> Summary:
        """Return counts, content hash and errors of one pass, which is cached."""
        if self._known.summary is None:
            self._known.summary = self._summarize()
        return self._known.summary

    def save(self, path: str | Path) -> None:
        """Write the documents as JSON lines, which `headscope.read` reads.

        Files are read by sentence by default: pass `unit="document"` to get the saved documents.
        Gzipped if the name ends in `.gz`. The file appears when it is complete.
        """
        opener = gzip.open if Path(path).suffix == ".gz" else open
        with (
            atomic_path(path) as temporary,
            opener(temporary, "wt", encoding="utf-8", newline="\n") as file,
        ):
            for document in self:
                file.write(json.dumps(document.to_dict(), ensure_ascii=False) + "\n")

    @property
    def hash(self) -> str:
        """Content hash of `summary`."""
        return self.summary().hash

    def _of_source(self, report: ReadLog) -> Iterator[Document]:
        return self.source.documents(self.unit or "document", report)

    def _check_small(self, problem: str) -> None:
        if not _is_small(self.source):
            raise TypeError(
                f"{self.name} {problem}: it may be large and is read at each use. Iterate over it, "
                "or count with corpus.summary().documents, which reads it once."
            )

    def _summarize(self) -> Summary:
        report, content = ReadLog(self.on_error), hashlib.sha256()
        counts = dict.fromkeys(("documents", "sentences", "words", "mentions", "clusters"), 0)
        for document in self.read(report):
            content.update(document.digest().encode())
            counted = (document.sentences, document.words, document.mentions, document.clusters())
            for name, n in zip(counts, (1, *map(len, counted)), strict=True):
                counts[name] += n
        drawn_from = self._known.drawn_from
        return Summary(
            **counts,
            drawn_from=counts["documents"] if drawn_from is None else drawn_from,
            hash=content.hexdigest(),
            skipped=dict(report.counts),
            messages=tuple(report.messages),
        )

    def _draw(self, report: ReadLog, *, keeps: bool) -> dict[int, Document | None]:
        """Return the sampled documents by number, or None for each if they are not kept.

        Sampled are those with the smallest hash of seed and number. A hash does not change with
        versions of random generators, and allows sampling in one pass.
        """
        assert self.sample_size is not None
        numbered = enumerate(self._of_source(report))
        total = 0

        def keys() -> Iterator[tuple[bytes, int, Document | None]]:
            nonlocal total
            for parent, group in groupby(numbered, lambda pair: pair[1].part_of or pair[1].id):
                drawn = []
                for number, document in group:
                    total += 1
                    key = self._key(f"document {number}")
                    drawn.append((key, number, document if keeps else None))
                if self.one_per_document:
                    # With the parent's key, long documents are not drawn more often.
                    _, number, kept = min(drawn, key=lambda entry: entry[:2])
                    yield self._key(f"parent {parent} {number}"), number, kept
                else:
                    yield from drawn

        smallest = heapq.nsmallest(self.sample_size, keys(), key=lambda entry: entry[:2])
        chosen = {number: kept for _, number, kept in sorted(smallest, key=lambda entry: entry[1])}
        self._known.chosen, self._known.drawn_from = frozenset(chosen), total
        if len(chosen) < self.sample_size:
            warn(
                f"sample={self.sample_size}, but {self.name} has only {len(chosen)} to draw: "
                "all of them are taken."
            )
        return chosen

    def _key(self, what: str) -> bytes:
        return hashlib.blake2b(f"{self.seed} {what}".encode(), digest_size=8).digest()


def hold_documents(corpus: Corpus) -> Corpus:
    """Return a copy with its documents in memory or in a temporary file, if they fit: a run reads
    them several times, and would parse the source each time.
    """
    size = corpus.sample_size
    is_few = _is_small(corpus.source) if size is None else size <= MAX_HELD
    copy = replace(corpus)
    object.__setattr__(copy, "_known", replace(corpus._known, documents=None))
    report = ReadLog(corpus.on_error)
    documents: tuple[Document, ...] | Spool
    if not is_few:
        try:
            documents = Spool(copy.read(report))
        except OSError:
            return corpus
    elif size is not None and corpus._known.chosen is None:
        drawn = copy._draw(report, keeps=True).values()
        documents = tuple(document for document in drawn if document is not None)
    else:
        documents = tuple(copy.read(report))
    copy._known.held = documents, report
    return copy
