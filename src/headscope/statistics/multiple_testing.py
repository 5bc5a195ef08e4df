"""Corrections of p values for multiple testing.

Of 270 heads without an effect, 13 have p < 0.05. NaN (no test was possible) stays NaN and does not
count.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Adjust = Callable[[np.ndarray], np.ndarray]
"""Function from sorted p values, lowest first, to corrected ones."""


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Control the false discovery rate: of the heads below 0.05, on average at most 5 % are false.

    With p₍₁₎ ≤ … ≤ p₍ₙ₎: min over k ≥ i of n·p₍ₖ₎/k (Benjamini & Hochberg 1995). Use it for lists
    to explore. It holds for positively correlated tests (Benjamini & Yekutieli 2001), as heads over
    one corpus are.
    """

    def adjusted(ordered: np.ndarray) -> np.ndarray:
        n = len(ordered)
        scaled = ordered * n / np.arange(1, n + 1)
        return np.minimum.accumulate(scaled[::-1])[::-1]

    return _by_rank(p, adjusted)


def holm(p: np.ndarray) -> np.ndarray:
    """Control the family-wise error: below 0.05, the chance of any false claim is at most 5 %.

    max over k ≤ i of (n − k + 1)·p₍ₖ₎ (Holm 1979). Use it for claims in a report. It holds for any
    dependence between the tests.
    """

    def adjusted(ordered: np.ndarray) -> np.ndarray:
        n = len(ordered)
        return np.maximum.accumulate(ordered * (n - np.arange(n)))

    return _by_rank(p, adjusted)


def _by_rank(p: np.ndarray, adjusted: Adjust) -> np.ndarray:
    flat = np.asarray(p, dtype=np.float64).ravel()
    tested = np.flatnonzero(np.isfinite(flat))
    order = tested[np.argsort(flat[tested], kind="stable")]
    corrected = np.full(flat.shape, np.nan)
    corrected[order] = np.minimum(adjusted(flat[order]), 1.0)
    return corrected.reshape(np.shape(p))
