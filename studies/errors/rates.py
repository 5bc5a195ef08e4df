"""Error rates: samples of documents, and how often what is made of them is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headscope.statistics.corrections import benjamini_hochberg, holm
from headscope.statistics.differences import paired, unpaired
from headscope.statistics.grouped import permutation_test
from headscope.statistics.honest import honest_score
from headscope.statistics.intervals import interval, p_above
from headscope.statistics.pulls import Scale, pool, ratio_pulls
from studies.errors.record import upper_bound

__all__ = [
    "Counted",
    "Coverage",
    "coverage",
    "discoveries",
    "false_groups",
    "false_relations",
    "found_relations",
    "pairing",
    "pool_sample",
    "samples",
]

N_PARTS = 64
N_DRAWS = 200
"""Of the percentile bootstrap that earlier versions had."""


@dataclass(frozen=True)
class Counted:
    """An error rate."""

    rate: float
    bound: float
    """The upper 95 % Monte Carlo bound."""

    @classmethod
    def of(cls, outcomes: list[float]) -> Counted:
        """From the outcome of each repetition."""
        return cls(float(np.mean(outcomes)), upper_bound(outcomes))


@dataclass(frozen=True)
class Coverage:
    """How often intervals hold the number of all documents."""

    given: float
    """Share of samples that have an interval at all."""
    documents: float
    """The median of the effective number of documents."""
    jackknife: float
    bootstrap: float
    """The same of the middle 95 % of a bootstrap over parts; NaN if it was not asked for."""
    width: float
    """The median of the width, relative to the bootstrap's."""


def coverage(
    numerator: np.ndarray,
    denominator: np.ndarray,
    scale: Scale,
    n: int,
    *,
    repetitions: int,
    seed: int = 0,
    n_bootstraps: int = 0,
) -> Coverage:
    """Of the intervals of samples of `n` documents, the share that hold the truth, over heads.

    The first `n_bootstraps` samples also get the bootstrap of earlier versions, which is slow.
    """
    truth = numerator.sum(0) / denominator.sum(0)
    given, sizes, holds, before, widths = [], [], [], [], []
    for number, (generator, parts) in enumerate(samples(len(numerator), n, repetitions, seed)):
        a, b = (pool_sample(x, *parts) for x in (numerator, denominator))
        of = interval(ratio_pulls(a, b, scale))
        is_given = np.isfinite(of.low)
        given.append(is_given.mean())
        sizes.append(of.documents[is_given])
        holds.append(((of.low <= truth) & (truth <= of.high))[is_given])
        if number < n_bootstraps:
            low, high = _bootstrap(a, b, generator)
            before.append(((low <= truth) & (truth <= high))[is_given])
            with np.errstate(divide="ignore", invalid="ignore"):
                widths.append(((of.high - of.low) / (high - low))[is_given])
    return Coverage(
        float(np.mean(given)),
        float(np.median(np.concatenate(sizes))),
        float(np.concatenate(holds).mean()),
        float(np.concatenate(before).mean()) if n_bootstraps else float("nan"),
        float(np.nanmedian(np.concatenate(widths))) if n_bootstraps else float("nan"),
    )


def false_groups(
    sums: dict[str, tuple[np.ndarray, np.ndarray]],
    n_groups: int,
    n: int,
    *,
    repetitions: int,
    seed: int = 0,
    n_permutations: int = 499,
    n_bootstraps: int = 0,
) -> tuple[Counted, float]:
    """Share of reports that call groups different, of labels dealt at random: now, and before.

    Args:
        sums: by variable, numerator and denominator, `document head`.
        n_groups: how many groups.
        n: documents of each sample.
        repetitions: how many samples.
        seed: of the samples.
        n_permutations: of each test.
        n_bootstraps: the first so many samples are also judged by the rule of before.
    """
    size = len(next(iter(sums.values()))[0])
    now, before = [], []
    for number, (generator, (documents, parts)) in enumerate(samples(size, n, repetitions, seed)):
        labels = np.arange(n) % n_groups
        units, groups = _by_group(labels, parts)
        p, is_apart = [], False
        for a, b in sums.values():
            of = ratio_pulls(pool(a[documents], units), pool(b[documents], units))
            p.append(permutation_test(of, groups, n_permutations=n_permutations).p)
            if number < n_bootstraps and not is_apart:
                is_apart = _are_apart(a[documents], b[documents], labels, parts, generator)
        now.append(float((holm(np.array(p)) < 0.05).any()))
        if number < n_bootstraps:
            before.append(is_apart)
    return Counted.of(now), float(np.mean(before)) if before else float("nan")


