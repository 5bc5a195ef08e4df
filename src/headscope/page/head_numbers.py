"""Simple statistics of every head over one input, by which the explorer sorts and colors.

They describe this input only; what is measured over a corpus is in `metrics/`.
"""

from __future__ import annotations

import numpy as np

from headscope.results.trace import Block


def head_statistics(
    block: Block, weights: np.ndarray, entropies: np.ndarray
) -> dict[str, list[list[float | None]]]:
    """`layer head` tables of what the block's heads do on this input.

    Means over queries: `entropy` of a row in nats, `distance` in tokens, and the shares of
    attention that go to the `first` token, to `special` tokens, to the `previous`, `same`
    and `next` token, and `between` the two texts. Only the statistics that the block can
    have are there: no distance in cross attention, no `between` without a second text.

    Args:
        block: of a trace.
        weights: its attention, `layer head query key`, with 0 for what is missing.
        entropies: of the rows, `layer head query`.
    """
    n_queries, n_keys = weights.shape[2:]
    rows = weights.sum(axis=3)
    total = rows.sum(axis=2, dtype=np.float64)
    attending = np.maximum((rows > 0).sum(axis=2), 1)
    tables = {
        "entropy": entropies.sum(axis=2) / attending,
        "first": weights[..., 0].sum(axis=2) / _safe(total),
    }
    if any(block.key_tokens.special):
        special = np.asarray(block.key_tokens.special, dtype=weights.dtype)
        tables["special"] = (weights @ special).sum(axis=2) / _safe(total)
    if n_queries == n_keys and block.name != "cross":
        offset = np.abs(np.subtract.outer(np.arange(n_queries), np.arange(n_keys)))
        tables["distance"] = _dot(weights, offset) / _safe(total)
        for name, shift in (("previous", -1), ("same", 0), ("next", 1)):
            band = np.diagonal(weights, shift, axis1=2, axis2=3).sum(axis=-1)
            tables[name] = band / _safe(total)
    segments = np.asarray(block.query_tokens.segments)
    if block.name != "cross" and len(set(segments.tolist())) > 1:
        other = np.not_equal.outer(segments, np.asarray(block.key_tokens.segments))
        tables["between"] = _dot(weights, other) / _safe(total)
    return {
        name: [[_rounded(value, mass) for value, mass in zip(*row, strict=True)]
               for row in zip(table, total, strict=True)]
        for name, table in tables.items()
    }  # fmt: skip


def _dot(weights: np.ndarray, table: np.ndarray) -> np.ndarray:
    """`layer head`: the sum of weights times a `query key` table, as one product of matrices."""
    n_layers, n_heads = weights.shape[:2]
    flat = weights.reshape(n_layers * n_heads, -1)
    sums: np.ndarray = flat @ table.ravel().astype(weights.dtype)
    return sums.reshape(n_layers, n_heads)


def _safe(total: np.ndarray) -> np.ndarray:
    return np.where(total > 0, total, 1.0)


def _rounded(value: float, mass: float) -> float | None:
    return round(float(value), 4) if mass > 0 else None
