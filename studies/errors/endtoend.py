"""The same error rates through the front door: documents in, sentences of a report out.

Each repetition draws documents of EWT, runs `headscope.analyze` or a probe on them, and asks what
a reader would: does the interval hold the number of all documents, does the report say that kinds
of text differ whose labels were dealt at random, does it say that a head of a model with random
weights finds a relation better than any offset?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import headscope as hs
from headscope.errors import InputError
from headscope.figures.chart_data import find_subjects
from headscope.model.load import randomized
from headscope.reporting.comparisons import about_groups
from headscope.reporting.findings import relations
from headscope.reporting.wording import plain
from headscope.results.result import Result
from headscope.text.document import Document
from studies.errors.populations import TITLES
from studies.errors.rates import Counted
from studies.errors.record import Rate
from studies.gum.corpora import draw_per_document

__all__ = ["front_door"]

METRICS = ["null_share", "distance", "entropy", "dep_alignment"]
SENTENCES = 3
"""Of each document, at most."""


def front_door(data: Path, repetitions: int) -> Iterator[Rate]:
    """All rates of this module: MiniLM over EWT."""
    model = hs.load("minilm")
    documents = _documents(data)
    population = f"{TITLES['minilm']}, EWT"
    times, few = max(repetitions * 3 // 20, 2), max(repetitions // 20, 2)
    found = _false_groups(model, documents, times)
    yield Rate("front groups", population, "5 groups", 30, times, found.rate, found.bound)
    found = _false_relations(model, documents, few)
    yield Rate("front relations", population, "any relation", 40, few, found.rate, found.bound)
    truth = hs.analyze(model, _joined(documents), METRICS, progress=False)
    for n in (8, 20):
        shares, effective = _coverage(model, documents, truth, n, few)
        for name, share in shares.items():
            yield Rate("front coverage", population, name, n, few, share, effective=effective[name])


Pieces = list[list[Document]]


def _documents(data: Path) -> Pieces:
    """A few sentences of each document."""
    read = hs.read(data / "ud_ewt" / "en_ewt-ud-dev.conllu", unit="document")
    cut = (piece for document in read for piece in document.split("sentence"))
    by_source: dict[str, list[Document]] = {}
    for piece in draw_per_document(cut, SENTENCES):
        by_source.setdefault(piece.part_of or piece.id, []).append(piece)
    return list(by_source.values())


def _drawn(documents: Pieces, n: int, seed: int) -> Pieces:
    chosen = np.random.default_rng(seed).choice(len(documents), n, replace=False)
    return [documents[i] for i in chosen]


def _joined(documents: Pieces) -> list[Document]:
    return [piece for pieces in documents for piece in pieces]


def _coverage(
    model: hs.Model, documents: Pieces, whole: Result, n: int, repetitions: int
) -> tuple[dict[str, float], dict[str, float]]:
    """By variable: the share of intervals of heads that hold the truth; effective documents."""
    hits: dict[str, list[float]] = {name: [] for name in METRICS}
    effective: dict[str, list[float]] = {name: [] for name in METRICS}
    for seed in range(repetitions):
        result = hs.analyze(model, _joined(_drawn(documents, n, seed)), METRICS, progress=False)
        for name in METRICS:
            truth = whole[name]
            low, high = (result[f"{name}_interval"].sel(bound=b) for b in ("low", "high"))
            given = np.isfinite(low.values)
            holds = ((low <= truth) & (truth <= high)).values[given]
            hits[name].extend(holds.tolist())
            effective[name].extend(result[f"{name}_n_eff"].values[given].tolist())
    return (
        {name: float(np.mean(of)) for name, of in hits.items()},
        {name: float(np.median(of)) for name, of in effective.items()},
    )


def _false_groups(model: hs.Model, documents: Pieces, repetitions: int) -> Counted:
    """The share of reports that find a difference between labels dealt at random."""
    claims = []
    for seed in range(repetitions):
        labels = np.random.default_rng(seed).permutation(30) % 5
        dealt = [
            replace(piece, meta={**piece.meta, "kind": f"kind {label}"})
            for pieces, label in zip(_drawn(documents, 30, seed), labels, strict=True)
            for piece in pieces
        ]
        result = hs.analyze(model, dealt, METRICS, by="kind", progress=False)
        said = [plain(text) for text in about_groups(find_subjects([result]))]
        claims.append(float(any("kinds of text differ" in text for text in said)))
    return Counted.of(claims)


def _false_relations(model: hs.Model, documents: Pieces, repetitions: int) -> Counted:
    """The share of reports that claim a relation for a model that knows none."""
    claims = []
    for seed in range(repetitions):
        control = randomized(model, seed)
        drawn: Sequence[Document] = _joined(_drawn(documents, 40, seed))
        try:
            result = hs.probe_dependencies(control, drawn, min_cases=20, progress=False)
        except InputError:  # no relation has so many cases
            claims.append(0.0)
            continue
        said = relations(find_subjects([result])[0], 0)
        claims.append(float(said is not None and "beat the best fixed offset" in plain(said)))
    return Counted.of(claims)