def false_relations(
    accuracy: np.ndarray,
    cases: np.ndarray,
    n_heads: int,
    n: int,
    *,
    repetitions: int,
    seed: int = 0,
    n_bootstraps: int = 0,
) -> tuple[Counted, float, float]:
    """Heads that are exactly as good as the best offset: how often one is said to be better.

    Heads and offset guess each case of a document with the document's accuracy of the offset.

    Args:
        accuracy: `document relation`, of the best offset.
        cases: `document relation`.
        n_heads: how many heads are tied.
        n: documents of each sample.
        repetitions: how many samples.
        seed: of the samples.
        n_bootstraps: the first so many samples are also judged by the rule of before.

    Returns:
        The share of samples with any relation claimed (Holm), the share of relations that are
        nominally significant, and the share claimed by the rule of earlier versions.
    """
    any_claim: list[float] = []
    nominal: list[bool] = []
    before: list[bool] = []
    drawn = samples(len(cases), n, repetitions, seed)
    for number, (generator, (documents, parts)) in enumerate(drawn):
        p = []
        for relation in range(cases.shape[1]):
            counts = cases[documents, relation].astype(int)
            chance = accuracy[documents, relation]
            right = pool(generator.binomial(counts[:, None], chance[:, None], (n, n_heads)), parts)
            rival = pool(generator.binomial(counts, chance)[:, None], parts)
            total = pool(counts.astype(float), parts)
            score = honest_score(right, total, rival)
            p.append(score.p)
            if number < n_bootstraps and np.isfinite(score.p):
                before.append(_was_better(right, total, rival, score.score, generator))
        known = np.array(p)[np.isfinite(p)]
        nominal.extend(known < 0.05)
        any_claim.append(float((holm(known) < 0.05).any()))
    alone, ruled = (float(np.mean(x)) if x else float("nan") for x in (nominal, before))
    return Counted.of(any_claim), alone, ruled


def found_relations(
    right: np.ndarray,
    offsets: np.ndarray,
    cases: np.ndarray,
    n: int,
    *,
    repetitions: int,
    seed: int = 0,
) -> np.ndarray:
    """`relation`: how often a relation is claimed (Holm), where it is really there."""
    claimed = np.zeros(cases.shape[1])
    for _, (documents, parts) in samples(len(cases), n, repetitions, seed):
        p = np.full(cases.shape[1], np.nan)
        for relation in range(cases.shape[1]):
            by_part = (
                pool(array[documents][..., relation], parts) for array in (right, cases, offsets)
            )
            p[relation] = honest_score(*by_part).p
        claimed += np.nan_to_num(holm(p), nan=1.0) < 0.05
    return claimed / repetitions


def discoveries(
    numerator: np.ndarray,
    denominator: np.ndarray,
    scale: Scale,
    n: int,
    *,
    repetitions: int,
    null: float = 0.5,
    seed: int = 0,
) -> tuple[Counted, float]:
    """False discovery rate and power over heads, some of which are above a threshold.

    Each head's threshold is its own true value (there is nothing to find) or, for a share
    1 − `null` of heads, 90 % of it.
    """
    truth = numerator.sum(0) / denominator.sum(0)
    generator = np.random.default_rng(seed + 1)
    is_null = generator.random(truth.shape) < null
    threshold = np.where(is_null, truth, 0.9 * truth)
    false, power = [], []
    for _, parts in samples(len(numerator), n, repetitions, seed):
        a, b = (pool_sample(x, *parts) for x in (numerator, denominator))
        adjusted = benjamini_hochberg(p_above(ratio_pulls(a, b, scale), threshold))
        found = np.nan_to_num(adjusted, nan=1.0) < 0.05
        false.append((found & is_null).sum() / max(found.sum(), 1))
        power.append((found & ~is_null).sum() / max((~is_null).sum(), 1))
    return Counted.of(false), float(np.mean(power))


