"""Lists of heads and correlations over heads: how often they are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headscope.reporting.hypothesis_tests import slope_of
from headscope.statistics.correlation import correlation, correlation_interval
from headscope.statistics.cross_fitting import best_set
from headscope.statistics.differences import p_above_both, p_differs_both, p_most, paired
from headscope.statistics.intervals import interval, p_above, t_critical
from headscope.statistics.jackknife import VARIANCE_EXPONENT, Jackknife, Scale, ratio_jackknife
from studies.errors.decided import heaviest, undecided
from studies.errors.draws import draw
from studies.errors.rates import is_listed
from studies.errors.record import upper_bound

__all__ = [
    "Rates",
    "alike",
    "best_sets",
    "changed_heads",
    "correlations",
    "heads_above_the_mean",
    "slopes",
]

CLEAR = 1.2
"""A head with more than so many times the mean is one to be found."""
SPARSE = 10
"""Power is counted on every tenth sample."""
HALVINGS = 60
FAR = 30.0
"""Log odds that no share reaches."""
Sums = tuple[np.ndarray, np.ndarray]
"""Numerator and denominator, `document head`."""
Scaled = tuple[np.ndarray, np.ndarray, Scale]
"""The same, with the scale of the interval."""


@dataclass(frozen=True)
class Rates:
    """A rate under the rule of before and under that of now."""

    before: float
    now: float
    bound: float = math.nan
    """The upper 95 % Monte Carlo bound of the second."""
    heaviest: float = math.nan
    """The largest share of one document in what any head varies by, among all documents."""
    undecided: float = math.nan
    """`now`, with the heads left out that one document decides: they are in the lists, and in
    their correction, but not counted."""
    undecided_bound: float = math.nan
    effective: float = math.nan
    """The median of the effective number of documents."""


def alike(numerator: np.ndarray, denominator: np.ndarray, scale: Scale) -> np.ndarray:
    """Numerators with which every head has the same value over all documents: nothing to find.

    Positive numbers are multiplied, shares shifted in their log odds, so that documents stay as
    uneven, and heads as correlated, as they are.
    """
    values = numerator.sum(0) / denominator.sum(0)
    mean = values.mean()
    if scale == "positive":
        return numerator * (mean / values)
    with np.errstate(divide="ignore"):
        odds = np.log(numerator) - np.log(np.maximum(denominator - numerator, 0.0))

    def shifted(by: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            moved: np.ndarray = denominator / (1 + np.exp(-odds - by))
        return moved

    low, high = np.full(values.shape, -FAR), np.full(values.shape, FAR)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_low = shifted(middle).sum(0) / denominator.sum(0) < mean
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return shifted(low)


def heads_above_the_mean(
    sums: Sums, scale: Scale, n: int, *, repetitions: int, seed: int = 0
) -> tuple[Rates, Rates, Rates]:
    """Heads listed above the mean over heads, as `result.significant(name)` does.

    Returns:
        The share of samples in which any is listed where each is above the mean in half of the
        documents; the same where all are alike in total; and, of the heads that are clearly above
        the mean, the share that is listed. `before` is the test of the total alone.
    """
    numerator, denominator = sums
    same = alike(numerator, denominator, scale)
    values = numerator.sum(0) / denominator.sum(0)
    is_clear = values > CLEAR * values.mean()
    samples = (len(numerator), n, repetitions, seed, len(values))
    middle = _medians(same, denominator, lambda x: x - x.mean(-1, keepdims=True), *samples)
    false, total, before, found = [], [], [], []
    for drawn in draw(*samples):
        a, b, really = drawn.pooled(same, denominator, numerator)
        of, mean = _and_mean(a, b, scale)
        alone = p_above(of - mean)
        off = of.bucket_values - mean.bucket_values
        false += _listed(_both(alone, p_most(off - middle)))
        total += _listed(p_above_both(of, mean))
        before += _any_listed(alone)
        some = drawn.every(SPARSE)
        of, mean = _and_mean(really[:, some], b[:, some], scale)
        tests = p_above(of - mean), p_above_both(of, mean)
        found += [[is_listed(p)[is_clear].mean() for p in of] for of in zip(*tests, strict=True)]
    of, mean = _and_mean(same[:, None], denominator[:, None], scale)
    whole = (of - mean).at(0)
    return _rates(before, false), _rates(before, total, whole), Rates(*np.mean(found, axis=0))


def _medians(
    numerator: np.ndarray,
    denominator: np.ndarray,
    compared: Callable[[np.ndarray], np.ndarray],
    *samples: int,
) -> np.ndarray:
    """`head`: the median over the parts of all samples, of what heads are compared in."""
    size, n, repetitions, seed, width = samples
    values = []
    for drawn in draw(size, n, repetitions, seed + 1, width):
        a, b = drawn.pooled(numerator, denominator)
        with np.errstate(invalid="ignore"):
            values.append(compared(a / b).reshape(-1, width))
    return np.nanmedian(np.concatenate(values), axis=0)


def _both(alone: np.ndarray, most: np.ndarray) -> np.ndarray:
    """The larger p value, where the first is known."""
    return np.where(np.isfinite(alone), np.fmax(alone, most), np.nan)


def _listed(p: np.ndarray) -> list[np.ndarray]:
    """Of each sample: which heads are listed?"""
    return [is_listed(row) for row in p]


def _any_listed(p: np.ndarray) -> list[float]:
    """Of each sample: is any head listed?"""
    return [float(listed.any()) for listed in _listed(p)]


def _and_mean(
    numerator: np.ndarray, denominator: np.ndarray, scale: Scale
) -> tuple[Jackknife, Jackknife]:
    """`sample head` and `sample 1`: heads, and the mean over heads."""
    of = ratio_jackknife(numerator, denominator, scale)
    return of, of.mean((1,)).at(slice(None), None)


def changed_heads(
    sums: Sums, scale: Scale, n: int, *, repetitions: int, seed: int = 0
) -> tuple[Rates, Rates]:
    """The share of samples in which any head “changed” between two models that are alike.

    The second model has the heads of the first in another order, all with the same value. First
    of heads that are higher in half of the documents, then of heads alike in total.
    """
    numerator, denominator = sums
    same = alike(numerator, denominator, scale)
    order = np.random.default_rng(seed).permutation(same.shape[1])
    samples = (len(same), n, repetitions, seed, len(order))
    middle = _medians(same, denominator, lambda x: x - x[..., order], *samples)
    false, total, before = [], [], []
    for drawn in draw(*samples):
        left = ratio_jackknife(*drawn.pooled(same, denominator), scale)  # type: ignore[call-arg]
        right = left.changed(left.value[:, order], lambda array: array[..., order])
        alone = paired(left, right).p
        off = left.bucket_values - right.bucket_values - middle
        most = np.minimum(2 * np.fmin(p_most(off), p_most(-off)), 1.0)
        false += _listed(_both(alone, most))
        total += _listed(p_differs_both(left, right, is_paired=True))
        before += _any_listed(alone)
    whole = ratio_jackknife(same, denominator, scale)
    other = whole.changed(whole.value[order], lambda array: array[:, order])
    return _rates(before, false), _rates(before, total, whole - other)


def best_sets(sums: Sums, scale: Scale, n: int, *, repetitions: int, seed: int = 0) -> Rates:
    """Of the sets of what cannot be told from the highest and the lowest value, the share that
    hold the true one; `before`, how often the superlative itself is true. The true one is that of
    the heads that have a value in the sample.
    """
    numerator, denominator = sums
    truth = numerator.sum(0) / denominator.sum(0)
    holds, before = [], []
    for drawn in draw(len(numerator), n, repetitions, seed, len(truth)):
        of = ratio_jackknife(*drawn.pooled(numerator, denominator), scale)  # type: ignore[call-arg]
        for i in range(len(drawn)):
            values = of.value[i]
            known = np.where(np.isfinite(values), truth, np.nan)
            for lowest, end_of in ((False, np.nanargmax), (True, np.nanargmin)):
                found = best_set(of.at(i), lowest=lowest)
                if found is not None:
                    holds.append(float(found[end_of(known)]))
                    before.append(float(end_of(known) == end_of(values)))
    if not holds:
        return Rates(math.nan, math.nan)
    return Rates(float(np.mean(before)), float(np.mean(holds)))


def slopes(
    sums: Sums, scale: Scale, layers: int, n: int, *, repetitions: int, seed: int = 0
) -> Rates:
    """Of the intervals of the slope over layers, the share that hold that of all documents."""
    numerator, denominator = (x.reshape(len(x), layers, -1) for x in sums)
    truth = slope_of(ratio_jackknife(numerator, denominator, scale).mean((1,))).value
    holds, sizes = [], []
    flat = [x.reshape(len(x), -1) for x in (numerator, denominator)]
    for drawn in draw(len(numerator), n, repetitions, seed, flat[0].shape[1]):
        a, b = (x.reshape(*x.shape[:2], layers, -1) for x in drawn.pooled(*flat))
        of = ratio_jackknife(a, b, scale).mean((2,))
        for i in range(len(drawn)):
            bounds = interval(slope_of(of.at(i)))
            if np.isfinite(bounds.low):
                holds.append(float(bounds.low <= truth <= bounds.high))
                sizes.append(float(bounds.documents))
    return Rates(math.nan, float(np.mean(holds)), effective=float(np.median(sizes)))


def correlations(left: Scaled, right: Scaled, n: int, *, repetitions: int, seed: int = 0) -> Rates:
    """Of the intervals of r over heads, the share that hold the r of all documents."""
    truth = float(correlation(*(a.sum(0) / b.sum(0) for a, b, _ in (left, right))))
    holds, before = [], []
    for drawn in draw(len(left[0]), n, repetitions, seed, left[0].shape[1]):
        sides = [ratio_jackknife(*drawn.pooled(a, b), scale) for a, b, scale in (left, right)]  # type: ignore[call-arg]
        for i in range(len(drawn)):
            both = [of.at(i) for of in sides]
            low, high = correlation_interval(*both)
            if np.isfinite(low):
                holds.append(low <= truth <= high)
                low, high = _r_interval_before(*both)
                before.append(low <= truth <= high)
    return Rates(float(np.mean(before)), float(np.mean(holds)))


def _rates(before: list[float], listed: list[np.ndarray], whole: Jackknife | None = None) -> Rates:
    """Return rates from the heads that each sample lists and the jackknife of all documents."""
    now = [float(of.any()) for of in listed]
    if whole is None:
        return Rates(float(np.mean(before)), float(np.mean(now)), upper_bound(now))
    free = undecided(whole)
    now, apart = (
        [float(of.any()) for of in lists] for lists in (listed, [x[free] for x in listed])
    )
    return Rates(
        float(np.mean(before)),
        float(np.mean(now)),
        upper_bound(now),
        heaviest(whole),
        float(np.mean(apart)),
        upper_bound(apart),
    )


def _r_interval_before(left: Jackknife, right: Jackknife) -> tuple[float, float]:
    """The jackknife on Fisher's z, symmetric about the r of all parts."""
    of = replace(left.mean((0,)) - right.mean((0,)), variance_exponent=VARIANCE_EXPONENT)
    there = of.denominator_shares > 0
    n = int(there.sum())
    without = [(side.value - side.deltas)[there] for side in (left, right)]
    z, center = (np.arctanh(correlation(*x)) for x in (without, [left.value, right.value]))
    half = t_critical(of.df) * np.sqrt((n - 1) / n * ((z - z.mean()) ** 2).sum())
    return float(np.tanh(center - half)), float(np.tanh(center + half))
