"""Variability of attention between texts: positional heads against content-based heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscope.arguments import whole_number
from headscope.batch import Axes
from headscope.lazy import torch
from headscope.metrics.core.contract import SELF_BLOCKS, MergedMetric, State, Variable
from headscope.metrics.core.layer_data import LayerData, Reduction
from headscope.metrics.core.regions import first_tokens, squares
from headscope.statistics.jackknife import Jackknife, jackknife_from_values

ARRAYS = ("order", "bucket", "size", "values")


@dataclass(frozen=True)
class Variability(MergedMetric):
    """Change of a head's attention between texts: near 0, it depends on positions alone.

    Σ|a[i,j] − ā[i,j]| / (2·Σ a[i,j]) over the first `first` tokens of each document that are not
    special; ā[i,j] is the mean over the documents that have both positions. Null attention is left
    out.

    Vig & Belinkov 2019, Eq. 5, Figure 10, footnotes 1 to 3.

    The mean is known only at the end, so weights are kept (32 kB a document with 144 heads). At
    most `budget` documents are kept: those with the smallest content hashes, a random sample that
    does not depend on shards. Up to `budget` documents the value is exact. Beyond, its standard
    error is about 0.005 for MiniLM on GUM (values up to 0.59). `variability_count` is the number of
    documents used.
    """

    name = "variability"
    title = "Variability with the text"
    short_title = "Variability"
    equation = r"\frac{\sum_{i,j} |a_{ij} - \bar{a}_{ij}|}{2 \sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 5, Figure 10"
    units = "share of attention"
    format = ".1%"
    order = 140
    counts = "documents"
    blocks = SELF_BLOCKS
    depends_on_count = True  # the fewer the documents, the nearer each is to their mean

    first: int = 10
    budget: int = 1000

    def __post_init__(self) -> None:
        for name in ("first", "budget"):
            whole_number(name, getattr(self, name))

    @property
    def sample(self) -> int:
        """Maximum number of documents."""
        return self.budget

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Reduction to the weights among the first tokens."""
        return (squares(self.first),)

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return the axes: documents; weights also have heads and pairs of positions."""
        return ("sampled", "head", "pair") if array == "values" else ("sampled",)

    def variables(self) -> tuple[Variable, ...]:
        """Return the ratio by head and the number of documents."""
        return self.variable(self.name, ("layer", "head")), self.count_variable(("layer",))

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Return a state without documents."""
        values = np.zeros((0, n_heads, len(self._pairs(is_causal)[0])), dtype=np.float32)
        return {**{name: np.zeros(0) for name in ARRAYS}, "values": values}

    def measure(self, layer_data: LayerData) -> State:
        """Return the weights between the first tokens of each document, in float32."""
        batch = layer_data.batch
        sampled = np.argsort(batch.sample_hashes, kind="stable")[: self.budget]
        sampled = sampled[batch.sample_hashes[sampled] <= batch.last_hashes.get(self.budget, 1.0)]
        _, sizes = first_tokens(layer_data, self.first)
        values = squares(self.first)(layer_data)[0].flatten(2)
        if layer_data.is_causal:
            queries, keys = self._pairs(is_causal=True)
            values = values[:, :, torch.from_numpy(queries * self.first + keys)]
        if values.dtype != torch.float64:
            values = values.float()
        return {
            "order": batch.sample_hashes[sampled],
            "bucket": batch.buckets[sampled].astype(np.float64),
            "size": sizes[sampled].astype(np.float64),
            "values": values.cpu().numpy()[sampled],
        }

    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Keep the documents with the smallest hashes of all states.

        In place, the arrays of a full first state are reused and written layer by layer.
        """
        axis = states[0]["order"].ndim - 1
        order = np.concatenate([state["order"] for state in states], axis=-1)
        # All layers saw the same documents in the same order.
        kept = np.argsort(order[(0,) * axis], kind="stable")[: self.budget]
        ends = np.cumsum([state["order"].shape[-1] for state in states])
        if len(kept) == ends[0] and (kept == np.arange(ends[0])).all():
            return states[0]
        if in_place and axis and len(kept) == ends[0]:
            for name in ARRAYS:
                for arrays in zip(*(state[name] for state in states), strict=True):
                    arrays[0][:] = np.concatenate(arrays)[kept]
            return states[0]
        merged: State = {}
        for name in ARRAYS:
            shape = list(states[0][name].shape)
            shape[axis] = len(kept)
            merged[name] = np.empty(shape, dtype=np.result_type(*(s[name] for s in states)))
            into = np.moveaxis(merged[name], axis, 0)
            for start, end, state in zip((0, *ends), ends, states, strict=False):
                to = np.flatnonzero((kept >= start) & (kept < end))
                into[to] = np.moveaxis(state[name], axis, 0)[kept[to] - start]
        return merged

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return the sum of deviations over twice the sum of weights."""
        count = np.full(len(state["order"]), float(state["order"].shape[-1]))
        return {self.name: self._ratio(state), f"{self.name}_count": count}

    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Recompute the ratio without each bucket; its documents leave ā too.

        With n documents, ā holds 1/n of each, which biases the ratio by about −1/2n. The bias
        cancels in leave-one-out changes.
        """
        unit_of_document = units[state["bucket"][0].astype(np.int64)]
        n_units = int(units.max()) + 1
        sizes = np.bincount(unit_of_document, minlength=n_units)
        occupied, unit_of_document = np.unique(unit_of_document, return_inverse=True)
        value = self._ratio(state)
        without = np.full((n_units, *value.shape), np.nan)
        if len(occupied) > 1:
            for layer, values in enumerate(state["values"]):
                is_present = self._is_present(state, layer)
                without[occupied, layer] = ratios_without(values, is_present, unit_of_document)
        return {self.name: jackknife_from_values(value, without, sizes, "logit")}

    def _ratio(self, state: State) -> np.ndarray:
        n_layers, n_documents, n_heads, n_pairs = state["values"].shape
        ratio = np.full((n_layers, n_heads), np.nan)
        for layer, values in enumerate(state["values"]):
            is_present = self._is_present(state, layer)
            flat = values.reshape(n_documents, n_heads * n_pairs)
            sums = (np.ones(n_documents, values.dtype) @ flat).reshape(n_heads, n_pairs)
            with np.errstate(divide="ignore", invalid="ignore"):
                # Values outside a document are 0, so the mean must be 0 too.
                mean = np.nan_to_num(sums / is_present.sum(0)).astype(values.dtype)
                off = np.einsum("dhp,dp->h", np.abs(values - mean), is_present, dtype=np.float64)
                ratio[layer] = off / (2 * sums.sum(-1, dtype=np.float64))
        return ratio

    def _is_present(self, state: State, layer: int) -> np.ndarray:
        queries, keys = self._pairs(state["values"].shape[-1] < self.first**2)
        return np.maximum(queries, keys) < state["size"][layer][:, None]

    def _pairs(self, is_causal: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return queries and keys of the kept pairs, as positions among the first tokens."""
        square = np.ones((self.first, self.first), dtype=bool)
        queries, keys = np.nonzero(np.tril(square) if is_causal else square)
        return queries, keys


