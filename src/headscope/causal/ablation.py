"""Heads and sets of heads to ablate, their replacement, and results labeled by head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headscope.arguments import as_integer
from headscope.attention import Attention, BlockName
from headscope.causal.batched_forward import Head, HeadSet
from headscope.errors import InputError, UnknownName
from headscope.model.edits import AblateRows, Edit, ReplaceRows
from headscope.model.model import Model
from headscope.model.tracing import encode_for
from headscope.results.effect_data import EffectArray
from headscope.statistics.differences import Difference
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus

HeadsArgument = Sequence[Head] | Sequence[Sequence[Head]] | None


def head_sets(model: Model, heads: HeadsArgument, block: BlockName) -> list[HeadSet]:
    """Return the requested sets of heads; by default every head alone."""
    wiring = model.wiring
    if heads is None:
        wiring.find(block, wiring.of_block(block)[0].layer if wiring.of_block(block) else 0, None)
        return [
            ((site.layer, head),) for site in wiring.of_block(block) for head in range(site.n_heads)
        ]
    sets: list[HeadSet] = []
    for entry in _listed(heads):
        pair = _as_head(entry)
        members = [_as_head(member) for member in _listed(entry)] if pair is None else [pair]
        pairs = sorted({member for member in members if member is not None})
        if not pairs or None in members:
            raise InputError(
                f"heads={heads!r:.80}: {entry!r:.80} is neither a pair (layer, head) nor a set of "
                "such pairs. Write heads=[(23, 3)], or heads=[[(1, 3), (1, 5)]] for a set."
            )
        for layer, head in pairs:
            wiring.find(block, layer, head)
        sets.append(tuple(pairs))
    if not sets:
        raise InputError(
            f"heads={heads!r} names no head: give pairs of layer and head, or None for all heads."
        )
    return list(dict.fromkeys(sets))


def _listed(value: object) -> list[object]:
    """Return the members of an iterable; an empty list for a string or a number."""
    return [] if isinstance(value, str) or not isinstance(value, Iterable) else [*value]


def _as_head(entry: object) -> Head | None:
    match [as_integer(number) for number in _listed(entry)]:
        case [int(layer), int(head)]:
            return layer, head
    return None


def head_grid(
    sets: Sequence[HeadSet],
    values: np.ndarray,
    layers: Sequence[int],
    n_heads: int,
    dtype: type[np.floating] = np.float64,
) -> np.ndarray:
    """Return `layer head …`: the value of each single head, NaN for all other heads."""
    grid = np.full((len(layers), n_heads, *values.shape[1:]), np.nan, dtype=dtype)
    for ((layer, head),), value in zip(sets, values, strict=True):
        grid[layers.index(layer), head] = value
    return grid


def label_sets(
    model: Model,
    block: BlockName,
    sets: Sequence[HeadSet],
    values: np.ndarray,
    found: Difference | None,
    attributes: Mapping[str, str | int | float],
) -> EffectArray:
    """Return `layer head`, or `set` if a set has several heads, with one value for each set.
    `found` has the intervals over texts; None for one text.
    """
    bounds = {} if found is None else {"low": found.low, "high": found.high, "p": found.p}
    coords: dict[str, object]
    attrs = {"long_name": "effect: without the head − with it", **attributes}
    if any(len(heads) > 1 for heads in sets):
        labels = [" + ".join(f"L{layer} H{head}" for layer, head in heads) for heads in sets]
        coords = {"set": labels, **{name: ("set", bound) for name, bound in bounds.items()}}
        return EffectArray(values, dims="set", coords=coords, name="effect", attrs=attrs)
    sites = model.wiring.of_block(block)
    layers = [site.layer for site in sites]
    n_heads = max(site.n_heads for site in sites)
    dims = ("layer", "head")
    coords = {"layer": layers, "head": np.arange(n_heads)}
    for name, bound in bounds.items():
        coords[name] = (dims, head_grid(sets, bound, layers, n_heads))
    grid = head_grid(sets, values, layers, n_heads)
    return EffectArray(grid, dims=dims, coords=coords, name="effect", attrs=attrs)


def rank(array: xr.DataArray, n: int | None = None) -> list[tuple[int, int, float]]:
    """Return layer, head and effect of the heads, the largest absolute effect first."""
    effects = array.transpose("layer", "head").to_series().dropna()
    largest = effects.sort_values(key=lambda sizes: -abs(sizes), kind="stable")[:n]
    return [(layer, head, float(value)) for (layer, head), value in largest.items()]


AblationKind = Literal["zero", "mean"]
ABLATIONS: tuple[AblationKind, ...] = ("zero", "mean")


@dataclass(frozen=True, eq=False)
class Replacement:
    """Replacement of heads: zero, their mean over a corpus, or their outputs in another text.

    In causal attention the first position is an attention sink, which a mean over other positions
    would overwrite: means leave it out, and it keeps its output.
    """

    block: BlockName
    outputs: Mapping[int, Tensor] | None = None
    """By layer, `head query neuron`, with one query for a mean; None for zero."""
    keeps_first: bool = False
    """True if the first position keeps its output. Not if the answer is read there."""

    def edit(self, layer: int, rows: Sequence[int], sets: Sequence[HeadSet]) -> Edit:
        """Return the edit of one layer: replace the heads of each row."""
        repeated = [row for row, heads in zip(rows, sets, strict=True) for _ in heads]
        index = torch.tensor(repeated)
        heads = torch.tensor([head for members in sets for _, head in members])
        first = int(heads[0])
        if self.outputs is None:
            return AblateRows(layer=layer, head=first, block=self.block, rows=index, heads=heads)
        return ReplaceRows(
            layer=layer,
            head=first,
            block=self.block,
            rows=index,
            heads=heads,
            values=self.outputs[layer][heads],
            keeps_first=self.keeps_first,
        )


def make_replacement(
    model: Model,
    ablation: str,
    reference: Corpus | Readable | None,
    block: BlockName,
    *,
    reads_first: bool = False,
) -> Replacement:
    """Return the replacement for arguments of `effects`; the answer may be read at the first
    position.
    """
    UnknownName.check("ablation", ablation, ABLATIONS)
    if ablation == "zero":
        if reference is not None:
            raise InputError("reference=… needs ablation='mean'; ablation is 'zero'.")
        return Replacement(block)
    if reference is None:
        raise InputError(
            "ablation='mean' needs texts to take each head's mean over: reference=hs.read(…), "
            "or a list of texts like the one you ask about."
        )
    keeps_first = block in model.wiring.causal_blocks and not reads_first
    means = mean_outputs(model, as_corpus(reference), block, first=int(keeps_first))
    return Replacement(block, means, keeps_first)


def mean_outputs(model: Model, corpus: Corpus, block: BlockName, first: int) -> dict[int, Tensor]:
    """Return `head 1 neuron` by layer: mean outputs over the positions from `first` on."""
    sums: dict[int, Tensor] = {}
    counts: dict[int, int] = {}

    def add(attention: Attention) -> None:
        if attention.block != block:
            return
        if attention.outputs is None:
            raise InputError(
                f"The tap does not see the head outputs of {model.info.family}. Use "
                "ablation='zero'."
            )
        rest = attention.outputs[0, :, first:].double()
        layer = attention.layer
        sums[layer] = rest.sum(1).cpu() + sums.get(layer, 0.0)
        counts[layer] = counts.get(layer, 0) + rest.shape[1]

    for document in corpus:
        target = document.meta.get("target", document.text)
        decoder = target if "decoder" in model.info.blocks else None
        _, _, inputs = encode_for(
            model, document.text, None, target=decoder, generate=0, truncate=True
        )
        model.read(inputs, add)
    if not any(counts.values()):
        raise InputError("The reference has no text of two tokens: nothing to take a mean over.")
    return {layer: (sums[layer] / counts[layer])[:, None] for layer in sums}
