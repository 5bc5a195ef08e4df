"""The payload: everything the front end is given, as one JSON header and binary buffers.

This is the whole contract between Python and `web/src/data/payload.ts`. The header names
its buffers by number; each buffer is gzipped. A page carries them as base64, a notebook as
bytes. `tests/page/golden/payload.json` is read by the tests of both sides.
"""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from headscope.attention import key_stack, query_stack
from headscope.errors import HeadscopeWarning, InputError
from headscope.page.codes import encode, scale
from headscope.page.head_numbers import head_statistics
from headscope.page.media_part import media_part, pieces_part
from headscope.results.trace import DIMENSIONS, Block, Trace
from headscope.text.tokens import Tokens

FORMAT = "headscope-explorer"
VERSION = 1
FINE_LIMIT = 128
"""Up to this many tokens, weights carry a second plane and are right to 0.001."""
OUTSIDE = 1e-3
"""Rounding may take a weight so far outside [0, 1]; anything further outside is not attention."""


@dataclass(frozen=True)
class Payload:
    """A header that `json.dumps` takes, and the gzipped buffers it refers to by number."""

    header: Mapping[str, Any]
    buffers: Sequence[bytes] = field(repr=False)


class Buffers:
    """Collects gzipped arrays and hands out their numbers."""

    def __init__(self) -> None:
        self.packed: list[bytes] = []

    def add(self, array: np.ndarray) -> int:
        """Store the bytes of `array` and return their number."""
        data = np.ascontiguousarray(array).tobytes()
        self.packed.append(gzip.compress(data, compresslevel=6, mtime=0))
        return len(self.packed) - 1

    def add_numbers(self, numbers: np.ndarray, axes: int) -> dict[str, object]:
        """Store real numbers with two bytes each and a scale per index of the first `axes`."""
        codes, steps = scale(numbers, axes)
        return {
            "shape": list(numbers.shape),
            "axes": axes,
            "data": self.add(codes),
            "steps": self.add(steps),
        }


def make_payload(
    traces: Sequence[Trace],
    *,
    neurons: bool | Sequence[int] = True,
    titles: Sequence[str] | None = None,
    selection: str = "",
) -> Payload:
    """The payload of one trace, or of two to compare.

    Args:
        traces: one or two.
        neurons: whether the vectors that a trace carries go along, or the layers whose
            vectors do; they add two bytes a number.
        titles: what to call each trace; its text or model by default.
        selection: where to open, as a URL fragment (`layer=2&heads=8`).

    Raises:
        InputError: not one or two traces, a layer that is not there, or weights that are
            not attention.
    """
    if not 1 <= len(traces) <= 2:
        raise InputError(f"The explorer shows one trace or compares two; {len(traces)} given.")
    if titles is not None and len(titles) != len(traces):
        raise InputError(f"{len(titles)} titles for {len(traces)} traces: give one for each.")
    buffers = Buffers()
    parts = []
    for index, trace in enumerate(traces):
        title = titles[index] if titles is not None else _title(trace)
        parts.append(_trace_part(trace, title, _wanted_layers(trace, neurons), buffers))
    header = {"format": FORMAT, "version": VERSION, "selection": selection, "traces": parts}
    return Payload(header, buffers.packed)


def _wanted_layers(trace: Trace, neurons: bool | Sequence[int]) -> frozenset[int] | None:
    """The layers whose vectors go along; None for all of them."""
    if neurons is True:
        return None
    if neurons is False:
        return frozenset()
    known = {int(layer) for block in trace.blocks.values() for layer in block.data["layer"].values}
    wanted = frozenset(int(layer) for layer in neurons)
    if wanted - known:
        raise InputError(
            f"neurons={sorted(wanted)} names layers that the trace does not have: "
            f"{sorted(wanted - known)}. It has {min(known)} to {max(known)}."
        )
    return wanted


def _title(trace: Trace) -> str:
    return " ⏐ ".join(text.strip() for text in trace.text.texts) or str(trace.about.get("model"))


def _trace_part(
    trace: Trace, title: str, layers: frozenset[int] | None, buffers: Buffers
) -> dict[str, Any]:
    hidden = {}
    for stack, states in trace.stack_hidden.items():
        kept = [s for s in range(states.sizes["state"])
                if layers is None or {s, s - 1} & layers]  # fmt: skip
        if kept:
            numbers = states.transpose("state", "query", "unit").values[kept]
            hidden[stack] = {"states": kept, **buffers.add_numbers(numbers, 2)}
    return {
        "title": title,
        "model": str(trace.about.get("model", "")),
        "stacks": {name: _tokens_part(tokens) for name, tokens in trace.stack_tokens.items()},
        "blocks": [
            _block_part(block, trace.stack_tokens, layers, buffers)
            for block in trace.blocks.values()
        ],
        "hidden": hidden,
        **media_part(trace.media, buffers),
    }


