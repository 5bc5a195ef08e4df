"""Lists of heads and correlations over heads: how often they are wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.corrections import benjamini_hochberg
from headscope.statistics.correlation import correlation, correlation_interval
from headscope.statistics.differences import paired
from headscope.statistics.intervals import is_enough, p_above
from headscope.statistics.pulls import AGREEMENT, Pulls, Scale, ratio_pulls
from headscope.statistics.student import both_tails, critical, upper_tail
from studies.errors.rates import pool_sample, samples
from studies.errors.record import upper_bound

__all__ = ["Rates", "alike", "changed_heads", "correlations", "heads_above_the_mean"]

LEVEL = 0.05
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
    false, found = [], []
    for number, (_, parts) in enumerate(samples(len(numerator), n, repetitions, seed)):
        b = pool_sample(denominator, *parts)
        tests = _tests(pool_sample(same, *parts), b, scale)
        false.append([float(_is_listed(p).any()) for p in tests])
        if number % SPARSE == 0:
            tests = _tests(pool_sample(numerator, *parts), b, scale)
            found.append([_is_listed(p)[is_clear].mean() for p in tests])
    return _rates(false), Rates(*np.mean(found, axis=0))


def _tests(numerator: np.ndarray, denominator: np.ndarray, scale: Scale) -> list[np.ndarray]:
    """Against the mean over heads: p by the rule of before, and by that of now."""
    of = ratio_pulls(numerator, denominator, scale)
    difference = of - of.mean((0,)).at(None)
    return [_p_above_before(difference), p_above(difference)]


def changed_heads(sums: Sums, scale: Scale, n: int, *, repetitions: int, seed: int = 0) -> Rates:
    """The share of samples in which any head “changed” between two models that are alike.

    The second model has the heads of the first in another order, all with the same value.
    """
    numerator, denominator = sums
    same = alike(numerator, denominator, scale)
    order = np.random.default_rng(seed).permutation(same.shape[1])
    false = []
    for _, parts in samples(len(same), n, repetitions, seed):
        left = ratio_pulls(pool_sample(same, *parts), pool_sample(denominator, *parts), scale)
        right = left.changed(left.value[order], lambda array: array[:, order])
        tests = (_p_differs_before(left - right), paired(left, right).p)
        false.append([float(_is_listed(p).any()) for p in tests])
    return _rates(false)


def correlations(left: Scaled, right: Scaled, n: int, *, repetitions: int, seed: int = 0) -> Rates:
    """Of the intervals of r over heads, the share that hold the r of all documents."""
    truth = float(correlation(*(a.sum(0) / b.sum(0) for a, b, _ in (left, right))))
    holds = []
    for _, parts in samples(len(left[0]), n, repetitions, seed):
        both = [
            ratio_pulls(pool_sample(a, *parts), pool_sample(b, *parts), scale)
            for a, b, scale in (left, right)
        ]
        bounds = np.array([_r_interval_before(*both), correlation_interval(*both)])
        if np.isfinite(bounds).all():
            holds.append((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))
    return Rates(*np.mean(holds, axis=0))


def _rates(outcomes: list[list[float]]) -> Rates:
    before, now = np.array(outcomes).T
    return Rates(float(before.mean()), float(now.mean()), upper_bound(now))


def _is_listed(p: np.ndarray) -> np.ndarray:
    listed: np.ndarray = np.nan_to_num(benjamini_hochberg(p), nan=1.0) < LEVEL
    return listed


def _t_before(of: Pulls) -> tuple[np.ndarray, np.ndarray]:
    of = replace(of, agreement=AGREEMENT)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = of.value / np.sqrt(of.variance)
    return t, np.where(is_enough(of), of.df, np.nan)


def _p_above_before(of: Pulls) -> np.ndarray:
    """Student's t, as if the errors of a difference were symmetric."""
    return upper_tail(*_t_before(of))


def _p_differs_before(of: Pulls) -> np.ndarray:
    return both_tails(*_t_before(of))


def _r_interval_before(left: Pulls, right: Pulls) -> tuple[float, float]:
    """The jackknife on Fisher's z, symmetric about the r of all parts."""
    of = replace(left.mean((0,)) - right.mean((0,)), agreement=AGREEMENT)
    there = of.shares > 0
    n = int(there.sum())
    without = [(side.value - side.pulls)[there] for side in (left, right)]
    z, center = (np.arctanh(correlation(*x)) for x in (without, [left.value, right.value]))
    half = critical(of.df) * np.sqrt((n - 1) / n * ((z - z.mean()) ** 2).sum())
    return float(np.tanh(center - half)), float(np.tanh(center + half))
