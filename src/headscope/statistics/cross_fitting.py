"""Cross-fitted score of the best of many heads, tested against baselines.

The maximum over 270 heads is biased upward. Each half of the documents chooses the head that is
scored on the other half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.intervals import ALPHA, Interval, interval, p_above
from headscope.statistics.jackknife import MAX_VARIANCE_EXPONENT, Jackknife, ratio_jackknife

MIN_CASES = 20
MIN_CASE_BUCKETS = 6


@dataclass(frozen=True, slots=True)
class CrossFitScore:
    """Accuracy of heads that were chosen on the other half of the documents."""

    score: float
    interval: tuple[float, float]
    gain: float
    """Difference to the best baseline."""
    gain_interval: tuple[float, float]
    p: float
    """One-sided p of H0: not above every baseline; NaN with too few cases."""
    chosen: tuple[int, int]
    """Classifiers chosen on the odd buckets (scored on the even ones), and on the even buckets."""


def cross_fit(right: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """`bucket …`: return the right cases of the classifier that the other half chose.
    Also return the classifiers that the odd and the even buckets chose.

    `right` (`bucket classifier …`) has the cases that each classifier gets right. Even buckets are
    one half, odd buckets the other.
    """
    halves = np.arange(len(right)) % 2
    by_odd, by_even = (int(right[halves == half].sum(0).argmax()) for half in (1, 0))
    return np.where(halves == 0, right[:, by_odd], right[:, by_even]), (by_odd, by_even)


def cross_fit_score(right: np.ndarray, cases: np.ndarray, baselines: np.ndarray) -> CrossFitScore:
    """Test whether the best head is above every baseline (a fixed offset, a rule).

    The score is Σ right_g/Σ cases_g, the difference to a baseline Σ (right_g − baseline_g)/Σ
    cases_g. All differences must be above 0: the p value is the largest of theirs (an
    intersection-union test, Berger 1982), and the interval is that of the smallest difference. The
    score is NaN if a half has no cases, p with fewer than 20 cases or 6 buckets with cases.

    Args:
        right: `bucket classifier`, cases that each head (and direction) gets right.
        cases: `bucket`.
        baselines: `bucket baseline`, cases that each baseline gets right.
    """
    unknown = (float("nan"), float("nan"))
    if not all(cases[half::2].sum() > 0 for half in (0, 1)):
        return CrossFitScore(np.nan, unknown, np.nan, unknown, np.nan, (-1, -1))
    by_bucket, chosen = cross_fit(right)
    score = ratio_jackknife(by_bucket, cases, "logit")
    gains = replace(
        ratio_jackknife(by_bucket[:, None] - baselines, cases[:, None]),
        variance_exponent=MAX_VARIANCE_EXPONENT,
    )
    lowest = int(np.argmin(gains.value))
    is_enough = cases.sum() >= MIN_CASES and (cases > 0).sum() >= MIN_CASE_BUCKETS
    # If all buckets are ties, p is 1.
    p = float(np.max(np.nan_to_num(p_above(gains), nan=1.0))) if is_enough else float("nan")
    return CrossFitScore(
        float(score.value),
        _bounds(interval(score)),
        float(gains.value[lowest]),
        _bounds(interval(gains.at(lowest))) if is_enough else unknown,
        p,
        chosen,
    )


def best_set(score: Jackknife, *, lowest: bool = False) -> np.ndarray | None:
    """`classifier`: return which values cannot be told from the highest (or the lowest).

    The truly highest one is among them in at least 95 % of samples: each value is tested against
    the one observed as highest, paired, with p times the number of others (Bonferroni), because
    any of them could have come out highest. None if too few documents have cases for any test.
    """
    values = np.asarray(score.value)
    is_known = np.isfinite(values)
    if not is_known.any():
        return None
    best = score.at(int(np.nanargmin(values) if lowest else np.nanargmax(values))).at(None)
    p = p_above(score - best if lowest else best - score)
    if not np.isfinite(p).any():
        return None
    with np.errstate(invalid="ignore"):
        return is_known & ~(p * (is_known.sum() - 1) < ALPHA)


def _bounds(estimate: Interval) -> tuple[float, float]:
    return float(estimate.low), float(estimate.high)
