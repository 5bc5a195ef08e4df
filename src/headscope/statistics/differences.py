"""Differences of two numbers: over the same documents, or over different ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.intervals import cautious, is_enough, skewed
from headscope.statistics.pulls import FULL, Pulls, subtracted
from headscope.statistics.student import both_tails, critical


@dataclass(frozen=True, slots=True)
class Difference:
    """Left minus right, with its interval and the p value of no difference."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    """Two-sided, of this number alone: correct it where many are read (`corrections`)."""
    documents: np.ndarray
    """The effective number of documents, df + 1; NaN where there is no interval."""

    @property
    def bounds(self) -> np.ndarray:
        """`bound …`."""
        return np.stack((self.low, self.high))


def paired(left: Pulls, right: Pulls) -> Difference:
    """The difference of two numbers over the same parts (two models over one corpus).

    SE² = (G − 1)/G · Σ (u_g − u′_g)², with the smaller of both degrees of freedom. A document
    that is long or odd is so for both models and cancels; taken as different documents, the
    interval could be many times too wide.
    """
    of = left - right
    skewness = of.skewness if of.scale == "skewed" else np.zeros_like(of.value)
    enough = is_enough(left) & is_enough(right)
    return _difference(of.value, of.variance, skewness, np.where(enough, of.df, np.nan))


def unpaired(left: Pulls, right: Pulls) -> Difference:
    """The difference of two numbers over different documents (two genres, two corpora).

    Variances add, and third moments subtract; the degrees of freedom are Welch's (1947): nearer
    to those of the side that is known less well.
    """
    enough = is_enough(left) & is_enough(right)
    left, right = (replace(side, agreement=FULL) for side in (left, right))
    variances = left.variance, right.variance
    variance = variances[0] + variances[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        df = variance**2 / (variances[0] ** 2 / left.df + variances[1] ** 2 / right.df)
        thirds = [v**1.5 * side.skewness for v, side in zip(variances, (left, right), strict=True)]
        skewness = np.where(variance > 0, (thirds[0] - thirds[1]) / variance**1.5, 0.0)
    if "positive" not in (left.scale, right.scale):
        skewness = np.zeros_like(skewness)
    value = subtracted(left.value, right.value)
    return _difference(value, variance, skewness, np.where(enough, df, np.nan))


def _difference(
    value: np.ndarray, variance: np.ndarray, skewness: np.ndarray, df: np.ndarray
) -> Difference:
    """The interval by Hall's transformation, the p value by the more careful of it and plain t."""
    error, t = np.sqrt(variance), critical(df)
    low, high = (value - skewed(sign * t, skewness) * error for sign in (1, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = both_tails(cautious(value / error, skewness), df)
    p = np.where((value == 0) & np.isfinite(df), 1.0, p)
    return Difference(value, low, high, p, df + 1)
