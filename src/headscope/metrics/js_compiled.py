"""`js_sums` compiled by numba, which is imported here and nowhere else.

The logarithm is taken apart into exponent and mantissa, and that of the mantissa is a
polynomial: nothing calls a library, so the compiler turns the loop over keys into vector
instructions.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["js_sums_compiled"]

# ln(1 + x) ≈ x·(c0 + c1·x + …) on [0, 1), minimax fit, error below 2.2e-7.
C0, C1, C2, C3, C4, C5, C6 = (
    np.float32(c)
    for c in (
        0.9999811369,
        -0.4994717589,
        0.3282420371,
        -0.2258975155,
        0.1346737814,
        -0.05514463868,
        0.01076435081,
    )
)
ONE = np.float32(1)
# A float32 is sign, exponent (8 bits, 127 more than it is) and mantissa (23 bits).
BITS_OF_ONE = np.int32(127 << 23)
EXPONENT, MANTISSA = np.int32(-1 << 23), np.int32((1 << 23) - 1)
LOG_2 = np.float32(math.log(2) / (1 << 23))
"""Of an exponent that is still in its place."""


def js_sums_compiled(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """See `headscope.metrics.js_kernel.js_sums`."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    sums = np.zeros((rows.shape[0], rows.shape[0]))
    _kernel(rows, is_causal, sums)
    return np.asarray(sums + sums.T)


@numba.njit(fastmath=True, inline="always")
def _product(s: Any) -> Any:
    """S ln s; 0 at 0."""
    bits = np.float32(s).view(np.int32)
    exponent = np.float32(np.int32((bits - BITS_OF_ONE) & EXPONENT))
    x = np.int32((bits & MANTISSA) | BITS_OF_ONE).view(np.float32) - ONE
    log = C6
    log = log * x + C5
    log = log * x + C4
    log = log * x + C3
    log = log * x + C2
    log = log * x + C1
    log = log * x + C0
    return s * (exponent * LOG_2 + log * x)


@numba.njit(fastmath=True, nogil=True)
def _kernel(rows: Any, is_causal: bool, sums: Any) -> None:
    """Four heads at a time against one: the processor works on them side by side."""
    n_heads, n_queries, n_keys = rows.shape
    here = np.zeros((n_heads + 3, (n_keys + 15) // 16 * 16), dtype=np.float32)
    own = np.zeros(n_heads + 3, dtype=np.float32)
    zero, half, quarter = np.float32(0), np.float32(0.5), np.float32(0.25)
    for query in range(n_queries):
        n = min(query + 1, n_keys) if is_causal else n_keys
        for head in range(n_heads):
            total = zero
            for k in range(n):
                p = rows[head, query, k]
                here[head, k] = p
                # Of p + p: two heads with the same row are then 0 apart, but for the order.
                total += _product(p + p)
            own[head] = total * quarter
        n = (n + 15) // 16 * 16  # whole vectors; a key of weight 0 adds 0
        for head in range(n_heads):
            for other in range(head + 1, n_heads, 4):
                a, b, c, d = zero, zero, zero, zero
                for k in range(n):
                    p = here[head, k]
                    a += _product(p + here[other, k])
                    b += _product(p + here[other + 1, k])
                    c += _product(p + here[other + 2, k])
                    d += _product(p + here[other + 3, k])
                mixed = (a, b, c, d)
                for j in range(min(4, n_heads - other)):
                    found = own[head] + own[other + j] - half * mixed[j]
                    if found > 0:
                        sums[head, other + j] += found
