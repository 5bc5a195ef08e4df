"""Differences of two estimates, paired or not; effects over texts; permutation tests of groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.lazy import special
from headscope.statistics import intervals
from headscope.statistics.jackknife import (
    EPSILON,
    MAX_VARIANCE_EXPONENT,
    Jackknife,
    pool,
    ratio_jackknife,
    subtracted,
)


@dataclass(frozen=True, slots=True)
class Difference(intervals.Interval):
    """Left minus right, with its interval and the p value of no difference."""

    value: np.ndarray
    p: np.ndarray
    """Two-sided p of this value alone. Correct it in lists (`intervals`)."""


def paired(left: Jackknife, right: Jackknife) -> Difference:
    """Return the difference of two values over the same buckets (two models, one corpus).

    SE² = (G − 1)/G · Σ (u_g − u′_g)², with the smaller of both degrees of freedom. The effect of an
    unusual document on both models cancels. An unpaired interval could be many times too wide.
    """
    estimate = left - right
    skewness = estimate.skewness if estimate.scale == "skewed" else np.zeros_like(estimate.value)
    enough = intervals.is_enough(left) & intervals.is_enough(right)
    return _difference(
        estimate.value, estimate.variance, skewness, np.where(enough, estimate.df, np.nan)
    )


def unpaired(left: Jackknife, right: Jackknife) -> Difference:
    """Return the difference of two values over different documents (two genres, two corpora).
    Variances add, third moments subtract. The degrees of freedom are Welch's (1947).
    """
    enough = intervals.is_enough(left) & intervals.is_enough(right)
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


def over_texts(
    numerator: np.ndarray,
    denominator: np.ndarray,
    clusters: np.ndarray,
    *,
    is_distance: bool = False,
) -> Difference:
    """Return the mean effect Σa/Σb over texts (`text head`), some of which are of one cluster.

    With five clusters (templates) or more, clusters are the units of the jackknife. With fewer,
    texts are, and deviations are taken from the mean of their cluster: the interval is over texts
    within these k clusters, with k − 1 degrees of freedom fewer. Each bound is the farther of
    Student's and Hall's (1992), p is by `conservative_t`. Distances have the
    interval of positive values. Below five units, skewness is not estimated
    and values are assumed about normal; below three, or for copies of one text, intervals are NaN.
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (numerator, denominator))
    n_clusters = int(clusters.max()) + 1
    if n_clusters >= intervals.MIN_BUCKETS or n_clusters == len(clusters):
        a, b, clusters = pool(a, clusters), pool(b, clusters), np.zeros(n_clusters, dtype=int)
        n_clusters = 1
    estimate = replace(ratio_jackknife(a, b), variance_exponent=MAX_VARIANCE_EXPONENT)
    n, deltas = len(a), estimate.deltas
    if n_clusters > 1:
        means = pool(deltas, clusters) / np.bincount(clusters)[:, None]
        deltas = (deltas - means[clusters]) * np.sqrt((n - 1) / max(n - n_clusters, 1))
    estimate = replace(estimate, deltas=deltas)
    df = estimate.df - (n_clusters - 1)
    skewness = estimate.skewness if n >= intervals.MIN_BUCKETS else np.zeros_like(estimate.value)
    # Copies of one text do not vary.
    does_vary = np.sqrt(estimate.variance) > EPSILON * np.abs(estimate.value)
    does_vary |= estimate.value == 0
    df = np.where((df >= intervals.MIN_DF) & does_vary, df, np.nan)
    found, plain = (
        _difference(estimate.value, estimate.variance, of, df) for of in (skewness, 0 * skewness)
    )
    farther = np.minimum(found.low, plain.low), np.maximum(found.high, plain.high)
    found = replace(found, low=farther[0], high=farther[1])
    if n_clusters > 1 or n < intervals.MIN_BUCKETS or not is_distance:
        return found
    bounds = intervals.interval(ratio_jackknife(a, b, "positive"))
    return replace(found, low=bounds.low, high=bounds.high, documents=bounds.documents)


def in_most(found: Difference, values: np.ndarray) -> Difference:
    """Return the difference with the larger of its p and that of most units (`unit head`) having
    the sign of the total (sign test, two-sided): one odd document can decide a total.
    """
    p_sign = np.minimum(2 * p_most(np.sign(found.value) * values), 1.0)
    return replace(found, p=np.maximum(found.p, p_sign))


