"""Answers to requests of an open page, from its traces alone or by running their model again.

Methods that run the model import it inside: pages of saved traces load no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headscope.errors import HeadscopeError, InputError, UnknownName
from headscope.page.codec import Buffers
from headscope.page.payload import effects_part, trace_part, wires_part
from headscope.page.payload_blocks import layer_vectors
from headscope.results.trace import NEEDS_MODEL, Block, Trace

if TYPE_CHECKING:
    from headscope.model.edits import Edit

Reply = tuple[dict[str, object], list[bytes]]
"""A JSON object, and the buffers it names by number."""
Request = Mapping[str, object]
KINDS = ("row", "neurons", "edit", "effects", "score", "wires")
"""All that a page may ask."""


class Replies:
    """Replies to requests about stored traces.

    Attributes:
        traces: what the page shows.
    """

    kinds: tuple[str, ...] = KINDS[:2]

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces = list(traces)

    def reply(self, kind: str, request: Request) -> Reply:
        """The answer to a request; `error` where there is none. Unexpected errors are raised."""
        try:
            UnknownName.check("request", kind, KINDS)
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
        head = whole(request, "head", block.sizes["head"])
        query = whole(request, "query", block.sizes["query"])
        weights = block.head_weights(row, head, slice(query, query + 1))
        return {"found": True}, [np.ascontiguousarray(weights, dtype="<f4").tobytes()]

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
        layer = int(block.data["layer"].values[row])
        return {"part": layer_vectors(block, layer, buffers)}, buffers.packed

    def trace(self, request: Request) -> Trace:
        """The trace that a request names."""
        return self.traces[whole(request, "trace", len(self.traces))]

    def block(self, request: Request) -> Block:
        """The block that a request names, the main one by default."""
        return block_of(self.trace(request), request)

    def layer(self, block: Block, request: Request) -> int:
        """The row of the layer that a request names."""
        layers = [int(number) for number in block.data["layer"].values]
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


MAX_EDITS = 64
N_EXACT = 40
"""Exact wires of one pair that an open page asks for."""
MAX_PARTS = 12
LARGEST_FACTOR = 1e6
MAX_NEURONS = 1 << 16
"""Maximum neuron number for heads without stored vectors; the model checks the rest."""
EDITS = ("off", "cell", "neuron")


class LiveReplies(Replies):
    """Answers about traces whose model is at hand."""

    kinds = KINDS

    def edit(self, request: Request) -> Reply:
        """The same inputs under edits, as parts of a payload."""
        wanted = request.get("edits")
        if not isinstance(wanted, list) or not 0 < len(wanted) <= MAX_EDITS:
            raise InputError(f"edits should be a list of 1 to {MAX_EDITS} edits.")
        buffers = Buffers()
        parts = []
        for trace in self.traces:
            edits = [read_edit(edit, trace) for edit in wanted]
            edited = trace.require_origin("edit").again(trace, edits)
            title = str(edited.provenance.get("changed") or "")
            part = trace_part(edited, frozenset(), buffers)
            parts.append({"title": title, **part})
        return {"traces": parts}, buffers.packed

    def effects(
        self, request: Request, advance: Callable[[int, int], None] = lambda done, total: None
    ) -> Reply:
        """Measure the effect of each head on a prediction, and keep it beside the trace."""
        from headscope.causal.trace_effects import with_effects

        number = whole(request, "trace", len(self.traces))
        position = request.get("position")
        if position is not None:
            longest = max(len(tokens) for tokens in self.traces[number].stack_tokens.values())
            position = whole(request, "position", longest)
        block = self.block(request).name
        self.traces[number] = with_effects(self.traces[number], position, advance, block)
        buffers = Buffers()
        found = [trace.effects for i, trace in enumerate(self.traces) if i != number]
        others = [each for each in found if each and each.data.attrs["block"] == block]
        other = others[0] if len(others) == 1 else None
        part = effects_part(self.traces[number].effects, other, buffers)
        return {"effects": part}, buffers.packed

    def wires(
        self, request: Request, advance: Callable[[int, int], None] = lambda done, total: None
    ) -> Reply:
        """Measure the wires behind the difference of the two texts that the page compares."""
        from headscope.causal.wires import wires

        texts = [trace.text.texts for trace in self.traces]
        if len(texts) != 2 or any(len(text) != 1 for text in texts):
            raise InputError("Wires need a contrast: compare two texts that differ in a word.")
        model = self.traces[0].require_origin("wires").model
        pair = [(texts[0][0], texts[1][0])]
        found = wires(model, pair, exact=N_EXACT, progress=False, on_step=advance)
        return {"wires": wires_part(found)}, []

    def score(self, request: Request) -> Reply:
        """Explain one score as a sum over the terms of the residual stream."""
        from headscope.causal.explain_score import explain_position

        trace = self.trace(request)
        block = self.block(request)
        if block is not trace.main:
            raise InputError("Scores are explained in the main attention of a model only.")
        layer = int(block.data["layer"].values[self.layer(block, request)])
        head = whole(request, "head", block.sizes["head"])
        query, key = (whole(request, name, len(trace.tokens)) for name in ("query", "key"))
        origin = trace.require_origin("score")
        tokens, inputs = trace.stack_tokens, origin.inputs
        explained = explain_position(origin.model, tokens, inputs, layer, head, query, key)
        names, query_side, key_side = (
            explained.data[name].values.tolist() for name in ("part", "query_side", "key_side")
        )
        total = explained.contrast
        parts = [
            {
                "name": str(name),
                "query_side": round(of_query, 5),
                "key_side": round(of_key, 5),
                "share": round(of_key / total, 5) if total else 0.0,
            }
            for name, of_query, of_key in sorted(
                zip(names, query_side, key_side, strict=True),
                key=lambda part: -max(abs(part[1]), abs(part[2])),
            )[:MAX_PARTS]
        ]
        against = "the mean score of the other visible keys"
        return {"total": round(total, 5), "parts": parts, "against": against}, []


def replies_for(traces: list[Trace]) -> Replies:
    """Answers about traces: all that can be given."""
    is_live = all(trace.origin is not None for trace in traces)
    return LiveReplies(traces) if is_live else Replies(traces)


def read_edit(wanted: object, trace: Trace) -> Edit:
    """An edit as a page writes it.

    Raises:
        InputError: it is none, or names what the trace does not have.
    """
    from headscope.model.edits import ablate, scale_neurons, set_attention

    if not isinstance(wanted, dict):
        raise InputError(f"An edit should be an object, not {wanted!r:.80}.")
    edit: Mapping[str, object] = wanted
    kind = edit.get("kind")
    UnknownName.check("kind of edit", kind, EDITS)
    block = block_of(trace, edit)
    sizes = block.sizes
    layer = whole(edit, "layer", max(int(n) for n in block.data["layer"].values) + 1)
    head = whole(edit, "head", sizes["head"])
    name = None if block is trace.main else block.name
    if kind == "off":
        return ablate(layer, head, block=name)
    if kind == "cell":
        query, key = whole(edit, "query", sizes["query"]), whole(edit, "key", sizes["key"])
        weight = _real(edit, "weight", 0.0, 1.0)
        return set_attention(layer, head, query=query, key=key, weight=weight, block=name)
    neuron = whole(edit, "neuron", block.data.sizes.get("neuron", MAX_NEURONS))
    factor = _real(edit, "factor", -LARGEST_FACTOR, LARGEST_FACTOR)
    return scale_neurons(layer, head, neuron, factor, block=name)


def _real(edit: Mapping[str, object], name: str, least: float, most: float) -> float:
    value = edit.get(name)
    # NaN lies between no two numbers.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(f"{name} should be a number from {least:g} to {most:g}, not {value!r}.")
    return float(value)
