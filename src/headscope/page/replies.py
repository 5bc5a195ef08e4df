"""Answers to what a page asks while it is looked at, from the traces alone: exact rows of
attention, and the queries, keys and values of a layer. `live_replies` adds what takes a
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headscope.errors import HeadscopeError, InputError, UnknownName
from headscope.page.codec import Buffers
from headscope.page.payload_blocks import layer_vectors
from headscope.results.trace import NEEDS_MODEL, Block, Trace

Reply = tuple[dict[str, object], list[bytes]]
"""A JSON object, and the buffers it names by number."""
Request = Mapping[str, object]
KINDS = ("row", "neurons", "edit", "effects", "score")
"""All that a page may ask."""


class Replies:
    """Answers about some traces, which they belong to.

    Attributes:
        traces: what the page shows.
    """

    kinds: tuple[str, ...] = KINDS[:2]

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces = list(traces)

    def reply(self, kind: str, request: Request) -> Reply:
        """The answer to a request; `error` where there is none.

        Unexpected errors are raised.
        """
        try:
            if kind not in KINDS:
                raise UnknownName.of("request", kind, KINDS)
            if kind not in self.kinds:
                raise InputError(NEEDS_MODEL)
            answer: Reply = getattr(self, kind)(request)
        except HeadscopeError as error:
            return {"error": str(error), "found": False}, []
        return answer

    def row(self, request: Request) -> Reply:
        """One row of attention, in little-endian float32."""
        block = self.block(request)
        row = self.layer(block, request)
        head = whole(request, "head", block.attention.sizes["head"])
        query = whole(request, "query", block.attention.sizes["query"])
        weights = block.attention.transpose("layer", "head", "query", "key")[row, head, query]
        return {"found": True}, [np.ascontiguousarray(weights.values, dtype="<f4").tobytes()]

    def neurons(self, request: Request) -> Reply:
        """The queries, keys and values of a layer."""
        block = self.block(request)
        row = self.layer(block, request)
        if "queries" not in block.data or "keys" not in block.data:
            raise InputError(
                "This trace has no queries and keys: it was made with vectors=False, from bare "
                "attention, or of a family whose vectors the tap does not see."
            )
        buffers = Buffers()
        layer = int(block.attention["layer"].values[row])
        part = layer_vectors(block, layer, buffers)
        return {"part": part}, buffers.packed

    def trace(self, request: Request) -> Trace:
        """The trace that a request names."""
        return self.traces[whole(request, "trace", len(self.traces))]

    def block(self, request: Request) -> Block:
        """The block that a request names, the main one by default."""
        return block_of(self.trace(request), request)

    def layer(self, block: Block, request: Request) -> int:
        """The row of the layer that a request names."""
        layers = [int(number) for number in block.attention["layer"].values]
        layer = whole(request, "layer", max(layers) + 1)
        if layer not in layers:
            raise InputError(f"There is no layer {layer} in this trace.")
        return layers.index(layer)


def block_of(trace: Trace, request: Request) -> Block:
    """The block of a trace that a request names, the main one by default."""
    name = request.get("block", trace.main.name)
    if not isinstance(name, str) or name not in trace.blocks:
        raise InputError(f"There is no block {name!r}: there is {', '.join(trace.blocks)}.")
    return trace.blocks[name]


def whole(request: Request, name: str, count: int) -> int:
    """A whole number of a request, from 0 and below `count`."""
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise InputError(f"{name} should be a whole number from 0 to {count - 1}, not {value!r}.")
    return value
