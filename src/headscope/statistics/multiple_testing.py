"""Corrections of p values for multiple testing.

Of 270 heads without an effect, 13 have p < 0.05. NaN (no test was possible) stays NaN and does not
count.
"""

from __future__ import annotations

import numpy as np


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Control the false discovery rate: of the heads below 0.05, on average at most 5 % are false.

    With p₍₁₎ ≤ … ≤ p₍ₙ₎: min over k ≥ i of n·p₍ₖ₎/k (Benjamini & Hochberg 1995). Use it for lists
    to explore. It holds for positively correlated tests (Benjamini & Yekutieli 2001), as heads over
    one corpus are.
    """
    order, p_sorted = _tested(p)
    n = len(order)
    scaled = p_sorted * n / np.arange(1, n + 1)
    return _restored(p, order, np.minimum.accumulate(scaled[::-1])[::-1])


def holm(p: np.ndarray) -> np.ndarray:
    """Control the family-wise error: below 0.05, the chance of any false claim is at most 5 %.

    max over k ≤ i of (n − k + 1)·p₍ₖ₎ (Holm 1979). Use it for claims in a report. It holds for any
    dependence between the tests.
    """
    order, p_sorted = _tested(p)
    n = len(order)
    return _restored(p, order, np.maximum.accumulate(p_sorted * (n - np.arange(n))))


def _tested(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of finite p values, lowest first, and these values."""
    flat = np.asarray(p, dtype=np.float64).ravel()
    tested = np.flatnonzero(np.isfinite(flat))
    order = tested[np.argsort(flat[tested], kind="stable")]
    return order, flat[order]


def _restored(p: np.ndarray, order: np.ndarray, adjusted: np.ndarray) -> np.ndarray:
    corrected = np.full(np.size(p), np.nan)
    corrected[order] = np.minimum(adjusted, 1.0)
    return corrected.reshape(np.shape(p))
