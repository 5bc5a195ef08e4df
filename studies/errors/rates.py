"""Error rates: samples of documents, and how often what is made of them is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.cross_fitting import MIN_CASE_BUCKETS, MIN_CASES, cross_fit_score
from headscope.statistics.differences import paired, permutation_test, unpaired
from headscope.statistics.intervals import benjamini_hochberg, holm, interval, p_above
from headscope.statistics.jackknife import MAX_VARIANCE_EXPONENT, Scale, ratio_jackknife
from studies.errors.decided import heaviest, undecided
from studies.errors.draws import N_PARTS, draw, summed
from studies.errors.record import upper_bound

__all__ = [
    "Counted",
    "Coverage",
    "Discoveries",
    "coverage",
    "discoveries",
    "false_groups",
    "false_relations",
    "found_relations",
    "honest_p",
    "is_listed",
    "pairing",
]

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
    heaviest: float
    """The largest share of one document in what any head varies by, among all documents."""
    undecided: float
    """`jackknife`, of the heads that no document decides; NaN if there are none."""


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
    whole = ratio_jackknife(numerator, denominator, scale)
    free = undecided(whole)
    generator = np.random.default_rng(seed + 1)
    given, sizes, holds, frees, before, widths = [], [], [], [], [], []
    for drawn in draw(len(numerator), n, repetitions, seed, numerator.shape[1]):
        a, b = drawn.pooled(numerator, denominator)
        of = interval(ratio_jackknife(a, b, scale))
        is_given = np.isfinite(of.low)
        given.append(is_given.mean(1))
        sizes.append(of.documents[is_given])
        does_hold = (of.low <= truth) & (truth <= of.high)
        holds.append(does_hold[is_given])
        frees.append(does_hold[is_given & free])
        for i in range(min(len(drawn), n_bootstraps - drawn.first)):
            mine = is_given[i]
            if not mine.any():  # perhaps no document has a case at all
                continue
            low, high = _bootstrap(a[:, i], b[:, i], generator)
            before.append(((low <= truth) & (truth <= high))[mine])
            with np.errstate(divide="ignore", invalid="ignore"):
                widths.append(((of.high[i] - of.low[i]) / (high - low))[mine])
    return Coverage(
        float(np.concatenate(given).mean()),
        float(np.median(np.concatenate(sizes))),
        float(np.concatenate(holds).mean()),
        float(np.concatenate(before).mean()) if n_bootstraps else float("nan"),
        float(np.nanmedian(np.concatenate(widths))) if n_bootstraps else float("nan"),
        heaviest(whole),
        float(np.concatenate(frees).mean()) if free.any() else float("nan"),
    )


def false_groups(
    sums: dict[str, tuple[np.ndarray, np.ndarray]],
    n_groups: int,
    n: int,
    *,
    repetitions: int,
    seed: int = 0,
    n_permutations: int = 249,
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
    generator = np.random.default_rng(seed + 1)
    labels = np.arange(n) % n_groups
    now, before = [], []
    for drawn in draw(size, n, repetitions, seed):
        for number, documents, parts in drawn:
            units, groups = _by_group(labels, parts)
            p, is_apart = [], False
            for a, b in sums.values():
                of = ratio_jackknife(*(summed(x[documents], units, len(groups)) for x in (a, b)))
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
    generator = np.random.default_rng(seed + 1)
    for drawn in draw(len(cases), n, repetitions, seed):
        for number, documents, parts in drawn:
            counts, chance = cases[documents].astype(int), accuracy[documents]
            size = (n, n_heads, cases.shape[1])
            right = summed(generator.binomial(counts[:, None], chance[:, None], size), parts)
            rival = summed(generator.binomial(counts, chance), parts)
            total = summed(counts, parts)
            p = honest_p(right, total, rival)
            known = np.flatnonzero(np.isfinite(p))
            for at in known if number < n_bootstraps else ():
                sides = right[..., at], total[:, at], rival[:, at, None]
                before.append(_was_better(*sides, cross_fit_score(*sides).score, generator))
            nominal.extend(p[known] < 0.05)
            any_claim.append(float((holm(p[known]) < 0.05).any()))
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
    for drawn in draw(len(cases), n, repetitions, seed):
        for _, documents, parts in drawn:
            by_part = [summed(array[documents], parts) for array in (right, cases, offsets)]
            p = [cross_fit_score(*(of[..., r] for of in by_part)).p for r in range(len(claimed))]
            claimed += np.nan_to_num(holm(np.array(p)), nan=1.0) < 0.05
    return claimed / repetitions


def honest_p(right: np.ndarray, cases: np.ndarray, rival: np.ndarray) -> np.ndarray:
    """`relation`: p of `cross_fit_score` against one rival, of all relations at once.

    Args:
        right: `part classifier relation`.
        cases: `part relation`.
        rival: `part relation`.
    """
    halves = np.arange(len(right))[:, None] % 2
    chosen = [right[half::2].sum(0).argmax(0)[None, None] for half in (1, 0)]
    even, odd = (np.take_along_axis(right, at, 1)[:, 0] for at in chosen)
    gains = ratio_jackknife(np.where(halves == 0, even, odd) - rival, cases)
    p = np.nan_to_num(p_above(replace(gains, variance_exponent=MAX_VARIANCE_EXPONENT)), nan=1.0)
    is_enough = (cases.sum(0) >= MIN_CASES) & ((cases > 0).sum(0) >= MIN_CASE_BUCKETS)
    is_in_both = (cases[::2].sum(0) > 0) & (cases[1::2].sum(0) > 0)
    return np.where(is_enough & is_in_both, p, np.nan)


@dataclass(frozen=True)
class Discoveries:
    """What lists of heads above a number have."""

    any_false: Counted
    """Samples with a list in which any head is false, where all are: each head's number is its
    own true value."""
    any_undecided: Counted
    """The same, of the heads of these lists that no document decides."""
    false: Counted
    """Share of false heads in a list, where about half of the heads are above their number."""
    found: float
    """Share of those heads that the list has."""
    heaviest: float
    """The largest share of one document in what any head varies by, among all documents."""


def discoveries(
    numerator: np.ndarray,
    denominator: np.ndarray,
    scale: Scale,
    n: int,
    *,
    repetitions: int,
    seed: int = 0,
) -> Discoveries:
    """False discovery rate and power over heads.

    Each head's number is its own true value (there is nothing to find) or, for half of the
    heads, 90 % of it.
    """
    truth = numerator.sum(0) / denominator.sum(0)
    is_null = np.random.default_rng(seed + 1).random(truth.shape) < 0.5
    thresholds = np.stack((truth, np.where(is_null, truth, 0.9 * truth)))
    whole = ratio_jackknife(numerator, denominator, scale)
    free = undecided(whole)
    any_false, any_free, false, power = [], [], [], []
    for drawn in draw(len(numerator), n, repetitions, seed, len(truth)):
        of = ratio_jackknife(*drawn.pooled(numerator, denominator), scale)  # type: ignore[call-arg]
        p = p_above(of, thresholds[:, None])
        for listed in map(is_listed, p[0]):
            any_false.append(float(listed.any()))
            any_free.append(float(listed[free].any()))
        for found in map(is_listed, p[1]):
            false.append((found & is_null).sum() / max(found.sum(), 1))
            power.append((found & ~is_null).sum() / max((~is_null).sum(), 1))
    return Discoveries(
        Counted.of(any_false),
        Counted.of(any_free),
        Counted.of(false),
        float(np.mean(power)),
        heaviest(whole),
    )


def is_listed(p: np.ndarray) -> np.ndarray:
    """Of the heads of one sample, those that a list has."""
    listed: np.ndarray = np.nan_to_num(benjamini_hochberg(p), nan=1.0) < 0.05
    return listed


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
    for drawn in draw(len(left[0]), n, repetitions, seed, left[0].shape[1]):
        sides = [ratio_jackknife(*drawn.pooled(a, b), scale).mean((1,)) for a, b in (left, right)]  # type: ignore[call-arg]
        both = paired(*sides), unpaired(*sides)
        is_given = np.all([np.isfinite(d.low) for d in both], axis=0)
        holds += np.stack([(d.low <= truth) & (truth <= d.high) for d in both], -1)[
            is_given
        ].tolist()
        widths += np.stack([d.high - d.low for d in both], -1)[is_given].tolist()
    of_paired, of_unpaired = np.mean(holds, axis=0)
    narrow, wide = np.median(widths, axis=0)
    return float(of_paired), float(of_unpaired), float(wide / narrow)


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
        low, high, value = _group_bounds(*(summed(x[mine], parts[mine]) for x in (a, b)), generator)  # type: ignore[call-arg]
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
    crossfit_accuracy: float,
    generator: np.random.Generator,
) -> bool:
    """The rule of before: the best head's interval and its honest score above the offset."""
    best = right[:, right.sum(0).argmax()]
    low, _ = _bootstrap(best[:, None], cases[:, None], generator)
    baseline = rival.sum() / cases.sum()
    return bool(low[0] > baseline and crossfit_accuracy > baseline)
