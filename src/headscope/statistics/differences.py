"""Differences of two estimates, paired or not, and permutation tests of groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.statistics.intervals import (
    Interval,
    conservative_t,
    hall_inverse,
    is_enough,
    t_critical,
    t_two_sided,
)
from headscope.statistics.jackknife import MAX_VARIANCE_EXPONENT, Jackknife, subtracted


@dataclass(frozen=True, slots=True)
class Difference(Interval):
    """Left minus right, with its interval and the p value of no difference."""

    value: np.ndarray
    p: np.ndarray
    """Two-sided p of this value alone. Correct it in lists (`multiple_testing`)."""


def paired(left: Jackknife, right: Jackknife) -> Difference:
    """Return the difference of two values over the same buckets (two models, one corpus).

    SE² = (G − 1)/G · Σ (u_g − u′_g)², with the smaller of both degrees of freedom. The effect of an
    unusual document on both models cancels. An unpaired interval could be many times too wide.
    """
    estimate = left - right
    skewness = estimate.skewness if estimate.scale == "skewed" else np.zeros_like(estimate.value)
    enough = is_enough(left) & is_enough(right)
    return _difference(
        estimate.value, estimate.variance, skewness, np.where(enough, estimate.df, np.nan)
    )


def unpaired(left: Jackknife, right: Jackknife) -> Difference:
    """Return the difference of two values over different documents (two genres, two corpora).

    Variances add, third moments subtract. The degrees of freedom are Welch's (1947).
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
    """Return the interval by Hall's transformation, and p by `conservative_t`."""
    error, t = np.sqrt(variance), t_critical(df)
    low, high = (value - hall_inverse(sign * t, skewness) * error for sign in (1, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = t_two_sided(conservative_t(value / error, skewness), df)
    p = np.where((value == 0) & np.isfinite(df), 1.0, p)
    return Difference(low, high, df + 1, value, p)


N_PERMUTATIONS = 1999


@dataclass(frozen=True, slots=True)
class GroupTest:
    """Permutation test of one variable over groups of documents."""

    p: float
    """p value under H0: all groups are equal."""
    deviations: np.ndarray
    """`group`: difference of each group from the overall value; NaN for groups without documents.
    """
    pair_p: np.ndarray
    """`group group`: p value of each pair, corrected for all pairs."""


def permutation_test(
    estimate: Jackknife, groups: np.ndarray, *, n_permutations: int = N_PERMUTATIONS, seed: int = 0
) -> GroupTest:
    """Test whether groups of documents differ in a value, averaged over heads.

    Under one common θ, bucket g deviates by u_g = (a_g − θ b_g)/B and weighs w_g = b_g/B, both
    averaged over heads; group k by d_k = Σu_g/W_k with W_k = Σw_g. The statistic is

        F = Σ W_k d_k² / (Σ (u_g − d_k w_g)²/w_g / (G − K)).

    p is the share of shuffles of buckets between groups, the observed one included, with an F at
    least as high (Fisher 1935; Phipson & Smyth 2010). Pairs are tested by the largest standardized
    difference of any pair in each shuffle, so all pairs may be read (Westfall & Young 1993).
    `groups` (`bucket`) numbers the group of each bucket.
    """
    n_groups = int(groups.max()) + 1
    scores = estimate.deltas * (1 - estimate.denominator_shares)  # (a − θ b)/B
    heads = tuple(range(1, scores.ndim))
    is_known = np.isfinite(estimate.value)
    n_heads = max(int(is_known.sum()), 1)
    u = np.where(is_known, scores, 0.0).sum(heads) / n_heads
    w = np.where(is_known, estimate.denominator_shares, 0.0).sum(heads) / n_heads
    has_documents = w > 0
    u, w, groups = u[has_documents], w[has_documents], groups[has_documents]
    unknown = np.full(n_groups, np.nan)
    sizes = np.bincount(groups, minlength=n_groups)
    n_free = len(u) - int((sizes > 0).sum())
    if (sizes > 0).sum() < 2 or n_free < 1 or not (u != 0).any():
        return GroupTest(float("nan"), unknown, np.full((n_groups, n_groups), np.nan))
    generator = np.random.default_rng(seed)
    shuffled = np.stack([groups, *(generator.permutation(groups) for _ in range(n_permutations))])
    weights = _by_group(shuffled, w, n_groups)
    sums = _by_group(shuffled, u, n_groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = sums / weights
        between = np.where(weights > 0, weights * deviations**2, 0.0).sum(1)
        spread = np.maximum((u**2 / w).sum() - between, 0.0) / n_free
        f = between / spread
        gaps = np.abs(deviations[:, :, None] - deviations[:, None, :])
        errors = np.sqrt(spread[:, None, None] * (1 / weights[:, :, None] + 1 / weights[:, None]))
        standardized = gaps / errors
    highest = np.nanmax(standardized.reshape(len(shuffled), -1), axis=1)
    observed = np.where(np.eye(n_groups, dtype=bool), np.nan, standardized[0])
    at_least = highest[:, None, None] >= observed * (1 - 1e-12)
    pair_p = np.where(np.isfinite(observed), at_least.mean(0), np.nan)
    p = float((f >= f[0] * (1 - 1e-12)).mean())
    return GroupTest(p, deviations[0], pair_p)


def _by_group(shuffled: np.ndarray, values: np.ndarray, n_groups: int) -> np.ndarray:
    """`shuffle group`: return the sums of the buckets that each shuffle puts into each group."""
    rows = np.arange(len(shuffled))[:, None] * n_groups
    flat = np.bincount(
        (shuffled + rows).ravel(),
        np.broadcast_to(values, shuffled.shape).ravel(),
        len(shuffled) * n_groups,
    )
    return flat.reshape(len(shuffled), n_groups)
