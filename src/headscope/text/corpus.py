"""A corpus: documents that can be read again and again, never all at once.

It knows where its documents come from (`Source`), what is to be one document (a whole
document, a paragraph, a sentence) and which of them were drawn. Iterating reads them anew.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Protocol, get_args

from headscope.arguments import whole_number
from headscope.atomic import atomic_path
from headscope.errors import HeadscopeWarning, InputError, UnknownName
from headscope.text.document import Document, Unit
from headscope.text.readers.lines import OnError, Report

__all__ = ["Corpus", "Source", "Summary"]


class Source(Protocol):
    """Where documents come from. Must pickle, for workers read for themselves."""

    @property
    def name(self) -> str:
        """What to call it in messages and provenance."""
        ...

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """The documents from the start; what is broken goes to the report."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What one pass over a corpus found."""

    documents: int
    sentences: int
    words: int
    mentions: int
    clusters: int
    """Sum over documents."""
    drawn_from: int
    """Documents before sampling."""
    hash: str
    """SHA-256 over the documents in order: the same for the same content, wherever and in
    whatever file it lies."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What was broken and left out, by kind."""
    messages: tuple[str, ...] = ()
    """The first reasons."""


@dataclass(frozen=True)
class Corpus:
    """Documents of one source, read anew at every iteration.

    Made by `headscope.read`. Frozen and picklable; `by` and `draw` give changed copies.
    """

    source: Source
    unit: Unit = "document"
    sample: int | None = None
    """How many documents to draw; None for all."""
    seed: int = 0
    one_per_document: bool = False
    """Draw at most one sentence or paragraph of each document, as Vig & Belinkov did."""
    on_error: OnError = "raise"
    label: str | None = None
    """What to call it; by default after its source."""
    _cache: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise UnknownName.of("unit", self.unit, get_args(Unit))
        if self.sample is not None:
            whole_number("sample", self.sample)
        Report(self.on_error)

    @property
    def name(self) -> str:
        """What the corpus is called in messages and provenance."""
        return self.label or self.source.name

    def __iter__(self) -> Iterator[Document]:
        return self.read(Report(self.on_error))

    def read(self, report: Report) -> Iterator[Document]:
        """The documents; what is left out is counted in `report` as it happens."""
        chosen = self._chosen()
        for number, document in enumerate(self.source.documents(self.unit, report)):
            if chosen is None or number in chosen:
                yield document

    def by(self, unit: Unit) -> Corpus:
        """The same corpus with another unit as its document."""
        return self if unit == self.unit else replace(self, unit=unit)

    def draw(self, sample: int, seed: int = 0, *, one_per_document: bool = False) -> Corpus:
        """A corpus of `sample` of its documents, drawn at random and kept in order."""
        if self.sample is not None:
            raise InputError(
                f"This corpus is already a sample of {self.sample}. Draw from the whole one."
            )
        return replace(self, sample=sample, seed=seed, one_per_document=one_per_document)

    def summary(self) -> Summary:
        """Counts, content hash and what was left out: one pass, remembered."""
        found = self._cache.get("summary")
        if not isinstance(found, Summary):
            found = self._summarize()
            self._cache["summary"] = found
        return found

    def save(self, path: str | Path) -> None:
        """Writes the documents as JSON lines, which `headscope.read` reads again.

        Gzipped where the name ends in `.gz`. The file appears when it is complete.
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
        """The content hash of `summary`."""
        return self.summary().hash

    def _summarize(self) -> Summary:
        report = Report(self.on_error)
        content = hashlib.sha256()
        documents = sentences = words = mentions = clusters = 0
        for document in self.read(report):
            content.update(document.digest().encode())
            documents += 1
            sentences += len(document.sentences)
            words += len(document)
            mentions += len(document.mentions)
            clusters += len(document.clusters())
        total = self._cache.get("total")
        return Summary(
            documents=documents,
            sentences=sentences,
            words=words,
            mentions=mentions,
            clusters=clusters,
            drawn_from=total if isinstance(total, int) else documents,
            hash=content.hexdigest(),
            skipped=dict(report.counts),
            messages=tuple(report.messages),
        )

    def _chosen(self) -> frozenset[int] | None:
        """Numbers of the documents drawn: those with the smallest hash of seed and number.

        A hash, because libraries change their random generators and a plan must not; and
        because the smallest n can be kept while reading.
        """
        if self.sample is None:
            return None
        found = self._cache.get("chosen")
        if not isinstance(found, frozenset):
            numbered = enumerate(self.source.documents(self.unit, Report(self.on_error)))
            total = 0

            def keys() -> Iterator[tuple[bytes, int]]:
                nonlocal total
                for parent, group in groupby(numbered, lambda pair: pair[1].part_of or pair[1].id):
                    drawn = []
                    for number, _ in group:
                        total += 1
                        drawn.append((self._key(f"document {number}"), number))
                    if self.one_per_document:
                        # The key of the parent, else long documents would be drawn more often.
                        yield self._key(f"parent {parent} {min(drawn)[1]}"), min(drawn)[1]
                    else:
                        yield from drawn

            found = frozenset(number for _, number in heapq.nsmallest(self.sample, keys()))
            self._cache.update(chosen=found, total=total)
            if len(found) < self.sample:
                warnings.warn(
                    f"sample={self.sample}, but {self.name} has only {len(found)} to draw: "
                    "all of them are taken.",
                    HeadscopeWarning,
                    stacklevel=3,
                )
        return found

    def _key(self, what: str) -> bytes:
        return hashlib.blake2b(f"{self.seed} {what}".encode(), digest_size=8).digest()
