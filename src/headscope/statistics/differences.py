"""Differences of two numbers: over the same documents, or over different ones.

Whether kinds of text differ: documents dealt to kinds at random, as the yardstick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.intervals import (
    conservative_t,
    hall_inverse,
    is_enough,
    t_critical,
    t_two_sided,
)
from headscope.statistics.jackknife import MAX_VARIANCE_EXPONENT, Jackknife, subtracted


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


def paired(left: Jackknife, right: Jackknife) -> Difference:
    """The difference of two numbers over the same buckets (two models over one corpus).

    SE² = (G − 1)/G · Σ (u_g − u′_g)², with the smaller of both degrees of freedom. A document
    that is long or odd is so for both models and cancels; taken as different documents, the
    interval could be many times too wide.
    """
    of = left - right
    skewness = of.skewness if of.scale == "skewed" else np.zeros_like(of.value)
    enough = is_enough(left) & is_enough(right)
    return _difference(of.value, of.variance, skewness, np.where(enough, of.df, np.nan))


def unpaired(left: Jackknife, right: Jackknife) -> Difference:
    """The difference of two numbers over different documents (two genres, two corpora).

    Variances add, and third moments subtract; the degrees of freedom are Welch's (1947): nearer
    to those of the side that is known less well.
    """
    enough = is_enough(left) & is_enough(right)
    left, right = (replace(side, variance_exponent=MAX_VARIANCE_EXPONENT) for side in (left, right))
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
    error, t = np.sqrt(variance), t_critical(df)
    low, high = (value - hall_inverse(sign * t, skewness) * error for sign in (1, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = t_two_sided(conservative_t(value / error, skewness), df)
    p = np.where((value == 0) & np.isfinite(df), 1.0, p)
    return Difference(value, low, high, p, df + 1)


N_PERMUTATIONS = 1999


@dataclass(frozen=True, slots=True)
class GroupTest:
    """One variable over groups of documents, and how often chance would set them as far apart."""

    p: float
    """Of all groups being alike."""
    deviations: np.ndarray
    """`group`: how far each is from the value of all; NaN for groups without documents."""
    pair_p: np.ndarray
    """`group group`: of each pair, corrected for looking at all pairs."""


def permutation_test(
    of: Jackknife, groups: np.ndarray, *, n_permutations: int = N_PERMUTATIONS, seed: int = 0
) -> GroupTest:
    """Do groups of documents differ in a number, averaged over heads?

    Under one common θ, bucket g deviates by u_g = (a_g − θ b_g)/B and weighs w_g = b_g/B, both
    averaged over heads; group k by d_k = Σu_g/W_k with W_k = Σw_g. The statistic is

        F = Σ W_k d_k² / (Σ (u_g − d_k w_g)²/w_g / (G − K)),

    and p is the share of shuffles of whole documents between the groups, the observed deal
    among them, with an F at least as high (Fisher 1935; Phipson & Smyth 2010). Pairs are tested
    by the largest standardized difference of any pair in each shuffle, so that all pairs may be
    read (Westfall & Young 1993).

    Args:
        of: the number, over any axes of heads, whose buckets each belong to one group.
        groups: `bucket`, the number of each bucket's group.
        n_permutations: how many shuffles.
        seed: of the shuffles.
    """
    n_groups = int(groups.max()) + 1
    scores = of.deltas * (1 - of.denominator_shares)  # (a − θ b)/B
    heads = tuple(range(1, scores.ndim))
    is_known = np.isfinite(of.value)
    n_heads = max(int(is_known.sum()), 1)
    u = np.where(is_known, scores, 0.0).sum(heads) / n_heads
    w = np.where(is_known, of.denominator_shares, 0.0).sum(heads) / n_heads
    there = w > 0
    u, w, groups = u[there], w[there], groups[there]
    nothing = np.full(n_groups, np.nan)
    sizes = np.bincount(groups, minlength=n_groups)
    n_free = len(u) - int((sizes > 0).sum())
    if (sizes > 0).sum() < 2 or n_free < 1 or not (u != 0).any():
        return GroupTest(float("nan"), nothing, np.full((n_groups, n_groups), np.nan))
    generator = np.random.default_rng(seed)
    shuffled = np.stack([groups, *(generator.permutation(groups) for _ in range(n_permutations))])
    weights = _by_group(shuffled, w, n_groups)
    sums = _by_group(shuffled, u, n_groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = sums / weights
        between = np.where(weights > 0, weights * deviations**2, 0.0).sum(1)
        spread = np.maximum((u**2 / w).sum() - between, 0.0) / n_free
        f = between / spread
        apart = np.abs(deviations[:, :, None] - deviations[:, None, :])
        errors = np.sqrt(spread[:, None, None] * (1 / weights[:, :, None] + 1 / weights[:, None]))
        standardized = apart / errors
    highest = np.nanmax(standardized.reshape(len(shuffled), -1), axis=1)
    observed = np.where(np.eye(n_groups, dtype=bool), np.nan, standardized[0])
    at_least = highest[:, None, None] >= observed * (1 - 1e-12)
    pair_p = np.where(np.isfinite(observed), at_least.mean(0), np.nan)
    p = float((f >= f[0] * (1 - 1e-12)).mean())
    return GroupTest(p, deviations[0], pair_p)


def _by_group(shuffled: np.ndarray, values: np.ndarray, n_groups: int) -> np.ndarray:
    """`shuffle group`: sums of the buckets that each shuffle puts into each group."""
    rows = np.arange(len(shuffled))[:, None] * n_groups
    flat = np.bincount(
        (shuffled + rows).ravel(),
        np.broadcast_to(values, shuffled.shape).ravel(),
        len(shuffled) * n_groups,
    )
    return flat.reshape(len(shuffled), n_groups)
