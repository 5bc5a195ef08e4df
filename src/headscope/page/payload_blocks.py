"""Attention blocks in the payload: weights by layer, and the vectors of some layers.

The front end derives thumbnails, statistics and roles of the text (`web/src/data/head_numbers.ts`).
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import cast

import numpy as np
import xarray as xr

from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, warn
from headscope.page.codec import Buffers, encode
from headscope.page.payload_types import BlockPart, RoleId, RolePart, VectorsPart
from headscope.results.trace import DIMENSIONS, Block


def layer_vectors(block: Block, layer: int, buffers: Buffers) -> VectorsPart:
    """Queries and keys of a layer, and what else there is, with two bytes a number."""
    data = block.data.sel(layer=layer)
    groups = data["group_of_head"] if "group_of_head" in data.coords else data["head"]
    scale = float(data["scale"]) if "scale" in data else 1.0
    numbers = {
        name: buffers.add_numbers(data[name].transpose(*DIMENSIONS[name][1:]).values, 1)
        for name in ("queries", "keys", "values", "outputs", "scores")
        if name in data and not (name == "outputs" and _is_weighted_sum(data, groups.values))
    }
    part: VectorsPart = {
        "layer": layer,
        "groups": [int(group) for group in groups.values],
        "scale": scale if np.isfinite(scale) else None,
        "queries": numbers["queries"],
        "keys": numbers["keys"],
    }
    for name in [name for name in numbers if name not in part]:
        part[name] = numbers[name]  # type: ignore[literal-required]
    return part


def _is_weighted_sum(data: xr.Dataset, groups: np.ndarray) -> bool:
    """Check that attention times values gives the head outputs, so the front end can compute them.

    True of most families; not of those with gates.
    """
    if "values" not in data or "attention" not in data:
        return False
    outputs = data["outputs"].transpose("head", "query", "value_neuron").values
    values = data["values"].transpose("group", "key", "value_neuron").values[groups]
    weights = data["attention"].transpose("head", "query", "key").values
    computed = np.nan_to_num(weights).astype(np.float32) @ np.nan_to_num(values)
    largest = float(np.nanmax(np.abs(outputs), initial=0.0))
    return bool(np.nanmax(np.abs(computed - outputs), initial=0.0) <= 2e-3 * largest)


FINE_LIMIT = 128
"""Up to this many tokens, weights carry a second plane and are right to 0.001."""
OUTSIDE = 1e-3
"""Rounding may take a weight so far outside [0, 1]; anything further outside is not attention."""
UNEVEN = 0.005
"""Rows whose sums differ from 1 by more than this have them stored."""


def block_part(
    block: Block,
    stacks: Container[str],
    layers: Container[int],
    roles: xr.Dataset | None,
    buffers: Buffers,
) -> BlockPart:
    """A block, its weights in buffers, with queries, keys and values of `layers`.

    `roles` are those over a corpus.
    """
    numbers = [int(layer) for layer in block.data["layer"].values]
    has_vectors = "queries" in block.data and "keys" in block.data
    groups = None  # by layer, the group of keys and values of each head that shares one
    if "group_of_head" in block.data.coords:
        of_heads = [int(group) for group in block.data["group_of_head"].values]
        groups = [of_heads] * len(numbers) if len(set(of_heads)) < len(of_heads) else None
    part: BlockPart = {
        "name": block.name,
        "queries": query_stack(block.name, stacks),
        "keys": key_stack(block.name, stacks),
        "causal": bool(block.is_causal),
        "layers": numbers,
        "heads": block.sizes["head"],
        "present": [],
        "shape": list(block.sizes.values()),
        "coarse": [],
        "fine": None,
        "groups": groups,
        "vectors": [
            layer_vectors(block, n, buffers) for n in numbers if n in layers and has_vectors
        ],
    }
    if roles is not None:
        part["roles"] = _role_table(roles)
    (_add_weights if block.n_top is None else _add_top)(part, block, buffers)
    return part


def _add_weights(part: BlockPart, block: Block, buffers: Buffers) -> None:
    """Add all weights, sums of rows that are not 1, and a mask that is not that of the block."""
    weights = np.asarray(block.attention.transpose(*DIMENSIONS["attention"]).values)
    present = np.ones(weights.shape[:2], dtype=bool)
    known = weights
    if math.isnan(weights.sum()):
        present = ~np.isnan(weights).all(axis=(2, 3))
        known = np.nan_to_num(weights, nan=0.0)
    _check_weights(block, weights, known, present)
    part["present"] = present.astype(int).tolist()
    is_fine = max(weights.shape[2:]) <= FINE_LIMIT
    planes = [encode(layer, fine=is_fine) for layer in weights]
    part["coarse"] = [buffers.add(coarse) for coarse, _ in planes]
    if is_fine:
        part["fine"] = [buffers.add(fine) for _, fine in planes if fine is not None]
    sums = known.sum(-1)
    if (np.abs(sums - 1) > UNEVEN)[present].any():
        part["sums"] = buffers.add(sums.astype("<f4"))
    if "visible" in block.data:
        visible = block.data["visible"].transpose("layer", "query", "key").values
        n_queries, n_keys = weights.shape[2:]
        usual = np.tri(n_queries, n_keys, n_keys - n_queries if block.is_causal else n_keys)
        if (visible != usual.astype(bool)).any():
            part["visible"] = buffers.add(visible.astype(np.uint8))


def _add_top(part: BlockPart, block: Block, buffers: Buffers) -> None:
    """Add the strongest keys of each row, in the order of the text, and the sum of the rest."""
    keys, weights, rest = (
        block.data[name].transpose(*DIMENSIONS[name]).values
        for name in ("top_keys", "top_weights", "rest")
    )
    order = keys.argsort(-1)
    keys = np.maximum(np.take_along_axis(keys, order, -1), 0)  # -1, no key, has weight 0
    codes = encode(np.take_along_axis(weights, order, -1), fine=False)[0]
    steps = np.diff(keys, axis=-1, prepend=0)
    part["present"] = (~np.isnan(rest).all(-1)).astype(int).tolist()
    part["coarse"] = [buffers.add(layer) for layer in codes]
    # Low bytes, then high bytes, which are nearly all 0.
    planes = [np.stack([layer & 255, layer >> 8]).astype(np.uint8) for layer in steps]
    part["top"] = {
        "count": keys.shape[-1],
        "steps": [buffers.add(layer) for layer in planes],
        "rest": buffers.add(encode(rest, fine=False)[0]),
    }


def _role_table(roles: xr.Dataset) -> list[list[RolePart]]:
    """`layer head`: the role of each head; null for a head that follows none."""
    return [
        [
            {
                "role": cast("RoleId | None", str(role) or None),
                "share": None if math.isnan(share) else round(float(share), 4),
                "queries": int(queries),
            }
            for role, share, queries in zip(*row, strict=True)
        ]
        for row in zip(*(roles[name].values for name in ("role", "share", "queries")), strict=True)
    ]


def _check_weights(
    block: Block, weights: np.ndarray, known: np.ndarray, present: np.ndarray
) -> None:
    """Refuse what is not attention; warn of weights that are missing."""
    low, high = known.min(initial=0.0), known.max(initial=0.0)
    if low < -OUTSIDE or high > 1 + OUTSIDE:
        raise InputError(
            f"Attention of block {block.name!r} runs from {low:.4g} to {high:.4g}; weights after "
            "the softmax lie between 0 and 1. Were scores (before the softmax) passed in?"
        )
    if known is weights:
        return
    missing = np.isnan(weights) & present[:, :, None, None]
    if missing.any():
        layer, head, query, key = (int(i) for i in np.argwhere(missing)[0])
        warn(
            f"{int(missing.sum())} weights of block {block.name!r} are NaN, the first at layer "
            f"{layer}, head {head}, query {query}, key {key}: they are shown as missing."
        )
