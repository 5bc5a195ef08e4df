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
from headscope.metrics.core.layer_data import JoinedLayers, LayerData, RowsReader
from headscope.metrics.core.registry import is_ours


def side_by_side(arrays: Sequence[Tensor], n_layers: int = 1) -> Tensor:
    """`document layer number`: return several arrays (`document …`) as one table, float64 on the
    CPU. For several layers, arrays are `document head …` with the heads of all.
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
        split = zip(np.split(self._table.numpy(), ends, axis=1), self._shapes, strict=True)
        return [np.ascontiguousarray(sums).reshape(-1, *shape) for sums, shape in split]


States = dict[str, dict[str, State]]
"""States by block and metric."""
ONCE = -1
"""Layer number of states that do not belong to one layer."""
MAX_WAITING = 16
MAX_JOINED = 4096
"""Tokens of a batch up to which reductions of all layers are kept and measured together."""

MAX_COMPARED = 1 << 24
"""Weights of all layers that are compared at once."""

_MetricInput = Literal["text", "layer", "reductions", "layers"]
"""Input of a metric: any layer (only the text matters), each layer, reductions of all layers, or
all layers."""


class _StateKey(NamedTuple):
    block: str
    layer: int
    kind: _MetricInput


class _RatioTable(NamedTuple):
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
    """Sums over batches. Use `batch` around each forward pass, `states` at the end."""

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
        # By block: reductions by number of heads (layers may differ), and all layers if a metric
        # compares layers.
        reduced: dict[str, dict[int, JoinedLayers]] = {}
        layers: dict[str, list[Attention]] = {}
        reader: RowsReader | None = None

        def read(attention: Attention) -> None:
            nonlocal reader
            attention = attention.in_float32()
            layer_data, block = LayerData(attention, batch), attention.block
            if block not in reduced:
                reduced[block], layers[block] = {}, []
                self._is_causal[block] = layer_data.is_causal
                self._measure(layer_data, [ONCE], "text", measured)
            if attention.rows is None:
                self._measure(layer_data, [attention.layer], "layer", measured)
            metrics = self._metrics_of(block, "reductions")
            if reductions := dict.fromkeys(r for metric in metrics for r in metric.reductions):
                reader = reader or RowsReader(layer_data, reductions)
                reader.add(layer_data)
                if attention.is_last:
                    results, reader = reader.results(), None
                    if layer_data.n_queries * len(batch) > MAX_JOINED:
                        joined = JoinedLayers(layer_data, 1)
                        joined.add(attention.layer, results)
                        self._measure(joined.joined(), joined.layers, "reductions", measured)
                    else:
                        heads = attention.n_heads
                        if heads not in reduced[block]:
                            reduced[block][heads] = JoinedLayers(layer_data, self._n_layers)
                        reduced[block][heads].add(attention.layer, results)
            layer_data.forget()
            if self._metrics_of(block, "layers") and attention.is_last:
                kept = attention.without_vectors()
                if attention.rows is not None:  # computed again
                    shape = len(batch), kept.n_heads, 0, attention.weights.shape[-1]
                    kept = replace(kept, weights=attention.weights.new_empty(shape))
                layers[block].append(kept)

        yield read
        for block, by_shape in reduced.items():
            for joined in by_shape.values():
                self._measure(joined.joined(), joined.layers, "reductions", measured)
            compared = self._metrics_of(block, "layers")
            for some in _rows_of(layers[block], batch) if compared else ():
                for metric in compared:
                    assert isinstance(metric, LayersMetric)
                    key = _StateKey(block, ONCE, "layers"), metric.name
                    with self._guard(metric, some[0]):
                        state = metric.measure(some)
                        before = [measured.states[key]] if key in measured.states else []
                        measured.states[key] = metric.merge([*before, state]) if before else state
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
        self, layer_data: LayerData, layers: Sequence[int], kind: _MetricInput, measured: _BatchSums
    ) -> None:
        rows: list[Tensor] = []
        state_keys = [_StateKey(layer_data.block, layer, kind) for layer in layers]
        for metric in self._metrics_of(layer_data.block, kind):
            if isinstance(metric, RatioMetric):
                with self._guard(metric, layer_data):
                    rows.extend(metric.checked_rows(layer_data))
            elif isinstance(metric, SumMetric) and kind == "reductions":
                own = {reduction: reduction(layer_data) for reduction in metric.reductions}
                kept = LayerData.of_reductions(layer_data, layer_data.n_heads, own)
                measured.to_add.append((metric, kept, tuple(layers)))
            else:
                with self._guard(metric, layer_data):
                    state = measure_layer(metric, layer_data)
                states = _split(metric, state, len(layers))
                for state_key, layer_state in zip(state_keys, states, strict=True):
                    measured.states[state_key, metric.name] = layer_state
        if rows:
            tables = side_by_side(rows, len(layers))
            shapes = [row_shape(array, len(layers)) for array in rows]
            for state_key, table in zip(state_keys, tables.unbind(1), strict=True):
                measured.rows[state_key] = _RatioTable(shapes, table)

    def _metrics_of(self, block: str, kind: _MetricInput) -> list[Metric]:
        if (block, kind) not in self._by_input:
            self._by_input[block, kind] = []
            for metric in self._metrics.values():
                takes: _MetricInput = "reductions" if metric.reductions else "layer"
                takes = "text" if metric.scope == "text" else takes
                takes = "layers" if isinstance(metric, LayersMetric) else takes
                if block in metric.blocks and takes == kind:
                    self._by_input[block, kind].append(metric)
        return self._by_input[block, kind]

    def _add(self, measured: _BatchSums, batch: Batch) -> None:
        for state_key, rows in measured.rows.items():
            if state_key not in self._sums:
                self._sums[state_key] = Sums(batch.axes.n_buckets, rows.shapes)
            self._sums[state_key].add(rows.table, batch)
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
        for block, layer, _ in (*self._sums, *(key for key, _ in self._waiting)):
            blocks.setdefault(block, set()).add(layer)
        for block, layers, _ in self._added:
            blocks.setdefault(block, set()).update(layers)
        return {block: sorted(layers - {ONCE}) for block, layers in blocks.items()}

    def states(self) -> States:
        """Return the states by block and metric, stacked over layers."""
        by_key: dict[tuple[str, int], dict[str, State]] = {}
        for state_key, sums in self._sums.items():
            by_metric = by_key.setdefault((state_key.block, state_key.layer), {})
            for (name, array), values in zip(self._arrays(state_key), sums.arrays(), strict=True):
                by_metric.setdefault(name, {})[array] = values
        for (state_key, name), waiting in self._waiting.items():
            by_metric = by_key.setdefault((state_key.block, state_key.layer), {})
            by_metric[name] = self._metrics[name].merge(waiting)
        for (block, layers, name), state in self._added.items():
            split_states = _split(self._metrics[name], state, len(layers))
            for layer, layer_state in zip(layers, split_states, strict=True):
                by_metric = by_key.setdefault((block, layer), {})
                others = [by_metric[name]] if name in by_metric else []
                by_metric[name] = self._metrics[name].merge([*others, layer_state])
        states: States = {}
        for block, layer_numbers in self.layers().items():
            once = by_key.get((block, ONCE), {})
            by_layer = [by_key[block, layer] for layer in layer_numbers]
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

    def _arrays(self, state_key: _StateKey) -> list[tuple[str, str]]:
        metrics = self._metrics_of(state_key.block, state_key.kind)
        ratios = [metric.name for metric in metrics if isinstance(metric, RatioMetric)]
        return [(name, array) for name in ratios for array in RATIO_ARRAYS]

    def _check_finite(self, measured: _BatchSums) -> None:
        for state_key, rows in measured.rows.items():
            if rows.table.sum().isfinite():  # one pass: NaN and infinity propagate
                continue
            arrays = rows.table.split([prod(shape) for shape in rows.shapes], dim=1)
            for (metric, name), array in zip(self._arrays(state_key), arrays, strict=True):
                if not array.isfinite().all():
                    raise self._not_a_number(metric, f"{name} of {metric}", state_key)
        for (state_key, metric), state in measured.states.items():
            for name, values in state.items():
                if np.isnan(values).any():
                    raise self._not_a_number(metric, f"{name} of {metric}", state_key)
        for metric_, layer_data, layers in measured.to_add:
            for reduction in metric_.reductions:
                for tensor in reduction(layer_data):
                    if tensor.is_floating_point() and tensor.isnan().any():
                        state_key = _StateKey(layer_data.block, layers[0], "reductions")
                        what = f"a reduction of {metric_.name}"
                        raise self._not_a_number(metric_.name, what, state_key)

    def _not_a_number(self, metric: str, what: str, state_key: _StateKey) -> HeadscopeError:
        block, layer, _ = state_key
        where = "the text" if layer == ONCE else f"layer {layer} of {block} attention"
        if is_ours(self._metrics[metric]):
            return ModelError(
                f"The model's attention is not a number: {what} is NaN or infinite in {where}. "
                "Check the model on this input, or its precision."
            )
        return MetricError(
            f"{what} is NaN or infinite in {where}. If headscope's own metrics are finite, the "
            "metric divides by zero or takes the logarithm of zero."
        )


def _rows_of(layers: Sequence[Attention], batch: Batch) -> Iterator[list[LayerData]]:
    """Yield all layers: whole, or a few rows at a time, which are computed again."""
    if layers[0].rows is None:
        yield [LayerData(attention, batch) for attention in layers]
        return
    n_rows, n_keys = layers[0].n_rows, layers[0].weights.shape[-1]
    n_heads = sum(attention.n_heads for attention in layers)
    step = max(1, MAX_COMPARED // (len(batch) * n_heads * n_keys))
    for start in range(0, n_rows, step):
        rows = slice(start, min(start + step, n_rows))
        some = []
        for attention in layers:
            assert attention.again is not None
            part = replace(attention, weights=attention.again(rows), rows=rows, are_scores=False)
            some.append(LayerData(part.in_float32(), batch))
        yield some


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
    heads = {name: dims.index("head") for name, dims in dims.items() if "head" in dims}
    sizes = [max((s[name].shape[axis] for name, axis in heads.items()), default=0) for s in states]
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
    """Merge states metric by metric; a state that only one side has is kept. With `in_place`,
    arrays of `left` may be overwritten, and `left` is not used again.
    """
    merged: States = {block: {} for block in {**left, **right}}
    for block, by_metric in merged.items():
        sides = left.get(block, {}), right.get(block, {})
        for metric in metrics:
            present = [states[metric.name] for states in sides if metric.name in states]
            if len(present) == 2:
                by_metric[metric.name] = metric.merge(present, in_place=in_place)
            elif present:
                by_metric[metric.name] = present[0]
    return merged
