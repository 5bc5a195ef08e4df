"""Which heads, or sets of heads, are taken away; and results labeled by them.

What stands in for a head that is taken away: nothing, or its mean over a reference corpus.
"""

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
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus

HeadsArgument = Sequence[Head] | Sequence[Sequence[Head]] | None


def head_sets(model: Model, heads: HeadsArgument, block: BlockName) -> list[HeadSet]:
    """The sets of heads that are asked for: by default every head alone."""
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
        known = sorted({member for member in members if member is not None})
        if not known or None in members:
            raise InputError(
                f"heads={heads!r:.80}: {entry!r:.80} is neither a pair (layer, head) nor a set of "
                "such pairs. Write heads=[(23, 3)], or heads=[[(1, 3), (1, 5)]] for a set."
            )
        for layer, head in known:
            wiring.find(block, layer, head)
        sets.append(tuple(known))
    if not sets:
        raise InputError(
            f"heads={heads!r} names no head: give pairs of layer and head, or None for all heads."
        )
    return list(dict.fromkeys(sets))


def _listed(several: object) -> list[object]:
    """The members of a list, tuple, set or array; none of a text or a number."""
    return [] if isinstance(several, str) or not isinstance(several, Iterable) else [*several]


def _as_head(entry: object) -> Head | None:
    """A pair of layer and head; None for anything else."""
    match [as_integer(number) for number in _listed(entry)]:
        case [int(layer), int(head)]:
            return layer, head
    return None


def label_sets(
    model: Model,
    block: BlockName,
    sets: Sequence[HeadSet],
    values: np.ndarray,
    intervals: np.ndarray | None,
    about: Mapping[str, str | int | float],
) -> xr.DataArray:
    """`layer head`, or `set` where some set has several heads.

    Args:
        model: whose heads they are.
        block: of which attention.
        sets: what was taken away.
        values: one for each set.
        intervals: `3 set`: low, high and p; None for one text.
        about: the attributes.
    """
    names = ("low", "high", "p")
    attrs = {"long_name": "effect: without the head − with it", **about}
    if any(len(heads) > 1 for heads in sets):
        labels = [" + ".join(f"L{layer} H{head}" for layer, head in heads) for heads in sets]
        array = xr.DataArray(values, dims="set", coords={"set": labels}, name="effect", attrs=attrs)
        for name, bound in zip(names, [] if intervals is None else intervals, strict=False):
            array = array.assign_coords({name: ("set", bound)})
        return array
    sites = model.wiring.of_block(block)
    layers = [site.layer for site in sites]
    grid = np.full((4, len(layers), max(site.n_heads for site in sites)), np.nan)
    for number, ((layer, head),) in enumerate(sets):
        at = layers.index(layer), head
        grid[(0, *at)] = values[number]
        if intervals is not None:
            grid[(slice(1, 4), *at)] = intervals[:, number]
    array = xr.DataArray(
        grid[0],
        dims=("layer", "head"),
        coords={"layer": layers, "head": np.arange(grid.shape[2])},
        name="effect",
        attrs=attrs,
    )
    if intervals is not None:
        for name, bound in zip(names, grid[1:], strict=True):
            array = array.assign_coords({name: (("layer", "head"), bound)})
    return array


def rank(array: xr.DataArray, n: int | None = None) -> list[tuple[int, int, float]]:
    """Heads by the size of their effect, largest first: layer, head and the effect."""
    known = array.transpose("layer", "head").to_series().dropna()
    largest = known.sort_values(key=lambda sizes: -abs(sizes), kind="stable")[:n]
    return [(layer, head, float(value)) for (layer, head), value in largest.items()]


AblationKind = Literal["zero", "mean"]
ABLATIONS: tuple[AblationKind, ...] = ("zero", "mean")


@dataclass(frozen=True, eq=False)
class Replacement:
    """How heads are taken away.

    A mean over a corpus is taken without the first position of each document, and the first
    position of the text keeps what it is: heads rest there, and a mean of other positions would
    overwrite the resting place itself.
    """

    block: BlockName
    means: Mapping[int, Tensor] | None = None
    """By layer, `head neuron`; None for zero."""

    def edit(self, layer: int, rows: Sequence[int], sets: Sequence[HeadSet]) -> Edit:
        """The edit of one layer: in each row, its heads are replaced."""
        at = torch.tensor([row for row, heads in zip(rows, sets, strict=True) for _ in heads])
        heads = torch.tensor([head for members in sets for _, head in members])
        where = {"layer": layer, "head": int(heads[0]), "block": self.block}
        if self.means is None:
            return AblateRows(rows=at, heads=heads, **where)  # type: ignore[arg-type]
        values = self.means[layer][heads][:, None]
        return ReplaceRows(rows=at, heads=heads, values=values, keeps_first=True, **where)  # type: ignore[arg-type]


def make_replacement(
    model: Model, ablation: str, reference: Corpus | Readable | None, block: BlockName
) -> Replacement:
    """The replacement that someone asks for."""
    if ablation not in ABLATIONS:
        raise UnknownName.of("ablation", ablation, ABLATIONS)
    if ablation == "zero":
        if reference is not None:
            raise InputError(
                "reference=… is what ablation='mean' takes means over; ablation='zero'."
            )
        return Replacement(block)
    if reference is None:
        raise InputError(
            "ablation='mean' needs texts to take each head's mean over: reference=hs.read(…), "
            "or a list of texts like the one you ask about."
        )
    return Replacement(block, mean_outputs(model, as_corpus(reference), block))


def mean_outputs(model: Model, corpus: Corpus, block: BlockName) -> dict[int, Tensor]:
    """By layer, `head neuron`: the mean output of each head over all positions but the first."""
    sums: dict[int, Tensor] = {}
    counts: dict[int, int] = {}

    def add(attention: Attention) -> None:
        if attention.block != block:
            return
        if attention.outputs is None:
            raise InputError(
                f"The tap does not see the head outputs of {model.info.family}: only "
                "ablation='zero' can be asked of it."
            )
        rest = attention.outputs[0, :, 1:].double()
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
    return {layer: sums[layer] / counts[layer] for layer in sums}
