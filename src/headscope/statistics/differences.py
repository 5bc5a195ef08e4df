"""Differences of two numbers: over the same documents, or over different ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscope.statistics.intervals import is_enough
from headscope.statistics.pulls import Pulls, subtracted
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
    enough = is_enough(left) & is_enough(right)
    return _difference(of.value, of.variance, np.where(enough, of.df, np.nan))


def unpaired(left: Pulls, right: Pulls) -> Difference:
    """The difference of two numbers over different documents (two genres, two corpora).

    Variances add; the degrees of freedom are Welch's (1947): nearer to those of the side that
    is known less well.
    """
    variances = left.variance, right.variance
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = variances[0] ** 2 / left.df + variances[1] ** 2 / right.df
        df = (variances[0] + variances[1]) ** 2 / parts
    enough = is_enough(left) & is_enough(right)
    value = subtracted(left.value, right.value)
    return _difference(value, variances[0] + variances[1], np.where(enough, df, np.nan))


def _difference(value: np.ndarray, variance: np.ndarray, df: np.ndarray) -> Difference:
    error = np.sqrt(variance)
    half = critical(df) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        p = both_tails(value / error, df)
    p = np.where((value == 0) & np.isfinite(df), 1.0, p)
    return Difference(value, value - half, value + half, p, df + 1)
