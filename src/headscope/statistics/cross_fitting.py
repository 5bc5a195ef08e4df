"""The best of many heads, scored on documents that did not choose it.

The best of 270 heads looks better than it is, and so does a test that forgets that it was
chosen. Each half of the documents chooses for the other, so that no document scores a choice it
took part in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.intervals import Interval, interval, p_above
from headscope.statistics.jackknife import (
    MAX_VARIANCE_EXPONENT,
    VARIANCE_EXPONENT,
    Jackknife,
    ratio_jackknife,
)

MIN_CASES = 20
MIN_CASE_BUCKETS = 6


@dataclass(frozen=True, slots=True)
class CrossFitScore:
    """How often heads that the other half of the documents chose are right."""

    score: float
    interval: tuple[float, float]
    gain: float
    """How far the score is above the best of the rivals."""
    gain_interval: tuple[float, float]
    p: float
    """One-sided, that the heads are not above every rival; NaN where there are too few cases."""
    chosen: tuple[int, int]
    """The classifiers that the odd buckets chose for the even ones, and the even for the odd."""


def cross_fit(right: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """`bucket …`: what the classifier that the other half of the buckets chose gets right in each.

    Args:
        right: `bucket classifier …`, cases that each classifier gets right. Parts with an even
            number are one half, those with an odd number the other.

    Returns:
        The right cases, and which classifiers the odd buckets and the even buckets chose.
    """
    halves = np.arange(len(right)) % 2
    of_odd, of_even = (int(right[halves == half].sum(0).argmax()) for half in (1, 0))
    return np.where(halves == 0, right[:, of_odd], right[:, of_even]), (of_odd, of_even)


def cross_fit_score(right: np.ndarray, cases: np.ndarray, rivals: np.ndarray) -> CrossFitScore:
    """Is the best head above every rival (a fixed offset, a rule)?

    The right cases of the heads chosen, Σ right_g/Σ cases_g, are a ratio like any other, and so
    is the difference to each rival, Σ (right_g − rival_g)/Σ cases_g, bucket by bucket. All of the
    differences must be above 0: the largest of their p values is that of the claim (an
    intersection-union test, Berger 1982), and the interval is that of the smallest difference.
    There is no score where a half has no cases, and no test with fewer than 20 cases or 6 buckets
    that have any.

    Args:
        right: `bucket classifier`, cases that each head (and direction) gets right.
        cases: `bucket`.
        rivals: `bucket rival`, cases that each rival gets right.
    """
    nothing = (float("nan"), float("nan"))
    if not all(cases[half::2].sum() > 0 for half in (0, 1)):
        return CrossFitScore(np.nan, nothing, np.nan, nothing, np.nan, (-1, -1))
    by_bucket, chosen = cross_fit(right)
    score = ratio_jackknife(by_bucket, cases, "logit")
    gains = replace(
        ratio_jackknife(by_bucket[:, None] - rivals, cases[:, None]),
        variance_exponent=MAX_VARIANCE_EXPONENT,
    )
    lowest = int(np.argmin(gains.value))
    is_enough = cases.sum() >= MIN_CASES and (cases > 0).sum() >= MIN_CASE_BUCKETS
    # Where no bucket tells head and rival apart, there is nothing in favor of the head.
    p = float(np.max(np.nan_to_num(p_above(gains), nan=1.0))) if is_enough else float("nan")
    return CrossFitScore(
        float(score.value),
        _bounds(interval(score)),
        float(gains.value[lowest]),
        _bounds(interval(gains.at(lowest))) if is_enough else nothing,
        p,
        chosen,
    )


def count_ties(score: Jackknife, level: float = 0.05) -> int | None:
    """How many classifiers cannot be told from the best: paired p above the level, uncorrected.

    None where too few documents have cases for any test: then nothing is known of ties.

    Args:
        score: `bucket classifier`.
        level: below which a classifier is worse than the best.
    """
    values = np.nan_to_num(np.asarray(score.value), nan=-np.inf)
    best = score.at(int(values.argmax()))
    # One test at a time is nowhere near the tail that `MAX_VARIANCE_EXPONENT` is for.
    p = p_above(replace(best.at(None) - score, variance_exponent=VARIANCE_EXPONENT))
    if not np.isfinite(p).any():
        return None
    return int(((~(p < level)) & np.isfinite(score.value)).sum())


def _bounds(of: Interval) -> tuple[float, float]:
    return float(of.low), float(of.high)