def ratios_without(values: np.ndarray, is_present: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """`unit head`: return the ratio of one layer without the documents of each unit.

    Without unit g, deviations from the mean ā₍₋g₎ are summed over all documents, then those of g
    are subtracted. Sorted weights give the sum for any mean m: with k of n weights below m, Σ|a −
    m| = m (2k − n) + Σa − 2 Σ of those k.

    `values` (`document head pair`) are 0 where `is_present` (`document pair`) is false. `unit`
    (`document`) has numbers from 0.
    """
    n_documents, n_heads, n_pairs = values.shape
    member = (unit == np.arange(unit.max() + 1)[:, None]).astype(values.dtype)
    sums = (member @ values.reshape(n_documents, -1)).reshape(-1, n_heads, n_pairs)
    counts = member @ is_present
    other_sums = sums.sum(0, dtype=np.float64) - sums
    n_others = (counts.sum(0) - counts)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(n_others > 0, other_sums / n_others, 0.0)

    # `head·pair document`, sorted; missing positions come last.
    ordered = np.where(is_present[:, None], values, np.inf).reshape(n_documents, -1).T.copy()
    ordered.sort(axis=1)
    targets = means.reshape(len(means), -1).T
    below = np.stack([row.searchsorted(m) for row, m in zip(ordered, targets, strict=True)])
    running = np.zeros((len(ordered), n_documents + 1))
    np.cumsum(ordered, axis=1, dtype=np.float64, out=running[:, 1:])
    n = np.tile(is_present.sum(0), n_heads)[:, None]
    sum_below, sum_all = (np.take_along_axis(running, end, axis=1) for end in (below, n))
    deviations = targets * (2 * below - n) + sum_all - 2 * sum_below
    deviations = deviations.T.reshape(means.shape).sum(-1)

    off = np.abs(values - means.astype(values.dtype)[unit])
    own_deviations = member @ np.einsum("dhp,dp->dh", off, is_present, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (deviations - own_deviations) / (2 * other_sums.sum(-1))
