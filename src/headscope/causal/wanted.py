"""Which heads, or sets of heads, are taken away; and results labeled by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import xarray as xr

from headscope.arguments import as_integer
from headscope.attention import Block
from headscope.causal.rows import Head, HeadSet
from headscope.errors import InputError
from headscope.model.model import Model

Heads = Sequence[Head] | Sequence[Sequence[Head]] | None


def wanted_sets(model: Model, heads: Heads, block: Block) -> list[HeadSet]:
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
    block: Block,
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
