"""The plan of a run: everything that can change its results, frozen and hashed.

One pass over the corpus finds its content hash, the tags and relations that occur, and the length
of each document. Documents are taken in windows, sorted by length and cut into shards of similar
cost, independent of the number of workers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from headscope.batch import Axes
from headscope.errors import InputError, MetricError
from headscope.metrics.core.contract import Fact, Metric
from headscope.metrics.core.labels import NO_TAG, tags_of
from headscope.metrics.core.registry import metric_to_dict
from headscope.run.options import Settings
from headscope.run.progress import Amount
from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.pairs import count_copies, sketch_of
from headscope.text.readers.reader import ReadLog

NO_GROUP = "(none)"
MAX_SHARDS = 64
"""Maximum size of a window, in shards of characters: it is kept in memory."""
SPARE, SPARE_SHARE = 10, 0.05
"""Extra documents for a metric that samples, as a number and a share: some may not be
measurable."""
STATE_FORMAT = 7
"""Format of states and checkpoints: a run with another number is not resumed."""

Numbered = tuple[int, Document]


@dataclass(frozen=True, slots=True)
class Survey:
    """Findings of one pass over a corpus."""

    name: str
    unit: str
    documents: int
    hash: str
    tags: tuple[str, ...]
    has_trees: bool
    has_mentions: bool
    relations: tuple[str, ...]
    groups: tuple[str, ...]
    lengths: array[int] = field(repr=False)
    sample_hashes: array[float] = field(repr=False)
    """Key of each document (`document_key`)."""
    left_out: dict[str, int]
    messages: tuple[str, ...]
    facts: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)
    """Counts that metrics requested, by name."""
    buckets: frozenset[tuple[str, int]] = frozenset()
    """Buckets of each group that contain documents; empty without groups."""
    independence: str = ""
    """What is taken as independent; empty if the documents are."""

    @property
    def available(self) -> frozenset[str]:
        """Names of the annotations in the corpus."""
        found = self.tags, self.has_trees, self.relations, self.has_mentions
        return frozenset(itertools.compress(("tags", "parents", "relations", "mentions"), found))


@dataclass(frozen=True, slots=True)
class Shard:
    """Documents that are measured together and checkpointed together."""

    id: int
    documents: tuple[Numbered, ...]

    def amount(self, tokens: int) -> Amount:
        """Return the amount of work, given the number of tokens."""
        characters = sum(len(document.text) for _, document in self.documents)
        return Amount(len(self.documents), tokens, characters)


@dataclass(frozen=True)
class Plan:
    """Everything that can change a result, to the last bit."""

    model: dict[str, object]
    corpus: dict[str, object]
    metrics: tuple[Metric, ...]
    axes: Axes
    settings: Settings
    is_compiled: bool = False
    """Are compiled loops used? They save time only in long runs, and change the last bits."""
    rows: int | None = None
    """Query rows of a block of attention; None if layers are read whole."""
    is_fused: bool = False
    """Do compiled loops compute the softmax, where that is proved to be the model's?"""
    facts: dict[str, dict[str, float]] = field(default_factory=dict, repr=False, compare=False)
    """Counts that metrics requested in the corpus. Not compared: corpus and metrics are."""
    last_hashes: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    """See `Batch.last_hashes`. Not compared, like `facts`."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "format": STATE_FORMAT,
            "model": self.model,
            "corpus": self.corpus,
            "metrics": [metric_to_dict(metric) for metric in self.metrics],
            "axes": self.axes.to_dict(),
            "settings": {name: getattr(self.settings, name) for name in Settings.__slots__},
            "compiled": self.is_compiled,
            "rows": self.rows,
            "fused": self.is_fused,
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the plan."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def reads_gradients(self) -> bool:
        """Does the run need a backward pass?"""
        return any(metric.needs & {"gradients", "loss"} for metric in self.metrics)

    @property
    def layers(self) -> frozenset[int] | None:
        """Layers to read; None for all."""
        return None if self.settings.layers is None else frozenset(self.settings.layers)

    def shard_sizes(self, lengths: Sequence[int]) -> list[Amount]:
        """Return the amount of work in each shard."""
        return [
            Amount(len(numbers), 0, sum(lengths[number] for number in numbers))
            for numbers in self._cut(lengths)
        ]

    def _cut(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        settings = self.settings
        for window in self._windows(lengths):
            shard: list[int] = []
            size = 0
            for number in sorted(window, key=lambda n: (-lengths[n], n)):
                is_full = len(shard) >= settings.shard_documents
                if shard and (is_full or size + lengths[number] > settings.shard_characters):
                    yield shard
                    shard, size = [], 0
                shard.append(number)
                size += lengths[number]
            if shard:
                yield shard

    def _windows(self, lengths: Sequence[int]) -> Iterator[range]:
        """Yield the document numbers that are sorted by length together."""
        max_size = MAX_SHARDS * self.settings.shard_characters
        start = size = 0
        for number, length in enumerate(lengths):
            is_full = number - start >= self.settings.window or size + length > max_size
            if is_full and number > start:
                yield range(start, number)
                start, size = number, 0
            size += length
        yield range(start, len(lengths))

    def shards(self, corpus: Corpus, lengths: Sequence[int], done: set[int]) -> Iterator[Shard]:
        """Yield the shards that are not done, reading the corpus once, a window at a time."""
        documents = enumerate(corpus.read(ReadLog(corpus.on_error)))
        window: dict[int, Document] = {}
        n_read = 0
        for shard_id, numbers in enumerate(self._cut(lengths)):
            n_new = max(0, max(numbers) + 1 - n_read)
            window.update(itertools.islice(documents, n_new))
            n_read += n_new
            if missing := [number for number in sorted(numbers) if number not in window]:
                raise InputError(
                    f"{corpus.name} has changed while it was read: document {missing[0]} of "
                    f"{len(lengths)} is no longer there."
                )
            chosen = tuple((number, window.pop(number)) for number in sorted(numbers))
            if shard_id not in done:
                yield Shard(shard_id, chosen)


MIN_COPY = 20
"""Characters from which on like texts of different documents are copies, not chance."""
MAX_COPIES = 0.1
"""A larger share of copies is reported: intervals over copies are too narrow."""
MAX_COMPARED = 100_000
"""Number of first texts that are compared with one another."""


def survey(corpus: Corpus, settings: Settings, facts: Mapping[str, Fact] | None = None) -> Survey:
    """Read the corpus once and collect what a plan needs and metrics count."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in facts or {}}
    report = ReadLog(corpus.on_error)
    content = hashlib.sha256()
    tags, relations, groups = set[str](), set[str](), set[str]()
    has_trees = has_mentions = False
    buckets = set[tuple[str, int]]()
    lengths, sample_hashes = array("L"), array("d")
    sketches: list[np.ndarray] = []
    sources: list[int] = []
    for document in corpus.read(report):
        content.update(document.digest().encode())
        if len(document.text) >= MIN_COPY and len(sketches) < MAX_COMPARED:
            sketches.append(sketch_of(document.text))
            sources.append(hash(document.part_of or document.id))
        tags.update(tags_of(document, settings.tagset) or ())
        if document.parents is not None:
            has_trees = True
            relations.update(document.relations or ())
        has_mentions = has_mentions or bool(document.mentions)
        group, (key, number) = group_of(document, settings.by), document_key(document)
        groups.add(group)
        if settings.by is not None:
            buckets.add((group, number % settings.buckets))
        sample_hashes.append(key)
        lengths.append(len(document.text))
        for name, count in (facts or {}).items():
            counts[name].update(_counted(name, count, document))
    if not lengths:
        raise InputError(f"{corpus.name} has no documents: there is nothing to measure.")
    if settings.by is not None and groups == {NO_GROUP}:
        raise InputError(
            f"by={settings.by!r}, but no document of {corpus.name} has {settings.by!r} in its "
            "Document.meta."
        )
    n_copies, n = count_copies(sketches, sources), min(len(lengths), MAX_COMPARED)
    if n_copies > MAX_COPIES * n:
        said = f"{n_copies:,} of {n:,} texts are copies or near-copies of others"
        report.independence[f"{said}, yet taken as independent"] = None
    return Survey(
        name=corpus.name,
        unit=corpus.unit_name,
        documents=len(lengths),
        hash=content.hexdigest(),
        tags=tuple(sorted(tags - {NO_TAG})),
        has_trees=has_trees,
        has_mentions=has_mentions,
        relations=tuple(sorted(relations - {NO_TAG})),
        groups=tuple(sorted(groups)),
        lengths=lengths,
        sample_hashes=sample_hashes,
        left_out=dict(report.counts),
        messages=tuple(report.messages),
        facts={name: dict(counter) for name, counter in counts.items()},
        buckets=frozenset(buckets),
        independence="; ".join(report.independence),
    )


