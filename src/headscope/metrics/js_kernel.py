"""The sum over queries of the Jensen-Shannon divergence of all pairs of heads.

With rows p and q, JS = H((p+q)/2) − (H(p)+H(q))/2, so that one logarithm per pair and key
is all there is to compute, for the upper triangle of pairs only. Two ways to do it: compiled
by numba, with a polynomial for the logarithm that the compiler can vectorize; and blocked in
torch, where numba is not installed. Both agree to float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

try:
    import numba
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
except ImportError:
    numba = None

__all__ = ["has_numba", "js_sums", "js_sums_blocked", "js_sums_compiled"]

BLOCK = 1 << 18
"""Weights that are worked on at a time in torch: they should stay in the cache."""

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
ONE, LOG_2 = np.float32(1), np.float32(math.log(2))


def has_numba() -> bool:
    """Is the compiled kernel there?"""
    return numba is not None


def js_sums(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """`head head`, float64: the sum over queries of JS in nats, zero on the diagonal.

    Args:
        rows: `head query key`, the attention of one document without padding. Rows that do
            not sum to 1 are taken as they are.
        is_causal: keys after the query are 0 and not looked at.
    """
    sums = js_sums_compiled if has_numba() else js_sums_blocked
    return sums(rows, is_causal=is_causal)


def js_sums_blocked(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """`js_sums` in torch, a few heads at a time."""
    weights = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
    n_heads, n_queries, n_keys = weights.shape
    sums = torch.zeros((n_heads, n_heads), dtype=torch.float64)
    tiny = torch.finfo(torch.float32).tiny
    step = max(1, BLOCK // max(1, n_heads * n_keys))
    for start in range(0, n_queries, step):
        stop = min(start + step, n_queries)
        part = weights[:, start:stop, : stop if is_causal else n_keys].contiguous()
        own = _products(part + part, tiny) / 4
        buffer = torch.empty_like(part)
        logs = torch.empty_like(part)
        for head in range(n_heads - 1):
            n = n_heads - head - 1
            both = torch.add(part[head + 1 :], part[head], out=buffer[:n])
            torch.clamp_min(both, tiny, out=logs[:n]).log_()
            mixed = torch.linalg.vecdot(both, logs[:n])
            found = own[head] + own[head + 1 :] - mixed / 2
            sums[head, head + 1 :] += found.clamp_min_(0).sum(-1, dtype=torch.float64)
    return np.asarray((sums + sums.T).numpy())


def _products(rows: torch.Tensor, tiny: float) -> torch.Tensor:
    """Σ x ln x of each row."""
    return torch.linalg.vecdot(rows, rows.clamp_min(tiny).log_())


def js_sums_compiled(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """`js_sums` by the compiled kernel."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    sums = np.zeros((rows.shape[0], rows.shape[0]))
    _kernel(rows, is_causal, sums)
    return sums + sums.T


if numba is not None:

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def _bits(typing_context: Any, x: Any) -> Any:
        """The bits of a float32 as an int32."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], ir.IntType(32))

        return types.int32(types.float32), generate

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def _float(typing_context: Any, x: Any) -> Any:
        """The float32 of these bits."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], ir.FloatType())

        return types.float32(types.int32), generate

    @numba.njit(fastmath=True, inline="always")  # type: ignore[untyped-decorator, unused-ignore]
    def _product(s: Any) -> Any:
        """S ln s; 0 at 0."""
        bits = _bits(s)
        exponent = np.float32(np.int32((bits >> np.int32(23)) - np.int32(127)))
        x = _float(np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000))) - ONE
        log = C6
        log = log * x + C5
        log = log * x + C4
        log = log * x + C3
        log = log * x + C2
        log = log * x + C1
        log = log * x + C0
        return s * (exponent * LOG_2 + log * x)

    @numba.njit(fastmath=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
    def _kernel(rows: Any, is_causal: bool, sums: Any) -> None:
        """Four heads at a time against one: the processor works on them side by side."""
        n_heads, n_queries, n_keys = rows.shape
        here = np.zeros((n_heads + 3, n_keys), dtype=np.float32)
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
