"""Exact rows of attention, for a front end that draws them from rounded numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscope.results.trace import Trace


def exact_row(traces: Sequence[Trace], wanted: Mapping[str, Any]) -> bytes | None:
    """The row of attention that the front end asks for, in little-endian float32.

    Args:
        traces: the traces it shows.
        wanted: `trace`, `block`, `layer`, `head` and `query`.

    Returns:
        The bytes, or None where there is no such row.
    """
    try:
        number, layer, head, query = (
            int(wanted[name]) for name in ("trace", "layer", "head", "query")
        )
        if min(number, head, query) < 0:
            return None
        block = traces[number].blocks[str(wanted["block"])]
        layers = block.attention["layer"].values.tolist()
        rows = block.attention.transpose("layer", "head", "query", "key")
        row = rows[layers.index(layer), head, query]
    except (KeyError, IndexError, ValueError, TypeError):
        return None
    return np.ascontiguousarray(row.values, dtype="<f4").tobytes()
