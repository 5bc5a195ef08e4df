"""The sum over queries of the Jensen-Shannon divergence of all pairs of heads.

With rows p and q, JS = H((p+q)/2) − (H(p)+H(q))/2: one logarithm for each pair of heads and each
key, for the upper triangle of pairs only. There are two implementations: compiled by numba, with a
polynomial for the logarithm that the compiler can vectorize; and in NumPy, block by block, where
numba is not installed. They agree to float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from headscope.measuring.kernels import has_numba

BLOCK = 1 << 17
"""How many weights are worked on at a time, so that they stay in the cache."""
TINY = np.finfo(np.float32).tiny
"""Stands for 0, whose logarithm is not a number; it adds nothing."""


@functools.cache
def compiled() -> Callable[..., np.ndarray] | None:
    """The compiled form of `js_sums`, or None without numba. It is imported at the first use,
    because importing numba takes a second.
    """
    if not has_numba():
        return None
    from headscope.measuring.compiled import js_sums_compiled

    return js_sums_compiled


def js_sums(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """`head head`, float64: the sum over queries of JS in nats, zero on the diagonal.

    Args:
        rows: `head query key`, the attention of one document without padding. Rows that do
            not sum to 1 are taken as they are.
        is_causal: keys after the query are 0 and not looked at.
    """
    return (compiled() or js_sums_blocked)(rows, is_causal=is_causal)


def js_sums_blocked(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """`js_sums` in NumPy: a few queries at a time, one head against all that follow."""
    weights = np.maximum(np.asarray(rows, dtype=np.float32), TINY)
    n_heads, n_queries, n_keys = weights.shape
    sums = np.zeros((n_heads, n_heads))
    step = max(1, BLOCK // max(1, n_heads * n_keys))
    for start in range(0, n_queries, step):
        stop = min(start + step, n_queries)
        part = weights[:, start:stop, : stop if is_causal else n_keys].reshape(n_heads, -1)
        twice = 2 * part
        self_products = np.einsum("hk,hk->h", twice, np.log(twice)) / 4
        both, logs = np.empty_like(part), np.empty_like(part)
        for head in range(n_heads - 1):
            n = n_heads - head - 1
            mixed = np.add(part[head + 1 :], part[head], out=both[:n])
            products = np.einsum("hk,hk->h", mixed, np.log(mixed, out=logs[:n]))
            sums[head, head + 1 :] += self_products[head] + self_products[head + 1 :] - products / 2
    sums = np.maximum(sums, 0)
    return np.asarray(sums + sums.T)