def _tokens_part(tokens: Tokens) -> dict[str, object]:
    return {
        "tokens": list(tokens.tokens),
        "special": [int(flag) for flag in tokens.special],
        "segments": list(tokens.segments),
        "generated": [int(flag) for flag in tokens.generated],
        "words": list(tokens.words),
        "word_texts": list(tokens.word_texts),
        **pieces_part(tokens),
    }


def _block_part(
    block: Block, stacks: Container[str], layers: frozenset[int] | None, buffers: Buffers
) -> dict[str, object]:
    array = block.attention.transpose("layer", "head", "query", "key")
    weights = np.asarray(array.values)
    present = ~np.isnan(weights).all(axis=(2, 3))
    _check_weights(block, weights, present)
    coarse, fine = encode(weights, fine=max(weights.shape[2:]) <= FINE_LIMIT)
    return {
        "name": block.name,
        "queries": query_stack(block.name, stacks),
        "keys": key_stack(block.name, stacks),
        "causal": bool(block.is_causal),
        "layers": [int(layer) for layer in array["layer"].values],
        "heads": int(weights.shape[1]),
        "present": present.astype(int).tolist(),
        "shape": list(weights.shape),
        "coarse": buffers.add(coarse),
        "fine": None if fine is None else buffers.add(fine),
        "statistics": head_statistics(block),
        "vectors": _vectors_part(block, layers, buffers),
    }


def _check_weights(block: Block, weights: np.ndarray, present: np.ndarray) -> None:
    """Refuse what is not attention; warn of weights that are missing."""
    low, high = np.nanmin(weights, initial=0.0), np.nanmax(weights, initial=0.0)
    if low < -OUTSIDE or high > 1 + OUTSIDE:
        raise InputError(
            f"Attention of block {block.name!r} runs from {low:.4g} to {high:.4g}; weights after "
            "the softmax lie between 0 and 1. Were scores (before the softmax) passed in?"
        )
    missing = np.isnan(weights) & present[:, :, None, None]
    if missing.any():
        layer, head, query, key = (int(i) for i in np.argwhere(missing)[0])
        warnings.warn(
            f"{int(missing.sum())} weights of block {block.name!r} are NaN, the first at layer "
            f"{layer}, head {head}, query {query}, key {key}: they are shown as missing.",
            HeadscopeWarning,
            stacklevel=4,
        )


def _vectors_part(
    block: Block, layers: frozenset[int] | None, buffers: Buffers
) -> dict[str, object] | None:
    """Queries and keys (and what else there is) of the wanted layers, or None."""
    known = [int(layer) for layer in block.data["layer"].values]
    rows = [i for i, layer in enumerate(known) if layers is None or layer in layers]
    if not rows or "queries" not in block.data or "keys" not in block.data:
        return None
    data = block.data.isel(layer=rows)
    group_of_head = block.data.get("group_of_head")
    groups = np.arange(data.sizes["head"]) if group_of_head is None else group_of_head.values
    scales = data["scale"].values if "scale" in data else np.ones(len(rows))
    part: dict[str, object] = {
        "layers": [known[i] for i in rows],
        "groups": [int(group) for group in groups],
        "scales": [
            float(value) if np.isfinite(value) else None
            for value in np.broadcast_to(scales, len(rows))
        ],
        "values": None,
        "outputs": None,
        "scores": None,
    }
    for name in ("queries", "keys", "values", "outputs", "scores"):
        if name in data and not (name == "outputs" and _is_weighted_sum(data, groups)):
            part[name] = buffers.add_numbers(data[name].transpose(*DIMENSIONS[name]).values, 2)
    return part


def _is_weighted_sum(data: xr.Dataset, groups: np.ndarray) -> bool:
    """Whether the front end can compute the head outputs from attention and values.

    True of most families; not of those with gates.
    """
    if "values" not in data:
        return False
    outputs = data["outputs"].transpose("layer", "head", "query", "value_neuron").values
    values = data["values"].transpose("layer", "group", "key", "value_neuron").values[:, groups]
    weights = data["attention"].transpose("layer", "head", "query", "key").values
    computed = np.nan_to_num(weights).astype(np.float32) @ np.nan_to_num(values)
    largest = float(np.nanmax(np.abs(outputs), initial=0.0))
    return bool(np.nanmax(np.abs(computed - outputs), initial=0.0) <= 2e-3 * largest)