def pairing(
    left: tuple[np.ndarray, np.ndarray],
    right: tuple[np.ndarray, np.ndarray],
    n: int,
    *,
    repetitions: int,
    scale: Scale = "identity",
    seed: int = 0,
) -> tuple[float, float, float]:
    """Two models over the same documents, mean over heads: coverage of the paired and of the
    unpaired interval of the difference, and how many times wider the second is.
    """
    truth = np.subtract(*((a.sum(0) / b.sum(0)).mean() for a, b in (left, right)))
    holds, widths = [], []
    for _, parts in samples(len(left[0]), n, repetitions, seed):
        sides = [
            ratio_pulls(pool_sample(a, *parts), pool_sample(b, *parts), scale).mean((0,))
            for a, b in (left, right)
        ]
        both = paired(*sides), unpaired(*sides)
        if all(np.isfinite(d.low) for d in both):
            holds.append([bool(d.low <= truth <= d.high) for d in both])
            widths.append([float(d.high - d.low) for d in both])
    of_paired, of_unpaired = np.mean(holds, axis=0)
    narrow, wide = np.median(widths, axis=0)
    return float(of_paired), float(of_unpaired), float(wide / narrow)


def pool_sample(values: np.ndarray, documents: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """`part …`: the sums of the documents drawn, by the part each was dealt into.

    Parts that got no document are left out: they change nothing.
    """
    return pool(values[documents], np.unique(parts, return_inverse=True)[1])


def samples(
    size: int, n: int, repetitions: int, seed: int
) -> Iterator[tuple[np.random.Generator, tuple[np.ndarray, np.ndarray]]]:
    """Documents drawn with replacement, and the parts that hashes would deal them into."""
    generator = np.random.default_rng(seed)
    for _ in range(repetitions):
        yield generator, (generator.integers(0, size, n), generator.integers(0, N_PARTS, n))


def _by_group(labels: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units of documents of the same group and part, and the group of each unit."""
    places, units = np.unique(labels * N_PARTS + parts, return_inverse=True)
    return units, places // N_PARTS


def _bootstrap(
    a: np.ndarray, b: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The middle 95 % of draws of parts, as earlier versions had it."""
    occupied = np.flatnonzero(b.reshape(len(b), -1).any(1))
    weights = generator.multinomial(
        len(occupied), np.full(len(occupied), 1 / len(occupied)), N_DRAWS
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (weights @ a[occupied]) / (weights @ b[occupied])
    low, high = np.nanquantile(ratios, (0.025, 0.975), axis=0)
    return low, high


def _are_apart(
    a: np.ndarray,
    b: np.ndarray,
    labels: np.ndarray,
    parts: np.ndarray,
    generator: np.random.Generator,
) -> bool:
    """Would intervals of the lowest and the highest group not overlap? The rule of before."""
    bounds = []
    for group in np.unique(labels):
        mine = labels == group
        low, high, value = _group_bounds(pool(a[mine], parts[mine]), pool(b[mine], parts[mine]),
                                         generator)  # fmt: skip
        bounds.append((value, low, high))
    lowest, highest = min(bounds), max(bounds)
    return highest[1] > lowest[2]


def _group_bounds(
    a: np.ndarray, b: np.ndarray, generator: np.random.Generator
) -> tuple[float, float, float]:
    occupied = np.flatnonzero(b.reshape(len(b), -1).any(1))
    weights = generator.multinomial(
        len(occupied), np.full(len(occupied), 1 / len(occupied)), N_DRAWS
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.nanmean((weights @ a[occupied]) / (weights @ b[occupied]), axis=1)
        value = float(np.nanmean(a.sum(0) / b.sum(0)))
    low, high = np.nanquantile(means, (0.025, 0.975))
    return float(low), float(high), value


def _was_better(
    right: np.ndarray,
    cases: np.ndarray,
    rival: np.ndarray,
    honest: float,
    generator: np.random.Generator,
) -> bool:
    """The rule of before: the best head's interval and its honest score above the offset."""
    best = right[:, right.sum(0).argmax()]
    low, _ = _bootstrap(best[:, None], cases[:, None], generator)
    baseline = rival.sum() / cases.sum()
    return bool(low[0] > baseline and honest > baseline)
