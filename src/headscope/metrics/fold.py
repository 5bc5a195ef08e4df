"""The fold: one forward pass in, the states of all metrics out.

Keeps one state per metric and layer. A batch counts only when all of it went through:
what a failed forward pass left behind is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from headscope.attention import Attention, Reader
from headscope.batch import Batch
from headscope.errors import ModelError
from headscope.metrics.assemble import States
from headscope.metrics.base import Metric, State

__all__ = ["Fold", "merge_states"]

ONCE = -1
"""The layer of a state that belongs to none."""

_ByLayer = dict[tuple[str, str, int], State]


class Fold:
    """Sums over batches. Use `batch` around each forward pass, `states` at the end."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._total: _ByLayer = {}

    @contextmanager
    def batch(self, batch: Batch) -> Iterator[Reader]:
        """A reader for one forward pass over these documents."""
        found: _ByLayer = {}
        waiting: dict[str, list[Attention]] = {}
        couples = any(metric.scope == "layers" for metric in self._metrics.values())

        def read(attention: Attention) -> None:
            attention = replace(attention, batch=batch)
            for metric in self._metrics.values():
                if attention.block not in metric.blocks or metric.scope == "layers":
                    continue
                layer = attention.layer if metric.scope == "layer" else ONCE
                if (attention.block, metric.name, layer) not in found:
                    found[attention.block, metric.name, layer] = metric.measure(attention)
            attention.derived.clear()
            if couples:
                only_weights = replace(
                    attention, queries=None, keys=None, values=None, outputs=None, scores=None
                )
                waiting.setdefault(attention.block, []).append(only_weights)

        yield read
        for block, attentions in waiting.items():
            for metric in self._metrics.values():
                if metric.scope == "layers" and block in metric.blocks:
                    found[block, metric.name, ONCE] = metric.measure_layers(attentions)
        batch.derived.clear()
        _check_finite(found)
        self._add(found)

    def _add(self, found: _ByLayer) -> None:
        for key, state in found.items():
            before = self._total.get(key)
            self._total[key] = (
                state if before is None else self._metrics[key[1]].merge(before, state)
            )

    def layers(self) -> dict[str, list[int]]:
        """The layers of each block that were seen."""
        blocks: dict[str, set[int]] = {}
        for block, _, layer in self._total:
            blocks.setdefault(block, set())
            if layer != ONCE:
                blocks[block].add(layer)
        return {block: sorted(layers) for block, layers in blocks.items()}

    def states(self) -> States:
        """The states by block and metric, those of all layers stacked."""
        states: States = {}
        for block, layers in self.layers().items():
            for name, metric in self._metrics.items():
                if metric.scope != "layer":
                    state = self._total.get((block, name, ONCE))
                    if state is not None:
                        states.setdefault(block, {})[name] = state
                    continue
                keys = [(block, name, layer) for layer in layers]
                if keys and all(key in self._total for key in keys):
                    of_layers = [self._total[key] for key in keys]
                    states.setdefault(block, {})[name] = _stacked(metric, of_layers)
        return states


def merge_states(metrics: Sequence[Metric], left: States, right: States) -> States:
    """Both states as one; what only one of them has is taken as it is."""
    by_name = {metric.name: metric for metric in metrics}
    merged: States = {}
    for block in {**left, **right}:
        ours, theirs = left.get(block, {}), right.get(block, {})
        merged[block] = {
            name: by_name[name].merge(ours[name], theirs[name])
            if name in ours and name in theirs
            else (ours if name in ours else theirs)[name]
            for name in by_name
            if name in ours or name in theirs
        }
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
            empty = -1.0 if metric.name == "exemplars" else 0.0
            arrays = [_filled(array, axis, most, empty) for array in arrays]
        stacked[name] = np.stack(arrays)
    return stacked


def _filled(array: np.ndarray, axis: int, size: int, value: float) -> np.ndarray:
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, size - array.shape[axis])
    return np.pad(array, padding, constant_values=value)


def _check_finite(found: _ByLayer) -> None:
    for (block, name, layer), state in found.items():
        for array, values in state.items():
            if np.isnan(values).any():
                where = f"layer {layer} of {block} attention" if layer != ONCE else "the text"
                raise ModelError(
                    f"The model gives attention that is not a number: {array} of {name} is NaN "
                    f"in {where}. Check the model on this input, or its precision."
                )
