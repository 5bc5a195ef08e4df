"""Correlations over the heads of one model, with intervals over documents.

Heads of a model are not a sample, so r describes them without a p value. The uncertainty of r comes
from the documents that measured each head.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headscope.statistics import intervals
from headscope.statistics.jackknife import VARIANCE_EXPONENT, Jackknife, skewness_of


def pearson(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Return Pearson's r and p of the t test for independent heads; NaN if undefined."""
    r = float(correlation(left, right))
    n = int((np.isfinite(left) & np.isfinite(right)).sum())
    if not np.isfinite(r) or n < 3:
        return float("nan"), float("nan")
    if abs(r) >= 1:
        return r, 0.0
    t = r * np.sqrt((n - 2) / (1 - r * r))
    return r, float(intervals.t_two_sided(t, n - 2))


def correlation(left: np.ndarray, right: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Return Pearson's r along an axis, where both are finite; NaN if one side is constant."""
    is_finite = np.isfinite(left) & np.isfinite(right)
    n = is_finite.sum(axis, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (np.where(is_finite, side, 0.0) for side in (left, right))
        a, b = (np.where(is_finite, x - x.sum(axis, keepdims=True) / n, 0.0) for x in (a, b))
        r = (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))
    return np.clip(r, -1.0, 1.0)


def ranks(values: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Return ranks along an axis, from 1; equal values share their mean rank. All NaN if a value is
    NaN.
    """
    from scipy.stats import rankdata  # type: ignore[import-untyped, unused-ignore]

    return np.asarray(rankdata(values, axis=axis))


def correlation_interval(left: Jackknife, right: Jackknife) -> tuple[float, float]:
    """Return the jackknife interval of r over heads.

    z = artanh r (Fisher 1915); SE² = (G − 1)/G · Σ (z₍₋g₎ − z̄)². Few documents that move r one way
    skew its errors: each bound is the farther of z ± t_df · SE and Hall's (1992), transformed back
    by tanh. NaN with fewer than five buckets.
    """
    estimate = replace(left.mean((0,)) - right.mean((0,)), variance_exponent=VARIANCE_EXPONENT)
    has_documents = estimate.denominator_shares > 0
    df, n = float(estimate.df), int(has_documents.sum())
    if n < intervals.MIN_BUCKETS or not df >= intervals.MIN_DF:
        return float("nan"), float("nan")
    center = _fisher(correlation(left.value, right.value))
    without = _fisher(
        correlation(*((side.value - side.deltas)[has_documents] for side in (left, right)))
    )
    off = without.mean() - without
    error = np.sqrt((n - 1) / n * (off**2).sum())
    t, skewness = intervals.t_critical(df), skewness_of(off)
    below, above = (max(t, sign * intervals.hall_inverse(sign * t, skewness)) for sign in (1, -1))
    return float(np.tanh(center - below * error)), float(np.tanh(center + above * error))


def _fisher(r: np.ndarray) -> np.ndarray:
    return np.arctanh(np.clip(r, -1 + 1e-15, 1 - 1e-15))


def within_layers(
    left: np.ndarray, right: np.ndarray, *, n_permutations: int = 1999, seed: int = 0
) -> tuple[float, float]:
    """`layer head`, twice: return r of heads after removing layer means, and its permutation p.

    Two variables that both change with depth correlate over heads. Removing the layer means removes
    that. p is the share of shuffles of heads within layers, the observed order included, with an
    |r| at least as high.
    """
    is_known = np.isfinite(left) & np.isfinite(right)
    usable = is_known.sum(1) > 1
    if not usable.any():
        return float("nan"), float("nan")
    a, b = (np.where(is_known, side, np.nan)[usable] for side in (left, right))
    a, b = (np.nan_to_num(x - np.nanmean(x, axis=1, keepdims=True)) for x in (a, b))
    is_known = is_known[usable]
    size = np.sqrt((a * a).sum() * (b * b).sum())
    if not size > 0:
        return float("nan"), float("nan")
    r = float((a * b).sum() / size)
    generator = np.random.default_rng(seed)
    products = np.zeros(n_permutations)
    for row_a, row_b, mask in zip(a, b, is_known, strict=True):
        heads = row_b[mask]
        shuffled = generator.permuted(np.tile(heads, (n_permutations, 1)), axis=1)
        products += shuffled @ row_a[mask]
    at_least = (np.abs(products / size) >= abs(r) - 1e-12).sum()
    return r, float((at_least + 1) / (n_permutations + 1))