def _difference(
    value: np.ndarray, variance: np.ndarray, skewness: np.ndarray, df: np.ndarray
) -> Difference:
    """Return the interval by Hall's transformation, and p by `conservative_t`."""
    error, t = np.sqrt(variance), intervals.t_critical(df)
    low, high = (value - intervals.hall_inverse(sign * t, skewness) * error for sign in (1, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = intervals.t_two_sided(intervals.conservative_t(value / error, skewness), df)
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


def typical(estimate: Jackknife, rival: Jackknife | None = None) -> np.ndarray:
    """`…`: return the median over buckets, all of the same weight; NaN if there are none. With a
    rival over the same documents, it is the median of the differences.
    """
    values = estimate.bucket_values
    if rival is not None:
        values = values - rival.bucket_values
    values = np.sort(values, axis=0)  # NaN last; np.nanmedian is slow
    n = np.isfinite(values).sum(0)
    middle = [np.maximum(n - 1, 0) // 2, n // 2]
    low, high = (
        np.take_along_axis(values, np.minimum(m, len(values) - 1)[None], 0)[0] for m in middle
    )
    return np.where(n > 0, (low + high) / 2, np.nan)


def p_above_both(estimate: Jackknife, rival: Jackknife | np.ndarray | float = 0.0) -> np.ndarray:
    """`…`: return p of the one-sided test that the value is above its rival, and that it is so in
    most buckets: the larger of `p_above` and of the sign test's p.

    The rival is a number, or another value of the same documents. The sign test is exact for any
    distribution of documents: under H0, at most half of the buckets are above. A bucket at the
    rival's value counts as below. NaN where `p_above` is.
    """
    values = estimate.bucket_values
    if isinstance(rival, Jackknife):
        p, off = intervals.p_above(estimate - rival), values - rival.bucket_values
    else:
        p, off = intervals.p_above(estimate, rival), values - rival
    return np.where(np.isfinite(p), np.fmax(p, p_most(off)), p)


def p_differs_both(left: Jackknife, right: Jackknife, *, is_paired: bool) -> np.ndarray:
    """`…`: return p of the two-sided test that two values differ, and that most buckets do so in
    the same direction.

    Paired, buckets are compared one by one (sign test); unpaired, each of one side with each of
    the other (Mann & Whitney 1947).
    """
    difference = (paired if is_paired else unpaired)(left, right)
    direction = np.sign(difference.value)
    if is_paired:
        p = 2 * p_most((left.bucket_values - right.bucket_values) * direction)
    else:
        p = 2 * _p_most_pairs(left.bucket_values * direction, right.bucket_values * direction)
    return np.where(np.isfinite(difference.p), np.fmax(difference.p, np.fmin(p, 1.0)), np.nan)


def p_most(off: np.ndarray) -> np.ndarray:
    """Return P(at least k of n signs are positive | ½), for the k positive values of n buckets."""
    n = np.isfinite(off).sum(0)
    with np.errstate(invalid="ignore"):
        k = (off > EPSILON).sum(0)
    return np.where(k > 0, special.betainc(np.maximum(k, 1), n - k + 1, 0.5), 1.0)


def _p_most_pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return p of the one-sided test that most pairs of buckets have the left one higher.

    The share of such pairs is tested against ½ with the variance of its placements (Brunner &
    Munzel 2000) and Welch's degrees of freedom.
    """
    sides = [np.isfinite(side) for side in (left, right)]
    is_pair = sides[0][:, None] & sides[1][None]
    with np.errstate(divide="ignore", invalid="ignore"):
        wins = np.where(is_pair, (np.sign(left[:, None] - right[None]) + 1) / 2, np.nan)
        n = [side.sum(0) for side in sides]
        placements = [np.nansum(wins, axis) / n[axis] for axis in (1, 0)]
        share = np.nansum(wins, (0, 1)) / is_pair.sum((0, 1))
        parts = [
            np.where(side, (of - share) ** 2, 0.0).sum(0) / (size - 1) / size
            for side, of, size in zip(sides, placements, n, strict=True)
        ]
        variance = parts[0] + parts[1]
        df = variance**2 / sum(part**2 / (size - 1) for part, size in zip(parts, n, strict=True))
        t = np.where(share == 0.5, 0.0, (share - 0.5) / np.sqrt(variance))
    return intervals.t_sf(t, np.where(variance > 0, df, 1.0))