def last_hashes(sample_hashes: Sequence[float], metrics: Sequence[Metric]) -> dict[int, float]:
    """Return, for each sample size of a metric, the hash of the last document it may need."""
    sizes = {metric.sample for metric in metrics if metric.sample is not None}
    shown = {size: size + SPARE + int(SPARE_SHARE * size) for size in sizes}
    ordered = np.sort(np.asarray(sample_hashes))
    return {size: float(ordered[n - 1]) for size, n in shown.items() if n < len(ordered)}


def _counted(name: str, count: Fact, document: Document) -> Mapping[str, float]:
    """Count a fact in a document; raise MetricError unless the result has finite counts."""
    try:
        counts = count(document)
        is_right = isinstance(counts, Mapping) and all(math.isfinite(n) for n in counts.values())
    except Exception as error:
        raise MetricError(
            f"Counting {name!r} in document {document.id!r} failed: "
            f"{type(error).__name__}: {error}."
        ) from error
    if not is_right:
        raise MetricError(
            f"Counting {name!r} in document {document.id!r} gave {counts!r:.80}; expected numbers "
            "by name."
        )
    return counts


def axes_for(surveyed: Survey, settings: Settings, key_classes: tuple[str, ...] = ()) -> Axes:
    """Return the labels of a run."""
    buckets: tuple[int, ...] = ()
    if len(surveyed.groups) > 1:
        starts = {group: number * settings.buckets for number, group in enumerate(surveyed.groups)}
        buckets = tuple(sorted(starts[group] + number for group, number in surveyed.buckets))
    return Axes(
        surveyed.tags, surveyed.relations, surveyed.groups, settings.buckets, key_classes, buckets
    )


def group_of(document: Document, by: str | None) -> str:
    """Return the group of a document."""
    return "" if by is None else document.meta.get(by, NO_GROUP)


def document_key(document: Document) -> tuple[float, int]:
    """Return a hash of the document's id and text, in [0, 1), and the number of its bucket. All
    pieces of one text have the same number, because they are not independent.
    """
    digest = _digest(f"{document.id}\0{document.text}")
    key = (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)
    source = digest if document.part_of is None else _digest(document.part_of)
    return key, int.from_bytes(source[8:], "big")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
