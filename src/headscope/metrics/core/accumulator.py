"""Accumulation of batches: forward passes in, states of all metrics out.

A batch is added after its forward pass has ended, so a failed pass counts nothing. The rows of all
ratio metrics of a layer lie side by side in one table `bucket × number`: with small models, calls
cost more than sums. Sums of reductions are added in place; other states are merged 16 at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from headscope.attention import Attention, LayerReader
from headscope.batch import Axes, Batch
from headscope.errors import HeadscopeError, MetricError, ModelError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import (
    RATIO_ARRAYS,
    LayersMetric,
    MergedMetric,
    Metric,
    RatioMetric,
    State,
    SumMetric,
    attribute_errors,
)
from headscope.metrics.core.layer_data import (
    JoinedLayers,
    LayerData,
    Reduction,
    as_float32,
    read_reductions,
)
from headscope.metrics.core.registry import is_ours


def side_by_side(arrays: Sequence[Tensor], n_layers: int = 1) -> Tensor:
    """`document layer number`: return several arrays as one table, float64 on the CPU.

    Args:
        arrays: `document …`; for several layers, `document head …` with the heads of all.
        n_layers: number of layers in the arrays.
    """
    rows = [array.reshape(len(array), n_layers, -1).double() for array in arrays]
    return torch.cat(rows, dim=2).cpu()


def row_shape(array: Tensor, n_layers: int = 1) -> tuple[int, ...]:
    """Return the shape of one document's row of one layer."""
    shape = tuple(array.shape[1:])
    return shape if n_layers == 1 else (shape[0] // n_layers, *shape[1:])


class Sums:
    """Running sums of the rows of one layer, by bucket of the documents."""

    def __init__(self, n_buckets: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = list(shapes)
        width = sum(prod(shape) for shape in self._shapes)
        self._table = torch.zeros((n_buckets, width), dtype=torch.float64)

    def add(self, rows: Tensor, batch: Batch) -> None:
        """Add rows, `document number`."""
        buckets = batch.once("buckets", lambda: torch.from_numpy(batch.buckets.astype(np.int64)))
        self._table.index_add_(0, buckets, rows)

    def arrays(self) -> list[np.ndarray]:
        """`bucket …`: return the sums of each array."""
        ends = np.cumsum([prod(shape) for shape in self._shapes])[:-1]
        return [
            np.ascontiguousarray(sums).reshape(-1, *shape)
            for sums, shape in zip(
                np.split(self._table.numpy(), ends, axis=1), self._shapes, strict=True
            )
        ]


States = dict[str, dict[str, State]]
"""States by block and metric."""
ONCE = -1
"""Layer number of states that do not belong to one layer."""
MAX_WAITING = 16

_MetricInput = Literal["text", "layer", "reductions", "layers"]
"""Input of a metric: any layer (only the text matters), each layer, reductions of all layers, or
all layers."""


class _StateKey(NamedTuple):
    """Block, layer and input of a state."""

    block: str
    layer: int
    kind: _MetricInput


@dataclass(eq=False)
class _RatioTable:
    """Rows of all ratio metrics of one layer."""

    shapes: list[tuple[int, ...]]
    """Shape of each array, without `document`."""
    table: Tensor
    """`document number`: all arrays side by side."""


@dataclass(eq=False)
class _BatchSums:
    """Sums of one batch, before they are added to the states."""

    rows: dict[_StateKey, _RatioTable] = field(default_factory=dict)
    states: dict[tuple[_StateKey, str], State] = field(default_factory=dict)
    to_add: list[tuple[SumMetric, LayerData, tuple[int, ...]]] = field(default_factory=list)
    """Metrics that add in place, with their data and layers."""


class Accumulator:
    """Sums over batches. Use `batch` around each forward pass, `states` at the end.

    Args:
        metrics: metrics to measure.
        n_layers: expected number of layers in a block.
    """

    def __init__(self, metrics: Sequence[Metric], n_layers: int = 1) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._n_layers = n_layers
        self._by_input: dict[tuple[str, _MetricInput], list[Metric]] = {}
        self._sums: dict[_StateKey, Sums] = {}
        self._waiting: dict[tuple[_StateKey, str], list[State]] = {}
        self._added: dict[tuple[str, tuple[int, ...], str], State] = {}
        """States by block, layers and metric, with the heads of these layers side by side."""
        self._axes = Axes()
        self._is_causal: dict[str, bool] = {}
        self._unchecked = {metric.name for metric in metrics if not is_ours(metric)}
        """Users' metrics whose first layer is still to be checked for writes."""

    @contextmanager
    def _guard(self, metric: Metric, layer_data: LayerData) -> Iterator[None]:
        """Attribute errors to the metric. At its first layer, refuse writes into shared tensors."""
        with attribute_errors(metric):
            if metric.name in self._unchecked:
                self._unchecked.remove(metric.name)
                with layer_data.refuse_writes():
                    yield
            else:
                yield

    @contextmanager
    def batch(self, batch: Batch) -> Iterator[LayerReader]:
        """Yield a reader for one forward pass over these documents."""
        measured = _BatchSums()
        blocks: dict[str, _BufferedLayers] = {}

        def read(attention: Attention) -> None:
            layer_data = LayerData(replace(attention, weights=as_float32(attention.weights)), batch)
            if layer_data.block not in blocks:
                blocks[layer_data.block] = _BufferedLayers(
                    self._reductions(layer_data.block), self._n_layers
                )
                self._is_causal[layer_data.block] = layer_data.is_causal
                self._measure(layer_data, [ONCE], "text", measured)
            self._measure(layer_data, [attention.layer], "layer", measured)
            block = blocks[layer_data.block]
            if block.reductions:
                block.take_reductions(layer_data)
            layer_data.forget()
            if self._metrics_of(layer_data.block, "layers"):
                block.layers.append(LayerData(layer_data.attention.without_vectors(), batch))

        yield read
        for name, block in blocks.items():
            for layer_data, layers in block.joined():
                self._measure(layer_data, layers, "reductions", measured)
            for metric in self._metrics_of(name, "layers"):
                assert isinstance(metric, LayersMetric)
                place = _StateKey(name, ONCE, "layers")
                with self._guard(metric, block.layers[0]):
                    measured.states[place, metric.name] = metric.measure(block.layers)
        self._check_finite(measured)
        self._axes = batch.axes
        try:
            self._add(measured, batch)
        except MetricError:
            raise
        except Exception as error:
            # Part of the batch may be counted, so the shard must not continue or retry.
            raise MetricError(
                f"The sums of a batch could not be added up: {type(error).__name__}: {error}."
            ) from error
        batch.derived.clear()

    def _measure(
        self,
        layer_data: LayerData,
        layers: Sequence[int],
        kind: _MetricInput,
        measured: _BatchSums,
    ) -> None:
        rows: list[Tensor] = []
        places = [_StateKey(layer_data.block, layer, kind) for layer in layers]
        for metric in self._metrics_of(layer_data.block, kind):
            if isinstance(metric, RatioMetric):
                with self._guard(metric, layer_data):
                    rows.extend(metric.checked_rows(layer_data))
            elif isinstance(metric, SumMetric) and kind == "reductions":
                measured.to_add.append((metric, layer_data, tuple(layers)))
            else:
                with self._guard(metric, layer_data):
                    state = measure_layer(metric, layer_data)
                states = _split(metric, state, len(layers))
                for place, state in zip(places, states, strict=True):
                    measured.states[place, metric.name] = state
        if rows:
            tables = side_by_side(rows, len(layers))
            shapes = [row_shape(array, len(layers)) for array in rows]
            for place, table in zip(places, tables.unbind(1), strict=True):
                measured.rows[place] = _RatioTable(shapes, table)

    def _metrics_of(self, block: str, kind: _MetricInput) -> list[Metric]:
        if (block, kind) not in self._by_input:
            self._by_input[block, kind] = [
                metric
                for metric in self._metrics.values()
                if block in metric.blocks and _input_of(metric) == kind
            ]
        return self._by_input[block, kind]

    def _reductions(self, block: str) -> tuple[Reduction, ...]:
        metrics = self._metrics_of(block, "reductions")
        return tuple(dict.fromkeys(d for metric in metrics for d in metric.reductions))

    def _add(self, measured: _BatchSums, batch: Batch) -> None:
        for place, rows in measured.rows.items():
            if place not in self._sums:
                self._sums[place] = Sums(batch.axes.n_buckets, rows.shapes)
            self._sums[place].add(rows.table, batch)
        for key, state in measured.states.items():
            waiting = self._waiting.setdefault(key, [])
            waiting.append(state)
            if len(waiting) >= MAX_WAITING:
                waiting[:] = [self._metrics[key[1]].merge(waiting)]
        for metric, layer_data, layers in measured.to_add:
            heads_key = layer_data.block, layers, metric.name
            if heads_key not in self._added:
                self._added[heads_key] = metric.zero(
                    layer_data.n_heads, batch.axes, is_causal=layer_data.is_causal
                )
            with self._guard(metric, layer_data):
                metric.add(self._added[heads_key], layer_data)

    def layers(self) -> dict[str, list[int]]:
        """Return the layers of each block that were seen."""
        blocks: dict[str, set[int]] = {}
        for block, layer in self._places():
            blocks.setdefault(block, set())
            if layer != ONCE:
                blocks[block].add(layer)
        return {block: sorted(layers) for block, layers in blocks.items()}

    def states(self) -> States:
        """Return the states by block and metric, stacked over layers."""
        by_place: dict[tuple[str, int], dict[str, State]] = {}
        for place, sums in self._sums.items():
            by_metric = by_place.setdefault((place.block, place.layer), {})
            for (name, array), values in zip(self._arrays(place), sums.arrays(), strict=True):
                by_metric.setdefault(name, {})[array] = values
        for (place, name), waiting in self._waiting.items():
            by_metric = by_place.setdefault((place.block, place.layer), {})
            by_metric[name] = self._metrics[name].merge(waiting)
        for (block, layers, name), state in self._added.items():
            split_states = _split(self._metrics[name], state, len(layers))
            for layer, layer_state in zip(layers, split_states, strict=True):
                by_place.setdefault((block, layer), {})[name] = layer_state
        return self._stacked(by_place)

    def _stacked(self, by_place: dict[tuple[str, int], dict[str, State]]) -> States:
        states: States = {}
        for block, layers in self.layers().items():
            once = by_place.get((block, ONCE), {})
            by_layer = [by_place[block, layer] for layer in layers]
            for name, metric in self._metrics.items():
                if name in once:
                    states.setdefault(block, {})[name] = once[name]
                elif by_layer and all(name in by_metric for by_metric in by_layer):
                    layer_states = [by_metric[name] for by_metric in by_layer]
                    padded = _padded(metric, layer_states, self._axes, self._is_causal[block])
                    states.setdefault(block, {})[name] = {
                        array: np.stack([state[array] for state in padded]) for array in padded[0]
                    }
        return states

    def _places(self) -> Iterator[tuple[str, int]]:
        for place in (*self._sums, *(place for place, _ in self._waiting)):
            yield place.block, place.layer
        for block, layers, _ in self._added:
            yield from ((block, layer) for layer in layers)

    def _arrays(self, place: _StateKey) -> list[tuple[str, str]]:
        """Return metric and name of each array in the table of ratio metrics."""
        metrics = self._metrics_of(place.block, place.kind)
        ratios = [metric.name for metric in metrics if isinstance(metric, RatioMetric)]
        return [(name, array) for name in ratios for array in RATIO_ARRAYS]

    def _check_finite(self, measured: _BatchSums) -> None:
        for place, rows in measured.rows.items():
            if rows.table.sum().isfinite():  # one pass: NaN and infinity propagate
                continue
            arrays = rows.table.split([prod(shape) for shape in rows.shapes], dim=1)
            for (metric, name), array in zip(self._arrays(place), arrays, strict=True):
                if not array.isfinite().all():
                    raise self._not_a_number(metric, f"{name} of {metric}", place)
        for (place, metric), state in measured.states.items():
            for name, values in state.items():
                if np.isnan(values).any():
                    raise self._not_a_number(metric, f"{name} of {metric}", place)
        for metric_, layer_data, layers in measured.to_add:
            for reduction in metric_.reductions:
                for tensor in reduction(layer_data):
                    if tensor.is_floating_point() and tensor.isnan().any():
                        place = _StateKey(layer_data.block, layers[0], "reductions")
                        what = f"a reduction of {metric_.name}"
                        raise self._not_a_number(metric_.name, what, place)

    def _not_a_number(self, metric: str, what: str, place: _StateKey) -> HeadscopeError:
        is_of_layer = place.layer != ONCE
        where = f"layer {place.layer} of {place.block} attention" if is_of_layer else "the text"
        if is_ours(self._metrics[metric]):
            return ModelError(
                f"The model's attention is not a number: {what} is NaN or infinite in {where}. "
                "Check the model on this input, or its precision."
            )
        return MetricError(
            f"{what} is NaN or infinite in {where}. If headscope's own metrics are finite, the "
            "metric divides by zero or takes the logarithm of zero."
        )


class _BufferedLayers:
    """Data of the layers of a block that are kept until the forward pass ends."""

    def __init__(self, reductions: tuple[Reduction, ...], n_layers: int) -> None:
        self.reductions = reductions
        self.layers: list[LayerData] = []
        """All layers with their weights, if a metric compares layers."""
        self._n_layers = n_layers
        self._joined: dict[tuple[int, ...], JoinedLayers] = {}
        """Reductions by shape of the weights: layers may differ in their number of heads."""

    def take_reductions(self, layer_data: LayerData) -> None:
        """Take the reductions of one layer."""
        shape = tuple(layer_data.weights.shape)
        if shape not in self._joined:
            self._joined[shape] = JoinedLayers(layer_data, self._n_layers)
        self._joined[shape].add(layer_data.layer, read_reductions(layer_data, self.reductions))

    def joined(self) -> Iterator[tuple[LayerData, list[int]]]:
        """Yield the reductions of all layers of a shape, and the numbers of these layers."""
        for joined in self._joined.values():
            yield joined.joined(), joined.layers


def _input_of(metric: Metric) -> _MetricInput:
    if isinstance(metric, LayersMetric):
        return "layers"
    return "reductions" if metric.scope == "layer" and metric.reductions else metric.scope


def measure_layer(metric: Metric, layer_data: LayerData) -> State:
    """Return the state of one LayerData, for any kind of metric."""
    if isinstance(metric, MergedMetric):
        return metric.measure(layer_data)
    if isinstance(metric, LayersMetric):
        return metric.measure([layer_data])
    state = metric.zero(layer_data.n_heads, layer_data.batch.axes, is_causal=layer_data.is_causal)
    if isinstance(metric, SumMetric):
        metric.add(state, layer_data)
    elif isinstance(metric, RatioMetric):
        rows = metric.checked_rows(layer_data)
        sums = Sums(layer_data.batch.axes.n_buckets, [row_shape(array) for array in rows])
        sums.add(side_by_side(rows)[:, 0], layer_data.batch)
        state = dict(zip(RATIO_ARRAYS, sums.arrays(), strict=True))
    return state


def _split(metric: Metric, state: State, n_layers: int) -> list[State]:
    """Split a state with the heads of several layers side by side by layer."""
    if n_layers == 1:
        return [state]
    states: list[State] = [{} for _ in range(n_layers)]
    for name, array in state.items():
        dims = metric.state_dims(name)
        is_by_head = "head" in dims
        arrays = np.split(array, n_layers, dims.index("head")) if is_by_head else [array] * n_layers
        for layer_state, layer_array in zip(states, arrays, strict=True):
            layer_state[name] = layer_array
    return states


def _padded(
    metric: Metric, states: Sequence[State], axes: Axes, is_causal: bool
) -> Sequence[State]:
    """Return the states of layers, filled with empty heads to equal size."""
    dims = {name: metric.state_dims(name) for name in states[0]}
    heads = {
        name: axes_of_array.index("head")
        for name, axes_of_array in dims.items()
        if "head" in axes_of_array
    }
    sizes = [
        max((state[name].shape[axis] for name, axis in heads.items()), default=0)
        for state in states
    ]
    if len(set(sizes)) == 1:
        return states
    zero = metric.zero(1, axes, is_causal=is_causal)
    padded = []
    for state, size in zip(states, sizes, strict=True):
        arrays = dict(state)
        for name, axis in heads.items():
            width = [(0, 0)] * state[name].ndim
            width[axis] = (0, max(sizes) - size)
            fill = zero[name].flat[0] if zero[name].size else 0.0
            arrays[name] = np.pad(state[name], width, constant_values=fill)
        padded.append(arrays)
    return padded


def merge_states(
    metrics: Sequence[Metric], left: States, right: States, *, in_place: bool = False
) -> States:
    """Merge states metric by metric; a state that only one side has is kept.

    Args:
        metrics: metrics of the states.
        left: states by block and metric.
        right: states by block and metric.
        in_place: arrays of `left` may be overwritten; `left` is not used again.
    """
    merged: States = {}
    for block in {**left, **right}:
        ours, theirs = left.get(block, {}), right.get(block, {})
        merged[block] = {}
        for metric in metrics:
            present = [states[metric.name] for states in (ours, theirs) if metric.name in states]
            if len(present) == 2:
                merged[block][metric.name] = metric.merge(present, in_place=in_place)
            elif present:
                merged[block][metric.name] = present[0]
    return merged
