"""Lists of heads and correlations over heads: how often they are wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.correlation import correlation, correlation_interval
from headscope.statistics.differences import paired
from headscope.statistics.intervals import is_enough, p_above, t_critical, t_sf, t_two_sided
from headscope.statistics.jackknife import VARIANCE_EXPONENT, Jackknife, Scale, ratio_jackknife
from studies.errors.decided import heaviest, undecided
from studies.errors.draws import draw
from studies.errors.rates import is_listed
from studies.errors.record import upper_bound

__all__ = ["Rates", "alike", "changed_heads", "correlations", "heads_above_the_mean"]

CLEAR = 1.2
"""A head with more than so many times the mean is one to be found."""
SPARSE = 10
"""Power, and what the rule of before would have said, are counted on every tenth sample …"""
OFTEN = 5
"""… and false heads by the rule of before on every fifth."""
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
) -> tuple[Rates, Rates]:
    """Heads listed above the mean over heads, as `result.significant(name)` does.

    Returns:
        The share of samples in which any is listed where all are alike, and, of the heads that
        are clearly above the mean, the share that is listed.
    """
    numerator, denominator = sums
    same = alike(numerator, denominator, scale)
    values = numerator.sum(0) / denominator.sum(0)
    is_clear = values > CLEAR * values.mean()
    false, before, found = [], [], []
    for drawn in draw(len(numerator), n, repetitions, seed, len(values)):
        a, b, really = drawn.pooled(same, denominator, numerator)
        difference = _from_the_mean(a, b, scale)
        false += _listed(p_above(difference))
        before += _any_listed(_p_above_before(_some(difference, drawn.every(OFTEN))))
        some = drawn.every(SPARSE)
        difference = _from_the_mean(really[:, some], b[:, some], scale)
        tests = _p_above_before(difference), p_above(difference)
        found += [[is_listed(p)[is_clear].mean() for p in of] for of in zip(*tests, strict=True)]
    whole = _from_the_mean(same[:, None], denominator[:, None], scale).at(0)
    return _rates(before, false, whole), Rates(*np.mean(found, axis=0))


def _listed(p: np.ndarray) -> list[np.ndarray]:
    """Of each sample: which heads are listed?"""
    return [is_listed(row) for row in p]


def _any_listed(p: np.ndarray) -> list[float]:
    """Of each sample: is any head listed?"""
    return [float(listed.any()) for listed in _listed(p)]


def _some(of: Jackknife, samples: np.ndarray) -> Jackknife:
    return of.changed(of.value[samples], lambda array: array[:, samples])


def _from_the_mean(numerator: np.ndarray, denominator: np.ndarray, scale: Scale) -> Jackknife:
    """`sample head`: how far each head is above the mean over heads."""
    of = ratio_jackknife(numerator, denominator, scale)
    return of - of.mean((1,)).at(slice(None), None)


def changed_heads(sums: Sums, scale: Scale, n: int, *, repetitions: int, seed: int = 0) -> Rates:
    """The share of samples in which any head “changed” between two models that are alike.

    The second model has the heads of the first in another order, all with the same value.
    """
    numerator, denominator = sums
    same = alike(numerator, denominator, scale)
    order = np.random.default_rng(seed).permutation(same.shape[1])
    false, before = [], []
    for drawn in draw(len(same), n, repetitions, seed, len(order)):
        left = ratio_jackknife(*drawn.pooled(same, denominator), scale)  # type: ignore[call-arg]
        right = left.changed(left.value[:, order], lambda array: array[..., order])
        false += _listed(paired(left, right).p)
        some = drawn.every(OFTEN)
        before += _any_listed(_p_differs_before(_some(left, some) - _some(right, some)))
    whole = ratio_jackknife(same, denominator, scale)
    other = whole.changed(whole.value[order], lambda array: array[:, order])
    return _rates(before, false, whole - other)


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


def _rates(before: list[float], listed: list[np.ndarray], whole: Jackknife) -> Rates:
    """Return rates from the heads that each sample lists and the jackknife of all documents."""
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


def _t_before(of: Jackknife) -> tuple[np.ndarray, np.ndarray]:
    of = replace(of, variance_exponent=VARIANCE_EXPONENT)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = of.value / np.sqrt(of.variance)
    return t, np.where(is_enough(of), of.df, np.nan)


def _p_above_before(of: Jackknife) -> np.ndarray:
    """Student's t, as if the errors of a difference were symmetric."""
    return t_sf(*_t_before(of))


def _p_differs_before(of: Jackknife) -> np.ndarray:
    return t_two_sided(*_t_before(of))


def _r_interval_before(left: Jackknife, right: Jackknife) -> tuple[float, float]:
    """The jackknife on Fisher's z, symmetric about the r of all parts."""
    of = replace(left.mean((0,)) - right.mean((0,)), variance_exponent=VARIANCE_EXPONENT)
    there = of.denominator_shares > 0
    n = int(there.sum())
    without = [(side.value - side.deltas)[there] for side in (left, right)]
    z, center = (np.arctanh(correlation(*x)) for x in (without, [left.value, right.value]))
    half = t_critical(of.df) * np.sqrt((n - 1) / n * ((z - z.mean()) ** 2).sum())
    return float(np.tanh(center - half)), float(np.tanh(center + half))
