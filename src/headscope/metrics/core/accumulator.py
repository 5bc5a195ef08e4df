"""Accumulation of batches: forward passes in, states of all metrics out.

A batch is added after its forward pass has ended, so a failed pass counts nothing. Rows of ratio
metrics, and sums of reductions, are added in place; other states are merged 16 at a time. States of
several layers have the heads of all, side by side, and are split at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

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
from headscope.metrics.core.layer_data import LayerData, Reduction, RowsReader, Small, join_layers
from headscope.metrics.core.registry import is_ours

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
_LayerSums = tuple[Tensor, Tensor, Tensor]
"""Numerator, denominator and count of a ratio, by document."""


class _StateKey(NamedTuple):
    block: str
    layers: tuple[int, ...]
    metric: str


class Accumulator:
    """Sums over batches. Use `batch` around each forward pass, `states` at the end."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._by_input: dict[tuple[str, _MetricInput], list[Metric]] = {}
        self._states: dict[_StateKey, list[State]] = {}
        """States to merge; only one for sums, which are added in place."""
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
        measured: dict[_StateKey, _LayerSums | LayerData | State] = {}
        # By block: reductions by number of heads (layers may differ) and layer, with the first of
        # these; and all layers if a metric compares layers.
        reduced: dict[str, dict[int, tuple[LayerData, dict[int, dict[Reduction, Small]]]]] = {}
        layers: dict[str, list[Attention]] = {}
        reader: RowsReader | None = None

        def read(attention: Attention) -> None:
            nonlocal reader
            attention = attention.in_float32()
            layer_data, block = LayerData(attention, batch), attention.block
            if block not in reduced:
                reduced[block], layers[block] = {}, []
                self._is_causal[block] = layer_data.is_causal
                measured.update(self._measure(layer_data, [ONCE], "text"))
            if attention.rows is None:
                measured.update(self._measure(layer_data, [attention.layer], "layer"))
            metrics = self._metrics_of(block, "reductions")
            if reductions := dict.fromkeys(r for metric in metrics for r in metric.reductions):
                reader = reader or RowsReader(layer_data, reductions)
                reader.add(layer_data)
                if attention.is_last:
                    results, reader = reader.results(), None
                    like = LayerData.of_reductions(layer_data, layer_data.n_heads, {})
                    if layer_data.n_queries * len(batch) > MAX_JOINED:
                        one = join_layers(like, {attention.layer: results})
                        measured.update(self._measure(one, [attention.layer], "reductions"))
                    else:
                        by_heads = reduced[block].setdefault(attention.n_heads, (like, {}))
                        by_heads[1][attention.layer] = results
            layer_data.forget()
            if self._metrics_of(block, "layers") and attention.is_last:
                kept = attention.without_vectors()
                if attention.rows is not None:  # computed again
                    shape = len(batch), kept.n_heads, 0, attention.weights.shape[-1]
                    kept = replace(kept, weights=attention.weights.new_empty(shape))
                layers[block].append(kept)

        yield read
        for block, by_shape in reduced.items():
            for like, by_layer in by_shape.values():
                joined = join_layers(like, by_layer)
                measured.update(self._measure(joined, [*by_layer], "reductions"))
            compared = self._metrics_of(block, "layers")
            for some in _rows_of(layers[block], batch) if compared else ():
                for metric in compared:
                    assert isinstance(metric, LayersMetric)
                    key = _StateKey(block, (ONCE,), metric.name)
                    with self._guard(metric, some[0]):
                        states = [measured[key]] if key in measured else []
                        measured[key] = metric.merge([*states, metric.measure(some)])  # type: ignore[list-item]
        for key, value in measured.items():
            self._check_finite(key, value)
        self._axes = batch.axes
        try:
            for key, value in measured.items():
                self._add(key, value, batch)
        except MetricError:
            raise
        except Exception as error:
            # Part of the batch may be counted, so the shard must not continue or retry.
            raise MetricError(
                f"The sums of a batch could not be added up: {type(error).__name__}: {error}."
            ) from error
        batch.derived.clear()

    def _measure(
        self, layer_data: LayerData, layers: Sequence[int], kind: _MetricInput
    ) -> Iterator[tuple[_StateKey, _LayerSums | LayerData | State]]:
        """Yield rows of a ratio, reductions of a sum (to be added in place), or a state."""
        for metric in self._metrics_of(layer_data.block, kind):
            key = _StateKey(layer_data.block, tuple(layers), metric.name)
            if isinstance(metric, SumMetric) and kind == "reductions":
                own = {reduction: reduction(layer_data) for reduction in metric.reductions}
                yield key, LayerData.of_reductions(layer_data, layer_data.n_heads, own)
                continue
            value: _LayerSums | State
            with self._guard(metric, layer_data):
                if isinstance(metric, RatioMetric):
                    value = metric.checked_rows(layer_data)
                else:
                    value = measure_layer(metric, layer_data)
            yield key, value

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

    def _add(self, key: _StateKey, value: _LayerSums | LayerData | State, batch: Batch) -> None:
        metric, states = self._metrics[key.metric], self._states.setdefault(key, [])
        if isinstance(value, dict):
            states.append(value)
            if len(states) >= MAX_WAITING:
                states[:] = [metric.merge(states)]
            return
        is_causal, axes = self._is_causal[key.block], batch.axes
        if isinstance(value, LayerData):
            assert isinstance(metric, SumMetric)
            states[:] = states or [metric.zero(value.n_heads, axes, is_causal=is_causal)]
            with self._guard(metric, value):
                metric.add(states[0], value)
        else:
            assert isinstance(metric, RatioMetric)
            n_heads = value[0].shape[1] if metric.scope == "layer" else 0
            states[:] = states or [metric.zero(n_heads, axes, is_causal=is_causal)]
            metric.add_rows(states[0], value, batch)

    def layers(self) -> dict[str, list[int]]:
        """Return the layers of each block that were seen."""
        blocks: dict[str, set[int]] = {}
        for block, layers, _ in self._states:
            blocks.setdefault(block, set()).update(layers)
        return {block: sorted(layers - {ONCE}) for block, layers in blocks.items()}

    def states(self) -> States:
        """Return the states by block and metric, stacked over layers."""
        by_layer: dict[tuple[str, str], dict[int, State]] = {}
        for (block, layers, name), waiting in self._states.items():
            metric, found = self._metrics[name], by_layer.setdefault((block, name), {})
            split = _split(metric, metric.merge(waiting), len(layers))
            for layer, state in zip(layers, split, strict=True):
                found[layer] = metric.merge([found[layer], state]) if layer in found else state
        states: States = {}
        for block, numbers in self.layers().items():
            for name, metric in self._metrics.items():
                found = by_layer.get((block, name), {})
                if ONCE in found:
                    states.setdefault(block, {})[name] = found[ONCE]
                elif numbers and found.keys() == set(numbers):
                    in_order = [found[number] for number in numbers]
                    padded = _padded(metric, in_order, self._axes, self._is_causal[block])
                    states.setdefault(block, {})[name] = {
                        array: np.stack([state[array] for state in padded]) for array in padded[0]
                    }
        return states

    def _check_finite(self, key: _StateKey, value: _LayerSums | LayerData | State) -> None:
        metric = self._metrics[key.metric]
        named: list[tuple[str, Any, tuple[str, ...]]]
        if isinstance(value, LayerData):
            tensors = [tensor for reduction in metric.reductions for tensor in reduction(value)]
            named = [("a reduction", tensor, ("document", "head")) for tensor in tensors]
        else:
            arrays = (
                value if isinstance(value, dict) else dict(zip(RATIO_ARRAYS, value, strict=True))
            )
            named = [(name, array, metric.state_dims(name)) for name, array in arrays.items()]
        for name, array, dims in named:
            numbers = np.asarray(array.cpu() if isinstance(array, torch.Tensor) else array)
            if numbers.dtype.kind != "f":
                continue
            bad = ~np.isfinite(numbers) if isinstance(value, tuple) else np.isnan(numbers)
            if bad.any():
                raise self._not_a_number(f"{name} of {metric.name}", key, bad, dims)

    def _not_a_number(
        self, what: str, key: _StateKey, bad: np.ndarray, dims: Sequence[str]
    ) -> HeadscopeError:
        """Return the error that names the layer of the first head with a bad value."""
        layer = key.layers[0]
        if "head" in dims and len(key.layers) > 1:
            head = int(np.nonzero(bad)[dims.index("head")].min())
            layer = key.layers[head * len(key.layers) // bad.shape[dims.index("head")]]
        where = "the text" if layer == ONCE else f"layer {layer} of {key.block} attention"
        if is_ours(self._metrics[key.metric]):
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
        metric.add_rows(state, metric.checked_rows(layer_data), layer_data.batch)
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
