"""A trace over norm-weighted attention: what is moved, in place of where it is looked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.results.trace import Block, Trace

OVER = ("attention", "norm")
"""What metrics and views may be over."""


def weigh_trace(trace: Trace) -> Trace:
    """The trace with a[i,j] · ‖v_j W_O^h‖ in place of a[i,j], rows divided by their sums.

    A trace that is weighted already stays as it is.
    """
    if is_weighed(trace):
        return trace
    blocks = {name: _weighed(block) for name, block in trace.blocks.items()}
    return replace(trace, blocks=blocks, about={**trace.about, "over": "norm"})


def is_weighed(trace: Trace) -> bool:
    """Does it hold norm-weighted attention?"""
    return trace.about.get("over") == "norm"


def _weighed(block: Block) -> Block:
    if "lengths" not in block.data:
        raise InputError(
            "This trace has no lengths of values, so it cannot be weighted by norms: trace the "
            "text with model.trace(text, norms=True)."
        )
    attention = block.attention.transpose("layer", "head", "query", "key")
    lengths = block.data["lengths"].transpose("layer", "head", "key").values
    moved = attention.values * lengths[:, :, None]
    total = moved.sum(-1, keepdims=True)
    weights = np.divide(moved, total, out=np.zeros_like(moved), where=total > 0)
    # Scores, queries and keys explain plain attention, not this.
    kept = [name for name in ("attention", "lengths") if name in block.data]
    data = block.data[kept].assign(attention=(attention.dims, weights))
    return replace(block, data=data)
