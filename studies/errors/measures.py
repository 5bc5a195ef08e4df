"""The questions of the study: each counts over all populations and gives its rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from headscope.statistics.jackknife import Scale
from studies.errors.lists import (
    Rates,
    best_sets,
    changed_heads,
    correlations,
    heads_above_the_mean,
    slopes,
)
from studies.errors.populations import Population
from studies.errors.rates import (
    coverage,
    discoveries,
    false_groups,
    false_relations,
    found_relations,
    pairing,
)
from studies.errors.record import Rate

__all__ = ["QUESTIONS", "SCALES", "TOGETHER"]

Populations = Mapping[str, Population]
Question = Callable[[Populations, int], Iterator[Rate]]
"""From the populations and the number of repetitions."""

SIZES = (5, 8, 12, 20, 64, 200)
LISTED = (8, 20, 64, 200)
SCALES: dict[str, Scale] = {
    "null_share": "logit",
    "dep_alignment": "logit",
    "pos_to": "logit",
    "distance": "positive",
    "entropy": "positive",
}
CORRELATED = ("entropy", "dep_alignment")
GROUPED = ("null_share", "dep_alignment", "distance", "entropy")
KNOWN = ("obj", "det", "case")
"""Relations that heads are known to find."""
KNOWN_TO_SPACY = ("dobj", "det", "pobj")
"""The same in spaCy's trees, where `case` is the possessive 's."""
HEADS = 16
"""So many heads of each variable, drawn once: the others are like them."""
LISTED_HEADS = 90
"""Lists are of at most so many heads, drawn once: SmolLM2 has 270."""
MIN_CASES = 100
"""Relations with fewer in a population are left out."""


def _coverage(populations: Populations, repetitions: int) -> Iterator[Rate]:
    for name, population in populations.items():
        for variable in (*SCALES, *(f"accuracy, {relation}" for relation in _known_in(population))):
            a, b, scale = _sums(population, variable)
            for n in SIZES:
                found = coverage(
                    a, b, scale, n, repetitions=repetitions, n_bootstraps=repetitions // 20, seed=n
                )
                yield Rate(
                    "coverage", name, variable, n, repetitions, found.jackknife,
                    before=found.bootstrap, effective=found.documents, width=found.width,
                    heaviest=found.heaviest, undecided=found.undecided,
                )  # fmt: skip


def _groups(populations: Populations, repetitions: int) -> Iterator[Rate]:
    for name, population in populations.items():
        sums = {variable: _sums(population, variable)[:2] for variable in GROUPED}
        for n_groups, n in ((5, 30), (8, 64)):
            now, before = false_groups(
                sums, n_groups, n, repetitions=repetitions, n_bootstraps=repetitions // 10
            )
            yield Rate(
                "groups", name, f"{n_groups} groups", n, repetitions, now.rate, now.bound, before
            )


def _relations(populations: Populations, repetitions: int) -> Iterator[Rate]:
    for name, population in populations.items():
        relations = population.relations
        enough = np.flatnonzero(relations.cases.sum(0) >= MIN_CASES)
        cases = relations.cases[:, enough]
        best = relations.offsets[..., enough].sum(0).argmax(0)
        right = np.take_along_axis(relations.offsets[..., enough], best[None, None], 1)[:, 0]
        mean = right.sum(0) / cases.sum(0)
        accuracy = (right + 4 * mean) / (cases + 4)
        for n in (20, 64):
            claimed, alone, before = false_relations(
                accuracy, cases, 24, n, repetitions=repetitions, n_bootstraps=repetitions // 10
            )
            yield Rate(
                "relations", name, "any relation", n, repetitions, claimed.rate, claimed.bound
            )
            yield Rate("relations", name, "one relation", n, repetitions, alone, before=before)


def _known(populations: Populations, repetitions: int) -> Iterator[Rate]:
    few = max(repetitions // 5, 20)
    for name, population in populations.items():
        relations = population.relations
        known = _known_in(population)
        picked = [relations.names.index(relation) for relation in known]
        for n in (12, 20, 64):
            power = found_relations(
                relations.right[..., picked], relations.offsets[..., picked],
                relations.cases[..., picked], n, repetitions=few,
            )  # fmt: skip
            for relation, share in zip(known, power, strict=True):
                yield Rate("known", name, relation, n, few, float(share))


def _known_in(population: Population) -> tuple[str, ...]:
    return KNOWN_TO_SPACY if "dobj" in population.relations.names else KNOWN


def _values(populations: Populations, repetitions: int) -> Iterator[Rate]:
    """Heads against a number: all at it, and half of them above it."""
    few = repetitions * 3 // 5
    for name, variable, sums, scale in _all_heads(populations):
        for n in SIZES[1:]:
            found = discoveries(*sums, scale, n, repetitions=few, seed=n)
            of, free = found.any_false, found.any_undecided
            yield Rate(
                "value", name, variable, n, few, of.rate, of.bound, heaviest=found.heaviest,
                undecided=free.rate, undecided_bound=free.bound,
            )  # fmt: skip
            of = found.false
            yield Rate("half", name, variable, n, few, of.rate, of.bound, heaviest=found.heaviest)
            yield Rate("half, power", name, variable, n, few, found.found)


def _means(populations: Populations, repetitions: int) -> Iterator[Rate]:
    """Heads against the mean over heads."""
    few = repetitions * 2 // 5
    for name, variable, sums, scale in _all_heads(populations, GROUPED):
        for n in LISTED:
            false, total, power = heads_above_the_mean(sums, scale, n, repetitions=few, seed=n)
            yield _compared("mean", name, variable, n, few, false)
            yield _compared("mean, total", name, variable, n, few, total)
            yield _compared("mean, power", name, variable, n, few // 10, power)


def _changes(populations: Populations, repetitions: int) -> Iterator[Rate]:
    """Heads of two models."""
    few = repetitions * 2 // 5
    for name, variable, sums, scale in _all_heads(populations, GROUPED):
        for n in LISTED:
            false, total = changed_heads(sums, scale, n, repetitions=few, seed=n)
            yield _compared("changed", name, variable, n, few, false)
            yield _compared("changed, total", name, variable, n, few, total)


def _best(populations: Populations, repetitions: int) -> Iterator[Rate]:
    """The highest and the lowest layer and head."""
    few = repetitions // 5
    for name, population in populations.items():
        for variable in GROUPED:
            *sums, scale = _sums(population, variable, heads=None)
            a, b = (x.reshape(len(x), population.layers, -1).sum(-1) for x in sums)
            for what, both in {"layers": (a, b), "heads": (sums[0], sums[1])}.items():
                for n in LISTED:
                    found = best_sets(both, scale, n, repetitions=few, seed=n)
                    yield _compared("best", name, f"{variable}, {what}", n, few, found)


def _slopes(populations: Populations, repetitions: int) -> Iterator[Rate]:
    """Values that grow or fall with the layer."""
    few = repetitions // 5
    for name, population in populations.items():
        for variable in GROUPED:
            *sums, scale = _sums(population, variable, heads=None)
            a, b = (x.reshape(len(x), population.layers, -1).sum(-1) for x in sums)
            for n in LISTED:
                found = slopes((a, b), scale, population.layers, n, repetitions=few, seed=n)
                yield _compared("slope", name, variable, n, few, found)


def _correlations(populations: Populations, repetitions: int) -> Iterator[Rate]:
    few = repetitions // 2
    for name, population in populations.items():
        for other in CORRELATED:
            sides = [_sums(population, variable, heads=None) for variable in ("distance", other)]
            for n in LISTED:
                found = correlations(sides[0], sides[1], n, repetitions=few, seed=n)
                yield _compared("r", name, f"distance, {other}", n, few, found)


def _pairs(populations: Populations, repetitions: int) -> Iterator[Rate]:
    """Both models over the same documents; `before` takes them for different ones."""
    by_corpus: dict[str, list[str]] = {}
    for name in populations:
        by_corpus.setdefault(name.split(", ")[1], []).append(name)
    for corpus, names in by_corpus.items():
        for variable in ("null_share", "distance") if len(names) == 2 else ():
            sides = [_sums(populations[name], variable, heads=None)[:2] for name in names]
            now, before, wider = pairing(
                sides[0], sides[1], 20, repetitions=repetitions, scale=SCALES[variable]
            )
            yield Rate(
                "pair", f"both, {corpus}", variable, 20, repetitions, now,
                before=before, width=1 / wider,
            )  # fmt: skip


def _all_heads(
    populations: Populations, variables: Iterable[str] = SCALES
) -> Iterator[tuple[str, str, tuple[np.ndarray, np.ndarray], Scale]]:
    for name, population in populations.items():
        for variable in variables:
            a, b, scale = _sums(population, variable, heads=LISTED_HEADS)
            yield name, variable, (a, b), scale


def _compared(question: str, name: str, variable: str, n: int, times: int, of: Rates) -> Rate:
    return Rate(
        question, name, variable, n, times, of.now, of.bound, of.before, heaviest=of.heaviest,
        undecided=of.undecided, undecided_bound=of.undecided_bound, effective=of.effective,
    )  # fmt: skip


def _sums(
    population: Population, variable: str, heads: int | None = HEADS
) -> tuple[np.ndarray, np.ndarray, Scale]:
    """`document head`: numerator, denominator, and the scale of the interval."""
    if variable.startswith("accuracy, "):
        relations = population.relations
        at = relations.names.index(variable.removeprefix("accuracy, "))
        best = relations.right[..., at].sum(0).argsort()[-(heads or 1) :]
        a = relations.right[..., at][:, best]
        return a, np.broadcast_to(relations.cases[:, at, None], a.shape), "logit"
    a, b = population.numerators[variable], population.denominators[variable]
    if heads is not None:
        chosen = np.random.default_rng(0).permutation(a.shape[1])[:heads]
        a, b = a[:, chosen], b[:, chosen]
    return a, b, SCALES[variable]


QUESTIONS: dict[str, Question] = {
    "coverage": _coverage,
    "groups": _groups,
    "relations": _relations,
    "known": _known,
    "values": _values,
    "means": _means,
    "changes": _changes,
    "best": _best,
    "slopes": _slopes,
    "correlations": _correlations,
    "pairs": _pairs,
}
TOGETHER = ("pairs",)
"""Questions about more than one population."""
