"""Pearson's r, over heads and for many draws at once."""

from __future__ import annotations

import numpy as np
from scipy import stats  # type: ignore[import-untyped, unused-ignore]


def pearson(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Pearson's r and its p value over the heads that have both values; NaN if r is undefined."""
    r = float(correlation(left, right))
    n = int((np.isfinite(left) & np.isfinite(right)).sum())
    if not np.isfinite(r) or n < 3:
        return float("nan"), float("nan")
    if abs(r) >= 1:
        return r, 0.0
    t = r * np.sqrt((n - 2) / (1 - r * r))
    return r, float(2 * stats.t.sf(abs(t), n - 2))


def correlation(left: np.ndarray, right: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Pearson's r along an axis, over the places where both sides are finite.

    NaN where one side is constant.
    """
    both = np.isfinite(left) & np.isfinite(right)
    n = both.sum(axis, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (np.where(both, side, 0.0) for side in (left, right))
        a, b = (np.where(both, x - x.sum(axis, keepdims=True) / n, 0.0) for x in (a, b))
        r = (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))
    clipped: np.ndarray = np.clip(r, -1.0, 1.0)
    return clipped
