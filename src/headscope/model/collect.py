"""Collect what the tap reads into the plain arrays of a trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.attention import BLOCKS, Attention, key_stack, query_stack
from headscope.attention import Block as BlockName
from headscope.model.tap.sites import Site, Wiring
from headscope.results.trace import (
    DIMENSIONS,
    Block,
    attention_dataset,
)
from headscope.text.tokens import Tokens

MASKED = -1e9
"""Below this a score is a mask: families add -1e30, the least float32, or -inf."""
HIDDEN_STATES = {
    "hidden_states": "self",
    "encoder_hidden_states": "encoder",
    "decoder_hidden_states": "decoder",
}


class Collector:
    """A reader that keeps what one input does, layer by layer.

    A tower may cut one input into several rows (the tiles of an image). Put together, each
    row's tokens attend among themselves, and their attention to other rows is 0.
    """

    def __init__(self, *, vectors: bool, layers: Collection[int] | None = None) -> None:
        self._wanted = layers
        self._names = list(DIMENSIONS) if vectors else ["attention", "scores"]
        self._layers: dict[BlockName, dict[int, dict[str, np.ndarray]]] = {}

    def __call__(self, attention: Attention) -> None:
        """Keep one layer, if it is wanted."""
        if self._wanted is not None and attention.layer not in self._wanted:
            return
        read = {
            "attention": attention.weights,
            "scores": attention.scores,
            "queries": attention.queries,
            "keys": attention.keys,
            "values": attention.values,
            "outputs": attention.outputs,
        }
        kept = {
            name: to_numpy(_as_one(name, t))
            for name in self._names
            if (t := read[name]) is not None
        }
        if "scores" in kept:
            kept["scores"][kept["scores"] < MASKED] = -np.inf
        self._layers.setdefault(attention.block, {})[attention.layer] = kept

    @property
    def seen(self) -> tuple[BlockName, ...]:
        """The blocks of which something was kept."""
        return tuple(block for block in BLOCKS if block in self._layers)

    def lengths(self, block: BlockName) -> tuple[int, int]:
        """Numbers of queries and keys seen in a block."""
        first = next(iter(self._layers[block].values()))["attention"]
        return first.shape[1], first.shape[2]

    def blocks(self, wiring: Wiring, stack_tokens: dict[str, Tokens]) -> dict[str, Block]:
        """Everything collected, as the blocks of a trace."""
        return {
            name: Block(
                name,
                self._dataset(wiring.of_block(name), self._layers[name]),
                stack_tokens[query_stack(name, stack_tokens)],
                stack_tokens[key_stack(name, stack_tokens)],
                name in wiring.causal_blocks,
            )
            for name in wiring.blocks
            if name in self._layers
        }

    def _dataset(
        self, sites: Sequence[Site], layers: dict[int, dict[str, np.ndarray]]
    ) -> xr.Dataset:
        numbers = sorted(layers)
        data = attention_dataset(_stack([layers[n]["attention"] for n in numbers]), numbers)
        for name in self._names:
            arrays = [layers[n][name] for n in numbers if name in layers[n]]
            if name != "attention" and len(arrays) == len(numbers):
                data[name] = (DIMENSIONS[name], _stack(arrays))
        scales = {site.layer: np.nan if site.scale is None else site.scale for site in sites}
        data["scale"] = ("layer", np.array([scales[n] for n in numbers]))
        n_heads = data.sizes["head"]
        n_groups = data.sizes.get("group", n_heads)
        groups = np.arange(n_heads) * n_groups // n_heads
        return data.assign_coords(group_of_head=("head", groups))


def _as_one(name: str, rows: Tensor) -> Tensor:
    """All rows of a batch as one: end to end, and attention and scores along a diagonal."""
    if len(rows) == 1:
        return rows[0]
    if DIMENSIONS[name][-1] != "key":
        return torch.cat(list(rows), 1)
    n_queries, n_keys = rows.shape[2:]
    outside = -torch.inf if name == "scores" else 0.0
    whole = rows.new_full((rows.shape[1], len(rows) * n_queries, len(rows) * n_keys), outside)
    for index, row in enumerate(rows):
        span = slice(index * n_queries, (index + 1) * n_queries)
        whole[:, span, index * n_keys : (index + 1) * n_keys] = row
    return whole


def hidden_states(outputs: ModelOutput) -> dict[str, xr.DataArray]:
    """`state query unit` of each stack, from a model's outputs."""
    states_by_stack = {}
    for key, stack in HIDDEN_STATES.items():
        states = getattr(outputs, key, None)
        if states and all(isinstance(s, Tensor) and s.ndim == 3 for s in states):
            array = _stack([to_numpy(state[0]) for state in states])
            states_by_stack[stack] = xr.DataArray(array, dims=("state", "query", "unit"))
    return states_by_stack


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A float32 copy (float64 stays) that shares nothing with the model."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", dtype, copy=True).numpy()


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stack arrays along a new first axis. Layers may differ in their numbers of heads or
    neurons: smaller arrays are filled up with NaN.
    """
    shape = tuple(max(sizes) for sizes in zip(*(a.shape for a in arrays), strict=True))
    if all(a.shape == shape for a in arrays):
        return np.stack(arrays)
    stacked = np.full((len(arrays), *shape), np.nan, dtype=arrays[0].dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return stacked
