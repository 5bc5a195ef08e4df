"""Collect the attention that the tap reads into the arrays of a trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional
from transformers.utils.generic import ModelOutput

from headscope.attention import BLOCKS, Attention, BlockName, key_stack, query_stack
from headscope.model.tap.recording import repeated
from headscope.model.tap.sites import Site, Wiring
from headscope.results.trace import DIMENSIONS, Block
from headscope.text.tokens import Tokens

MASKED_BELOW = -1e9
"""Lower scores are masked: families add -1e30, the least float32, or -inf."""
SCORE_REL_TOL = 1e-4
"""Maximum relative difference of a score from `scale · q·k`."""
VECTORS = ("queries", "keys", "values", "outputs")
TOP = ("top_keys", "top_weights", "rest")
VISIBLE = ("layer", "query", "key")
"""Axes of the mask: true where a query may attend."""
HIDDEN_STATES = {
    "hidden_states": "self",
    "encoder_hidden_states": "encoder",
    "decoder_hidden_states": "decoder",
}


class Collector:
    """A reader that keeps every layer's attention for one input.

    A tower may cut one input into several rows (the tiles of an image). These are joined: each
    row's tokens attend among themselves, and their attention to other rows is 0.

    Args:
        wiring: wiring of the forward pass.
        vectors: keep queries, keys, values and outputs.
        scores: keep the scores: always, never, or only if they are more than `scale · q·k`.
            Otherwise the mask is kept.
        layers: keep only these.
        top: keep the strongest keys of each row, `top` of them, and the sum of the rest.
        heads: with `top`, keep only these heads.
    """

    def __init__(
        self,
        wiring: Wiring,
        *,
        vectors: bool,
        scores: bool | None = None,
        layers: Collection[int] | None = None,
        top: int | None = None,
        heads: Collection[int] | None = None,
    ) -> None:
        self._wiring = wiring
        self._kept_layers = layers
        self._names = [*VECTORS, "sink_logits"] if vectors else ["sink_logits"]
        self._has_vectors = vectors
        self._scores = scores
        self._top, self._heads = top, heads
        self._parts: list[dict[str, np.ndarray]] = []
        """Blocks of rows of the layer that is being read."""
        self._layers: dict[BlockName, dict[int, dict[str, np.ndarray]]] = {}
        self._lengths: dict[BlockName, tuple[int, int]] = {}
        self._ahead: set[BlockName] = set()
        """Blocks in which a query attended to a later key."""

    @property
    def needs_scores(self) -> bool:
        """True if the collector needs scores from the tap."""
        return self._top is None and (self._has_vectors or bool(self._scores))

    def __call__(self, attention: Attention) -> None:
        """Keep one layer, if selected."""
        if self._kept_layers is not None and attention.layer not in self._kept_layers:
            return
        start = attention.rows.start if attention.rows else 0
        # A user's mask can do this in causal blocks.
        if bool(attention.weights.triu(1 + start).any()):
            self._ahead.add(attention.block)
        weights = _as_one("attention", attention.weights)
        if attention.is_last:
            self._lengths[attention.block] = start + weights.shape[1], weights.shape[2]
        if self._top is not None:
            self._keep_top(attention, weights)
            return
        kept = {"attention": to_numpy(weights), **self._kept_vectors(attention)}
        if attention.scores is not None:
            kept |= self._kept_scores(attention, _as_one("scores", attention.scores))
        self._layers.setdefault(attention.block, {})[attention.layer] = kept

    def _kept_vectors(self, attention: Attention) -> dict[str, np.ndarray]:
        tensors = ((name, getattr(attention, name)) for name in self._names)
        return {name: to_numpy(_as_one(name, x)) for name, x in tensors if x is not None}

    def _keep_top(self, attention: Attention, weights: Tensor) -> None:
        """Keep the strongest keys of a layer, or of one block of its rows."""
        assert self._top is not None
        best = weights.float().topk(min(self._top, weights.shape[-1]), dim=-1)
        missing = (0, self._top - best.values.shape[-1])
        values = functional.pad(best.values, missing)
        keys = functional.pad(best.indices, missing).masked_fill(values == 0, -1)
        part = {
            "top_keys": keys.to("cpu", torch.int32).numpy(),
            "top_weights": to_numpy(values),
            "rest": to_numpy((weights.float().sum(-1) - values.sum(-1)).clamp(min=0)),
        }
        if self._heads is not None:
            others = [head for head in range(len(values)) if head not in self._heads]
            part["top_keys"][others] = -1
            part["top_weights"][others] = part["rest"][others] = np.nan
        self._parts.append(part | self._kept_vectors(attention))
        if attention.is_last:
            parts, self._parts = self._parts, []
            kept = parts[-1]  # of a causal block, only the last rows have all keys and values
            for name in kept.keys() - {"keys", "values"}:
                kept[name] = np.concatenate([some[name] for some in parts], axis=1)
            self._layers.setdefault(attention.block, {})[attention.layer] = kept

    def _kept_scores(self, attention: Attention, scores: Tensor) -> dict[str, np.ndarray]:
        """Return the mask alone if it and the vectors determine the scores, else the scores."""
        is_masked = scores < max(MASKED_BELOW, torch.finfo(scores.dtype).min / 2)
        site = self._wiring.find(attention.block, attention.layer, None)
        if not self._scores and self._has_vectors and site.is_dot_product:
            assert attention.queries is not None
            assert attention.keys is not None
            assert site.scale is not None
            keys = repeated(attention.keys, site.n_heads).transpose(-1, -2)
            plain = _as_one("scores", attention.queries @ keys * site.scale)
            difference = (plain - scores).masked_fill(is_masked, 0).abs().max()
            largest = scores.masked_fill(is_masked, 0).abs().max()
            is_shared = bool((is_masked == is_masked[:1]).all())
            if is_shared and difference <= SCORE_REL_TOL * (1 + largest):
                return {"visible": (~is_masked[0]).cpu().numpy()}
        if self._scores is False:
            return {}
        return {"scores": to_numpy(scores.masked_fill(is_masked, -torch.inf))}

    @property
    def seen(self) -> tuple[BlockName, ...]:
        """Blocks with collected layers."""
        return tuple(block for block in BLOCKS if block in self._layers)

    def lengths(self, block: BlockName) -> tuple[int, int]:
        """Return the numbers of queries and keys in a block."""
        return self._lengths[block]

    def blocks(self, stack_tokens: dict[str, Tokens]) -> dict[str, Block]:
        """Return the blocks of a trace."""
        wiring = self._wiring
        return {
            name: Block(
                name,
                self._dataset(wiring.of_block(name), self._layers[name]),
                stack_tokens[query_stack(name, stack_tokens)],
                stack_tokens[key_stack(name, stack_tokens)],
                name in wiring.causal_blocks and name not in self._ahead,
            )
            for name in wiring.blocks
            if name in self._layers
        }

    def _dataset(
        self, sites: Sequence[Site], layers: dict[int, dict[str, np.ndarray]]
    ) -> xr.Dataset:
        numbers = sorted(layers)
        chosen = [site for site in sites if site.layer in layers]
        by_layer = [layers[n] for n in numbers]
        has_groups = len({(site.n_heads, site.n_groups) for site in chosen}) > 1
        has_scores = any("scores" in kept for kept in by_layer)
        for site, kept in zip(chosen, by_layer, strict=True):
            if "visible" in kept and has_scores:  # all layers have scores, or none
                keys = kept["keys"].repeat(site.n_heads // len(kept["keys"]), 0)
                dots = kept["queries"] @ keys.swapaxes(1, 2) * site.scale
                kept["scores"] = np.where(kept.pop("visible"), dots, -np.inf).astype(np.float32)
            if has_groups:
                for name in {"keys", "values"} & set(kept):
                    kept[name] = kept[name].repeat(site.n_heads // len(kept[name]), 0)
        if any("sink_logits" in kept for kept in by_layer):  # -inf for layers without a sink
            for kept in by_layer:
                rows = kept["attention"] if "attention" in kept else kept["rest"]
                kept.setdefault("sink_logits", np.full(rows.shape[:2], -np.inf, np.float32))
        n_heads = max(site.n_heads for site in chosen)
        data = xr.Dataset(coords={"layer": np.asarray(numbers), "head": np.arange(n_heads)})
        for name in ("attention", *TOP, "visible", "scores", *self._names):
            arrays = [kept[name] for kept in by_layer if name in kept]
            if len(arrays) == len(numbers):
                data[name] = (DIMENSIONS.get(name, VISIBLE), _stack(arrays))
        scales = [np.nan if site.scale is None else site.scale for site in chosen]
        data["scale"] = ("layer", np.array(scales))
        groups = np.arange(n_heads) * data.sizes.get("group", n_heads) // n_heads
        return data.assign_coords(group_of_head=("head", groups))


def _as_one(name: str, rows: Tensor) -> Tensor:
    """Join all rows of a batch end to end; attention and scores become block-diagonal."""
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
    """Return `state query unit` of each stack, from a model's outputs."""
    states_by_stack = {}
    for key, stack in HIDDEN_STATES.items():
        states = getattr(outputs, key, None)
        if states and all(isinstance(s, Tensor) and s.ndim == 3 for s in states):
            array = _stack([to_numpy(state[0]) for state in states])
            states_by_stack[stack] = xr.DataArray(array, dims=("state", "query", "unit"))
    return states_by_stack


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a float32 copy (float64 stays) that shares no memory with the model."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", dtype, copy=True).numpy()


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stack arrays along a new first axis, padding with NaN if heads or neurons differ."""
    shape = tuple(max(sizes) for sizes in zip(*(a.shape for a in arrays), strict=True))
    if all(a.shape == shape for a in arrays):
        return np.stack(arrays)
    dtype = arrays[0].dtype
    missing = np.nan if np.issubdtype(dtype, np.floating) else -1
    stacked = np.full((len(arrays), *shape), missing, dtype=dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return stacked
