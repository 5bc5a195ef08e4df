"""One attention of a trace as a part of the payload: weights by layer, thumbnails, statistics."""

from __future__ import annotations

import math
from collections.abc import Container

import numpy as np
import xarray as xr

from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, warn
from headscope.heads.roles import name_roles, row_entropies
from headscope.page.buffers import Buffers
from headscope.page.codes import encode
from headscope.page.head_numbers import head_statistics
from headscope.page.picture import cell_maxima
from headscope.page.vectors_part import layer_vectors
from headscope.results.trace import Block

FINE_LIMIT = 128
"""Up to this many tokens, weights carry a second plane and are right to 0.001."""
THUMB_SIDE = 24
"""Cells of a thumbnail, at most, in each direction."""
OUTSIDE = 1e-3
"""Rounding may take a weight so far outside [0, 1]; anything further outside is not attention."""


def block_part(
    block: Block,
    stacks: Container[str],
    layers: Container[int],
    roles: xr.Dataset | None,
    buffers: Buffers,
) -> dict[str, object]:
    """A block, its numbers in buffers.

    Args:
        block: of a trace.
        stacks: the names of the trace's token sequences.
        layers: those whose queries, keys and values go along.
        roles: what the heads do over a corpus, beside what they do in this text.
        buffers: what to store arrays in.
    """
    array = block.attention.transpose("layer", "head", "query", "key")
    weights = np.asarray(array.values)
    present = np.ones(weights.shape[:2], dtype=bool)
    known = weights
    if math.isnan(weights.sum()):
        present = ~np.isnan(weights).all(axis=(2, 3))
        known = np.nan_to_num(weights, nan=0.0)
    _check_weights(block, weights, known, present)
    fine_planes: list[int] | None = [] if max(weights.shape[2:]) <= FINE_LIMIT else None
    coarse_planes: list[int] = []
    thumbs = []
    for layer in weights:
        coarse, fine = encode(layer, fine=fine_planes is not None)
        coarse_planes.append(buffers.add(coarse))
        if fine_planes is not None and fine is not None:
            fine_planes.append(buffers.add(fine))
        thumbs.append(cell_maxima(coarse, THUMB_SIDE))  # 255, missing, is the largest of all
    thumb = np.stack(thumbs)
    entropies = row_entropies(known)
    vectors = [
        layer_vectors(block, int(layer), buffers)
        for layer in array["layer"].values
        if int(layer) in layers and "queries" in block.data and "keys" in block.data
    ]
    return {
        "name": block.name,
        "queries": query_stack(block.name, stacks),
        "keys": key_stack(block.name, stacks),
        "causal": bool(block.is_causal),
        "layers": [int(layer) for layer in array["layer"].values],
        "heads": int(weights.shape[1]),
        "present": present.astype(int).tolist(),
        "shape": list(weights.shape),
        "coarse": coarse_planes,
        "fine": fine_planes,
        "thumb": buffers.add(thumb),
        "thumb_shape": list(thumb.shape),
        "groups": _groups(block),
        "statistics": head_statistics(block, known, entropies),
        "roles": roles_part(name_roles(block, entropies), roles),
        "vectors": vectors,
    }


def roles_part(here: xr.Dataset, corpus: xr.Dataset | None) -> dict[str, object]:
    """The roles of all heads: over the corpus where there is one, and in this text."""
    if corpus is None:
        return {"source": "text", "heads": _role_table(here)}
    return {"source": "corpus", "heads": _role_table(corpus), "here": _role_table(here)}


def _role_table(roles: xr.Dataset) -> list[list[dict[str, object]]]:
    """`layer head`: the role of each head; null for a head that follows none."""
    return [
        [
            {
                "role": str(role) or None,
                "share": None if math.isnan(share) else round(float(share), 4),
                "queries": int(queries),
            }
            for role, share, queries in zip(*row, strict=True)
        ]
        for row in zip(*(roles[name].values for name in ("role", "share", "queries")), strict=True)
    ]


def _groups(block: Block) -> list[list[int]] | None:
    """By layer, the group of keys and values that each head reads; None where each has its own."""
    if "group_of_head" not in block.data.coords:
        return None
    groups = [int(group) for group in block.data["group_of_head"].values]
    if len(set(groups)) == len(groups):
        return None
    return [groups] * block.attention.sizes["layer"]


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
            f"{layer}, head {head}, query {query}, key {key}: they are shown as missing.",
        )
