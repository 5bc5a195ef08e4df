"""The same error rates through the front door: documents in, sentences of a report out.

    python -m studies.errors.endtoend --data FOLDER

Each repetition draws documents of EWT, runs `headscope.analyze` or a probe on them, and asks what
a reader would: does the interval hold the number of all documents, does the report say that kinds
of text differ whose labels were dealt at random, does it say that a head of a model with random
weights finds a relation better than any offset?
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import headscope as hs
from headscope.errors import InputError
from headscope.model.control import randomized
from headscope.reporting.findings_between import about_groups
from headscope.reporting.findings_of_probes import relations
from headscope.reporting.subjects import find_subjects
from headscope.reporting.wording import plain
from headscope.text.document import Document
from studies.errors.page import write_page
from studies.errors.populations import TITLES
from studies.errors.rates import Counted
from studies.errors.record import Rate, write_rates
from studies.gum.corpora import draw_per_document

METRICS = ["null_share", "distance", "entropy", "dep_alignment"]
SENTENCES = 4
"""Of each document, at most."""


def main() -> None:
    """Count, and write the rates and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with ud_ewt/")
    parser.add_argument("--model", default="minilm", choices=TITLES)
    parser.add_argument("--repetitions", type=int, default=240)
    options = parser.parse_args()
    model = hs.load(options.model)
    documents = _documents(options.data)
    population = f"{TITLES[options.model]}, EWT"
    times, few = options.repetitions, options.repetitions // 3
    found = _false_relations(model, documents, few)
    write_rates(
        [Rate("front relations", population, "any relation", 40, few, found.rate, found.bound)]
    )
    found = _false_groups(model, documents, times)
    write_rates([Rate("front groups", population, "5 groups", 30, times, found.rate, found.bound)])
    covered = [(n, _coverage(model, documents, n, times)) for n in (8, 20)]
    write_rates(
        Rate("front coverage", population, name, n, times, share, effective=effective[name])
        for n, (shares, effective) in covered
        for name, share in shares.items()
    )
    write_page()


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
    model: hs.Model, documents: Pieces, n: int, repetitions: int
) -> tuple[dict[str, float], dict[str, float]]:
    """By variable: the share of intervals of heads that hold the truth; effective documents."""
    whole = hs.analyze(model, _joined(documents), METRICS, progress=False)
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
            effective[name].extend(result[f"{name}_documents"].values[given].tolist())
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


if __name__ == "__main__":
    main()
