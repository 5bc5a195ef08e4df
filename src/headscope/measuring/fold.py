"""The fold: one forward pass in, the states of all metrics out.

Keeps one state per metric and layer. A batch counts only when all of it went through:
what a failed forward pass left behind is forgotten. Metrics that are sums of rows are
added up together, layer by layer; others add to their state themselves, or their states
wait and are merged several at a time. Metrics that are made of digests get all layers of a
batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention, Reader
from headscope.batch import Batch
from headscope.errors import ModelError
from headscope.measuring.assemble import States
from headscope.measuring.contract import RATIO_ARRAYS, Metric, RatioMetric, State
from headscope.measuring.digests import Digest, JoinedLayers, read_digests
from headscope.measuring.sums import Sums, row_shape, side_by_side

__all__ = ["Fold", "merge_states"]

ONCE = -1
"""The layer of a state that belongs to none."""
MOST_WAITING = 16

_Reads = Literal["tokens", "layer", "digests", "layers"]
"""What a metric gets: see `Scope`; `digests` are those of scope `layer` made of them."""


class _Place(NamedTuple):
    """Where a state belongs."""

    block: str
    layer: int
    reads: _Reads


@dataclass(eq=False)
class _Rows:
    """Rows of all metrics that are sums, of one layer."""

    shapes: list[tuple[int, ...]]
    """Of each array, without `document`."""
    table: Tensor
    """All of them side by side: `document number`."""


@dataclass(eq=False)
class _Found:
    """What one batch came to."""

    rows: dict[_Place, _Rows] = field(default_factory=dict)
    states: dict[tuple[_Place, str], State] = field(default_factory=dict)
    to_add: list[tuple[Metric, Attention, tuple[int, ...]]] = field(default_factory=list)
    """Metrics that add to their states themselves, what they read, and of which layers."""


class Fold:
    """Sums over batches. Use `batch` around each forward pass, `states` at the end.

    Args:
        metrics: what to measure.
        n_layers: how many layers to expect in a block.
    """

    def __init__(self, metrics: Sequence[Metric], n_layers: int = 1) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._n_layers = n_layers
        self._chosen: dict[tuple[str, _Reads], list[Metric]] = {}
        self._sums: dict[_Place, Sums] = {}
        self._waiting: dict[tuple[_Place, str], list[State]] = {}
        self._added: dict[tuple[str, tuple[int, ...], str], State] = {}
        """By block, layers and metric: the heads of these layers side by side."""

    @contextmanager
    def batch(self, batch: Batch) -> Iterator[Reader]:
        """A reader for one forward pass over these documents."""
        found = _Found()
        blocks: dict[str, _Block] = {}

        def read(attention: Attention) -> None:
            attention = replace(attention, batch=batch, weights=_full(attention.weights))
            if attention.block not in blocks:
                blocks[attention.block] = _Block(self._digests(attention.block), self._n_layers)
                self._read(attention, [ONCE], "tokens", found)
            self._read(attention, [attention.layer], "layer", found)
            block = blocks[attention.block]
            if block.digests:
                block.take_digests(attention)
            attention.derived.clear()
            if self._of(attention.block, "layers"):
                block.layers.append(attention.without_vectors())

        yield read
        for name, block in blocks.items():
            for attention, layers in block.joined():
                self._read(attention, layers, "digests", found)
            for metric in self._of(name, "layers"):
                place = _Place(name, ONCE, "layers")
                found.states[place, metric.name] = metric.measure_layers(block.layers)
        self._check_finite(found)
        self._add(found, batch)
        batch.derived.clear()

    def _read(
        self, attention: Attention, layers: Sequence[int], reads: _Reads, found: _Found
    ) -> None:
        """Measure what belongs to one layer, to several at once, or to the text alone."""
        rows: list[Tensor] = []
        places = [_Place(attention.block, layer, reads) for layer in layers]
        for metric in self._of(attention.block, reads):
            if metric.adds_in_place and reads == "digests":
                found.to_add.append((metric, attention, tuple(layers)))
            elif metric.is_sum:
                rows.extend(cast("RatioMetric", metric).rows(attention))
            else:
                states = _split(metric, metric.measure(attention), len(layers))
                for place, state in zip(places, states, strict=True):
                    found.states[place, metric.name] = state
        if rows:
            tables = side_by_side(rows, len(layers))
            shapes = [row_shape(array, len(layers)) for array in rows]
            for place, table in zip(places, tables.unbind(1), strict=True):
                found.rows[place] = _Rows(shapes, table)

    def _of(self, block: str, reads: _Reads) -> list[Metric]:
        """The metrics measured there."""
        if (block, reads) not in self._chosen:
            self._chosen[block, reads] = [
                metric
                for metric in self._metrics.values()
                if block in metric.blocks and _reads(metric) == reads
            ]
        return self._chosen[block, reads]

    def _digests(self, block: str) -> tuple[Digest, ...]:
        """Those that its metrics are made of, each once."""
        metrics = self._of(block, "digests")
        return tuple(dict.fromkeys(d for metric in metrics for d in metric.digests()))

    def _add(self, found: _Found, batch: Batch) -> None:
        for place, rows in found.rows.items():
            if place not in self._sums:
                self._sums[place] = Sums(batch.axes.n_parts, rows.shapes)
            self._sums[place].add(rows.table, batch)
        for key, state in found.states.items():
            waiting = self._waiting.setdefault(key, [])
            waiting.append(state)
            if len(waiting) >= MOST_WAITING:
                waiting[:] = [self._metrics[key[1]].merge_all(waiting)]
        for metric, attention, layers in found.to_add:
            where = attention.block, layers, metric.name
            if where not in self._added:
                self._added[where] = metric.zero(
                    attention.n_heads, batch.axes, is_causal=attention.is_causal
                )
            metric.add(self._added[where], attention)

    def layers(self) -> dict[str, list[int]]:
        """The layers of each block that were seen."""
        blocks: dict[str, set[int]] = {}
        for block, layer in self._places():
            blocks.setdefault(block, set())
            if layer != ONCE:
                blocks[block].add(layer)
        return {block: sorted(layers) for block, layers in blocks.items()}

    def states(self) -> States:
        """The states by block and metric, those of all layers stacked."""
        found: dict[tuple[str, int], dict[str, State]] = {}
        for place, sums in self._sums.items():
            at = found.setdefault((place.block, place.layer), {})
            for (name, array), values in zip(self._arrays(place), sums.arrays(), strict=True):
                at.setdefault(name, {})[array] = values
        for (place, name), waiting in self._waiting.items():
            at = found.setdefault((place.block, place.layer), {})
            at[name] = self._metrics[name].merge_all(waiting)
        for (block, layers, name), state in self._added.items():
            parts = _split(self._metrics[name], state, len(layers))
            for layer, part in zip(layers, parts, strict=True):
                found.setdefault((block, layer), {})[name] = part
        return self._stacked(found)

    def _stacked(self, found: dict[tuple[str, int], dict[str, State]]) -> States:
        states: States = {}
        for block, layers in self.layers().items():
            once = found.get((block, ONCE), {})
            by_layer = [found[block, layer] for layer in layers]
            for name, metric in self._metrics.items():
                if name in once:
                    states.setdefault(block, {})[name] = once[name]
                elif by_layer and all(name in at for at in by_layer):
                    of_layers = [at[name] for at in by_layer]
                    states.setdefault(block, {})[name] = _stacked(metric, of_layers)
        return states

    def _places(self) -> Iterator[tuple[str, int]]:
        """Blocks and layers of which there are states."""
        for place in (*self._sums, *(place for place, _ in self._waiting)):
            yield place.block, place.layer
        for block, layers, _ in self._added:
            yield from ((block, layer) for layer in layers)

    def _arrays(self, place: _Place) -> list[tuple[str, str]]:
        """Metric and name of the arrays whose rows lie side by side."""
        metrics = [metric.name for metric in self._of(place.block, place.reads) if metric.is_sum]
        return [(metric, array) for metric in metrics for array in RATIO_ARRAYS]

    def _check_finite(self, found: _Found) -> None:
        for place, rows in found.rows.items():
            if rows.table.sum().isfinite():  # one pass: NaN and infinity stay what they are
                continue
            arrays = rows.table.split([prod(shape) for shape in rows.shapes], dim=1)
            for (metric, name), array in zip(self._arrays(place), arrays, strict=True):
                if not array.isfinite().all():
                    raise _not_a_number(metric, name, place)
        for (place, metric), state in found.states.items():
            for name, values in state.items():
                if np.isnan(values).any():
                    raise _not_a_number(metric, name, place)


class _Block:
    """What is kept of the layers of a block until its batch is through."""

    def __init__(self, digests: tuple[Digest, ...], n_layers: int) -> None:
        self.digests = digests
        self.layers: list[Attention] = []
        """Of those who compare layers: whole."""
        self._n_layers = n_layers
        self._joined: dict[torch.Size, JoinedLayers] = {}
        """By shape: some models have layers with fewer heads."""

    def take_digests(self, attention: Attention) -> None:
        """Those of one layer."""
        shape = attention.weights.shape
        if shape not in self._joined:
            self._joined[shape] = JoinedLayers(attention, self._n_layers)
        self._joined[shape].add(attention.layer, read_digests(attention, self.digests))

    def joined(self) -> Iterator[tuple[Attention, list[int]]]:
        """The digests of all layers of a shape, and the numbers of these layers."""
        for joined in self._joined.values():
            yield joined.joined(), joined.layers


def _reads(metric: Metric) -> _Reads:
    return "digests" if metric.scope == "layer" and metric.digests() else metric.scope


def _split(metric: Metric, state: State, n_layers: int) -> list[State]:
    """The state of joined layers, as one of each."""
    if n_layers == 1:
        return [state]
    states: list[State] = [{} for _ in range(n_layers)]
    for name, array in state.items():
        dims = metric.state_dims(name)
        is_by_head = "head" in dims
        parts = np.split(array, n_layers, dims.index("head")) if is_by_head else [array] * n_layers
        for own, part in zip(states, parts, strict=True):
            own[name] = part
    return states


def _full(weights: Tensor) -> Tensor:
    """Weights of a model in half precision, in single: sums of distances leave its range."""
    return weights.float() if weights.dtype.itemsize < 4 else weights


def merge_states(
    metrics: Sequence[Metric], left: States, right: States, *, in_place: bool = False
) -> States:
    """Both states as one; what only one of them has is taken as it is.

    Args:
        metrics: whose states they are.
        left: by block and metric.
        right: likewise.
        in_place: the arrays of `left` may be written to; it is not used again.
    """
    by_name = {metric.name: metric for metric in metrics}
    merged: States = {}
    for block in {**left, **right}:
        ours, theirs = left.get(block, {}), right.get(block, {})
        merged[block] = {}
        for name, metric in by_name.items():
            if name in ours and name in theirs:
                merge = metric.merge_into if in_place else metric.merge
                merged[block][name] = merge(ours[name], theirs[name])
            elif name in ours or name in theirs:
                merged[block][name] = (ours if name in ours else theirs)[name]
    return merged


def _stacked(metric: Metric, states: Sequence[State]) -> State:
    """States of all layers along a new first axis; layers with fewer heads are filled up."""
    stacked: State = {}
    for name in states[0]:
        arrays = [state[name] for state in states]
        dims = metric.state_dims(name)
        if "head" in dims and len({array.shape for array in arrays}) > 1:
            axis = dims.index("head")
            most = max(array.shape[axis] for array in arrays)
            arrays = [_filled(array, axis, most, metric.nothing) for array in arrays]
        stacked[name] = np.stack(arrays)
    return stacked


def _filled(array: np.ndarray, axis: int, size: int, value: float) -> np.ndarray:
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, size - array.shape[axis])
    return np.pad(array, padding, constant_values=value)


def _not_a_number(metric: str, array: str, place: _Place) -> ModelError:
    is_of_layer = place.layer != ONCE
    where = f"layer {place.layer} of {place.block} attention" if is_of_layer else "the text"
    return ModelError(
        f"The model gives attention that is not a number: {array} of {metric} is NaN in {where}. "
        "Check the model on this input, or its precision."
    )
