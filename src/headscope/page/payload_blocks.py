"""Attention blocks in the payload: weights by layer, thumbnails, roles, statistics, vectors.

The statistics describe one input; corpus numbers are in `metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import cast

import numpy as np
import xarray as xr

from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, warn
from headscope.heads.roles import name_roles, row_entropies
from headscope.page.codec import Buffers, cell_maxima, encode
from headscope.page.payload_types import BlockPart, RoleId, RolePart, RolesPart, VectorsPart
from headscope.results.trace import DIMENSIONS, Block


def head_statistics(
    block: Block, weights: np.ndarray, entropies: np.ndarray
) -> dict[str, list[list[float | None]]]:
    """`layer head` tables of what the block's heads do on this input.

    Means over queries: `entropy` of a row in nats, `distance` in tokens, and the shares of
    attention that go to the `first` token, to `special` tokens, to the `previous`, `same`
    and `next` token, and `between` the two texts. Only the statistics that the block can
    have are there: no distance in cross attention, no `between` without a second text.
    `weights` are `layer head query key`, with 0 for what is missing; `entropies` those of rows.
    """
    n_queries, n_keys = weights.shape[2:]
    rows = weights.sum(axis=3)
    total = rows.sum(axis=2, dtype=np.float64)
    attending = np.maximum((rows > 0).sum(axis=2), 1)
    tables = {
        "entropy": entropies.sum(axis=2) / attending,
        "first": weights[..., 0].sum(axis=2) / _safe(total),
    }
    if any(block.key_tokens.special):
        special = np.asarray(block.key_tokens.special, dtype=weights.dtype)
        tables["special"] = (weights @ special).sum(axis=2) / _safe(total)
    if n_queries == n_keys and block.name != "cross":
        offset = np.abs(np.subtract.outer(np.arange(n_queries), np.arange(n_keys)))
        tables["distance"] = _dot(weights, offset) / _safe(total)
        for name, shift in (("previous", -1), ("same", 0), ("next", 1)):
            band = np.diagonal(weights, shift, axis1=2, axis2=3).sum(axis=-1)
            tables[name] = band / _safe(total)
    segments = np.asarray(block.query_tokens.segments)
    if block.name != "cross" and len(set(segments.tolist())) > 1:
        other = np.not_equal.outer(segments, np.asarray(block.key_tokens.segments))
        tables["between"] = _dot(weights, other) / _safe(total)
    shown: dict[str, list[list[float | None]]] = {}
    for name, table in tables.items():
        known = np.where(total > 0, table.astype(np.float64), np.nan)
        shown[name] = [[None if v != v else round(v, 4) for v in row] for row in known.tolist()]
    return shown


def _dot(weights: np.ndarray, table: np.ndarray) -> np.ndarray:
    """`layer head`: the sum of weights times a `query key` table, as one product of matrices."""
    n_layers, n_heads = weights.shape[:2]
    flat = weights.reshape(n_layers * n_heads, -1)
    sums: np.ndarray = flat @ table.ravel().astype(weights.dtype)
    return sums.reshape(n_layers, n_heads)


def _safe(total: np.ndarray) -> np.ndarray:
    return np.where(total > 0, total, 1.0)


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
) -> BlockPart:
    """A block, its numbers in buffers, with queries, keys and values of `layers`.

    `roles` are those over a corpus, beside the roles in this text.
    """
    if block.n_top is not None:
        return _top_part(block, stacks, layers, roles, buffers)
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
    is_pooled = max(weights.shape[2:]) > THUMB_SIDE
    thumbs = []
    for layer in weights:
        coarse, fine = encode(layer, fine=fine_planes is not None)
        if is_pooled:
            coarse_planes.append(buffers.add(coarse))
        if fine_planes is not None and fine is not None:
            fine_planes.append(buffers.add(fine))
        thumbs.append(cell_maxima(coarse, THUMB_SIDE))  # 255, missing, is the largest of all
    thumb = np.stack(thumbs)
    entropies = row_entropies(known)
    part = _block_part(block, stacks, layers, buffers, present, coarse_planes, thumb)
    part["fine"] = fine_planes
    part["statistics"] = head_statistics(block, known, entropies)
    part["roles"] = roles_part(name_roles(block, entropies), roles)
    return part


def _top_part(
    block: Block,
    stacks: Container[str],
    layers: Container[int],
    roles: xr.Dataset | None,
    buffers: Buffers,
) -> BlockPart:
    """A block of the strongest keys: other weights are 0, and `rest` has their sum.

    It has no statistics and no roles of this text, which need whole rows.
    """
    sizes = block.sizes
    rest = block.data["rest"].transpose(*DIMENSIONS["rest"]).values
    coarse_planes, thumbs = [], []
    for row in range(sizes["layer"]):
        # One head at a time: whole layers of a long text would need gigabytes.
        heads = [encode(block.head_weights(row, h), fine=False)[0] for h in range(sizes["head"])]
        coarse_planes.append(buffers.add(np.stack(heads)))
        thumbs.append(np.stack([cell_maxima(codes, THUMB_SIDE) for codes in heads]))
    present = ~np.isnan(rest).all(-1)
    part = _block_part(block, stacks, layers, buffers, present, coarse_planes, np.stack(thumbs))
    unnamed: RolePart = {"role": None, "share": None, "queries": 0}
    table = [[unnamed] * sizes["head"]] * sizes["layer"] if roles is None else _role_table(roles)
    part["roles"] = {"source": "text" if roles is None else "corpus", "heads": table}
    part["top"] = int(block.data.sizes["rank"])
    part["rest"] = buffers.add(encode(rest, fine=False)[0])
    return part


def _block_part(
    block: Block,
    stacks: Container[str],
    layers: Container[int],
    buffers: Buffers,
    present: np.ndarray,
    coarse_planes: list[int],
    thumb: np.ndarray,
) -> BlockPart:
    """The fields that all blocks have; statistics and roles are empty."""
    numbers = [int(layer) for layer in block.data["layer"].values]
    has_vectors = "queries" in block.data and "keys" in block.data
    vectors = [layer_vectors(block, n, buffers) for n in numbers if n in layers and has_vectors]
    groups = None  # by layer, the group of keys and values of each head that shares one
    if "group_of_head" in block.data.coords:
        of_heads = [int(group) for group in block.data["group_of_head"].values]
        groups = [of_heads] * len(numbers) if len(set(of_heads)) < len(of_heads) else None
    return {
        "name": block.name,
        "queries": query_stack(block.name, stacks),
        "keys": key_stack(block.name, stacks),
        "causal": bool(block.is_causal),
        "layers": numbers,
        "heads": block.sizes["head"],
        "present": present.astype(int).tolist(),
        "shape": list(block.sizes.values()),
        "coarse": coarse_planes,
        "fine": None,
        "thumb": buffers.add(thumb),
        "thumb_shape": list(thumb.shape),
        "groups": groups,
        "statistics": {},
        "roles": {"source": "text", "heads": []},
        "vectors": vectors,
    }


def roles_part(here: xr.Dataset, corpus: xr.Dataset | None) -> RolesPart:
    """The roles of all heads: over the corpus where there is one, and in this text."""
    if corpus is None:
        return {"source": "text", "heads": _role_table(here)}
    return {"source": "corpus", "heads": _role_table(corpus), "here": _role_table(here)}


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
