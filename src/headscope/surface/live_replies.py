"""Answers that take a model: the same texts under edits, what each head does, why it looked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from headscope.errors import InputError, UnknownName
from headscope.page.buffers import Buffers
from headscope.page.outcome_part import effects_part
from headscope.page.payload import trace_part
from headscope.page.replies import KINDS, NEEDS_MODEL, Replies, Reply, Request, whole

if TYPE_CHECKING:
    from headscope.model.edit import Edit
    from headscope.model.origin import Origin
    from headscope.results.trace import Trace

MOST_EDITS = 64
MOST_PARTS = 12
LARGEST_FACTOR = 1e6
MOST_NEURONS = 1 << 16
"""Of a head whose vectors were not kept: the model itself says how many it has."""
EDITS = ("off", "cell", "neuron")


class LiveReplies(Replies):
    """Answers about traces whose model is at hand."""

    kinds = KINDS

    def edit(self, request: Request) -> Reply:
        """The same inputs under edits, as parts of a payload."""
        wanted = request.get("edits")
        if not isinstance(wanted, list) or not 0 < len(wanted) <= MOST_EDITS:
            raise InputError(f"edits should be a list of 1 to {MOST_EDITS} edits.")
        buffers = Buffers()
        parts = []
        for trace in self.traces:
            edits = [read_edit(edit, trace) for edit in wanted]
            edited = origin_of(trace, "edit").again(trace, edits)
            title = str(edited.about.get("changed") or "")
            part = trace_part(edited, frozenset(), buffers)
            parts.append({"title": title, "hidden": {}, **part})
        return {"traces": parts}, buffers.packed

    def effects(
        self,
        request: Request,
        advance: Callable[[int, int], None] = lambda done, total: None,
    ) -> Reply:
        """What each head does to the prediction at a position; kept beside the trace."""
        from headscope.surface.model_methods import with_effects

        number = whole(request, "trace", len(self.traces))
        position = request.get("position")
        if position is not None:
            longest = max(len(tokens) for tokens in self.traces[number].stack_tokens.values())
            position = whole(request, "position", longest)
        self.traces[number] = with_effects(self.traces[number], position, advance)
        buffers = Buffers()
        others = [trace.effects for i, trace in enumerate(self.traces) if i != number]
        other = others[0] if len(others) == 1 else None
        part = effects_part(self.traces[number].effects, other, buffers)
        return {"effects": part}, buffers.packed

    def score(self, request: Request) -> Reply:
        """Why a head looked where it did: one score as a sum over earlier parts."""
        from headscope.causal.explain_score import Place, explain_place

        trace = self.trace(request)
        block = self.block(request)
        if block is not trace.main:
            raise InputError("Scores are explained in the main attention of a model only.")
        row = self.layer(block, request)
        n_heads = block.attention.sizes["head"]
        head, query, key = (
            whole(request, name, count)
            for name, count in (("head", n_heads), ("query", len(trace.tokens)),
                                ("key", len(trace.tokens)))
        )  # fmt: skip
        origin = origin_of(trace, "score")
        place = Place(int(block.attention["layer"].values[row]), head, query, key)
        found = explain_place(origin.model, trace.stack_tokens, origin.inputs, place)
        total = found.contrast
        data = found.data
        order = sorted(
            range(data.sizes["part"]),
            key=lambda i: -max(abs(data["key_side"].values[i]), abs(data["query_side"].values[i])),
        )
        parts = [
            {
                "name": str(data["part"].values[i]),
                "query_side": round(float(data["query_side"].values[i]), 5),
                "key_side": round(float(data["key_side"].values[i]), 5),
                "share": round(float(data["key_side"].values[i]) / total, 5) if total else 0.0,
            }
            for i in order[:MOST_PARTS]
        ]
        against = "the mean score of the other keys in sight"
        return {"total": round(total, 5), "parts": parts, "against": against}, []


def replies_for(traces: list[Trace]) -> Replies:
    """Answers about traces: all that can be given."""
    is_live = all(trace.origin is not None for trace in traces)
    return LiveReplies(traces) if is_live else Replies(traces)


def origin_of(trace: Trace, purpose: str) -> Origin:
    """What a trace was made by."""
    if trace.origin is None:
        raise InputError(f"{purpose}: {NEEDS_MODEL}")
    return cast("Origin", trace.origin)


def read_edit(wanted: object, trace: Trace) -> Edit:
    """An edit as a page writes it.

    Raises:
        InputError: it is none, or names what the trace does not have.
    """
    from headscope.model.edit import ablate, scale_neurons, set_attention

    if not isinstance(wanted, dict):
        raise InputError(f"An edit should be an object, not {wanted!r:.80}.")
    edit: Mapping[str, object] = wanted
    kind = edit.get("kind")
    if kind not in EDITS:
        raise UnknownName.of("kind of edit", kind, EDITS)
    name = edit.get("block", trace.main.name)
    if not isinstance(name, str) or name not in trace.blocks:
        raise InputError(f"There is no block {name!r}: there is {', '.join(trace.blocks)}.")
    block = trace.blocks[name]
    sizes = block.attention.sizes
    layer = whole(edit, "layer", max(int(n) for n in block.attention["layer"].values) + 1)
    head = whole(edit, "head", sizes["head"])
    place: dict[str, Any] = {} if block is trace.main else {"block": name}
    if kind == "off":
        return ablate(layer, head, **place)
    if kind == "cell":
        query, key = whole(edit, "query", sizes["query"]), whole(edit, "key", sizes["key"])
        weight = _real(edit, "weight", 0.0, 1.0)
        return set_attention(layer, head, query=query, key=key, weight=weight, **place)
    neuron = whole(edit, "neuron", block.data.sizes.get("neuron", MOST_NEURONS))
    factor = _real(edit, "factor", -LARGEST_FACTOR, LARGEST_FACTOR)
    return scale_neurons(layer, head, neuron, factor, **place)


def _real(edit: Mapping[str, object], name: str, least: float, most: float) -> float:
    value = edit.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= most:  # type: ignore[arg-type, operator]
        raise InputError(f"{name} should be a number from {least:g} to {most:g}, not {value!r}.")
    return float(cast("float", value))
