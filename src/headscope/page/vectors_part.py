"""The queries, keys and values of one layer as a part of the payload."""

from __future__ import annotations

import numpy as np
import xarray as xr

from headscope.page.buffers import Buffers
from headscope.results.trace import DIMENSIONS, Block

NAMES = ("queries", "keys", "values", "outputs", "scores")


def layer_vectors(block: Block, layer: int, buffers: Buffers) -> dict[str, object]:
    """Queries and keys of a layer, and what else there is, with two bytes a number."""
    data = block.data.sel(layer=layer)
    groups = data["group_of_head"] if "group_of_head" in data.coords else data["head"]
    scale = float(data["scale"]) if "scale" in data else 1.0
    part: dict[str, object] = {
        "layer": layer,
        "groups": [int(group) for group in groups.values],
        "scale": scale if np.isfinite(scale) else None,
    }
    for name in NAMES:
        if name in data and not (name == "outputs" and _is_weighted_sum(data, groups.values)):
            part[name] = buffers.add_numbers(data[name].transpose(*DIMENSIONS[name][1:]).values, 1)
    return part


def _is_weighted_sum(data: xr.Dataset, groups: np.ndarray) -> bool:
    """Whether the front end can compute the head outputs from attention and values.

    True of most families; not of those with gates.
    """
    if "values" not in data:
        return False
    outputs = data["outputs"].transpose("head", "query", "value_neuron").values
    values = data["values"].transpose("group", "key", "value_neuron").values[groups]
    weights = data["attention"].transpose("head", "query", "key").values
    computed = np.nan_to_num(weights).astype(np.float32) @ np.nan_to_num(values)
    largest = float(np.nanmax(np.abs(outputs), initial=0.0))
    return bool(np.nanmax(np.abs(computed - outputs), initial=0.0) <= 2e-3 * largest)
