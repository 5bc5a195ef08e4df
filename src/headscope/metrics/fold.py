"""The fold: one forward pass in, the states of all metrics out.

Keeps one state per metric and layer. A batch counts only when all of it went through:
what a failed forward pass left behind is forgotten. Metrics that are sums of rows are
added up together, layer by layer; the states of others wait and are merged several at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention, Reader
from headscope.batch import Batch
from headscope.errors import ModelError
from headscope.metrics.assemble import States
from headscope.metrics.base import RATIO_ARRAYS, Metric, RatioMetric, State
from headscope.metrics.sums import Sums, side_by_side

__all__ = ["Fold", "merge_states"]

ONCE = -1
"""The layer of a state that belongs to none."""
MOST_WAITING = 8

_Place = tuple[str, int]
"""Block and layer."""


@dataclass(eq=False)
class _Found:
    """What one batch came to."""

    rows: dict[_Place, tuple[list[Tensor], Tensor]] = field(default_factory=dict)
    """Rows of all metrics that are sums: as they were given, and side by side."""
    states: dict[tuple[_Place, str], State] = field(default_factory=dict)


class Fold:
    """Sums over batches. Use `batch` around each forward pass, `states` at the end."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._sums: dict[_Place, Sums] = {}
        self._waiting: dict[tuple[_Place, str], list[State]] = {}

    @contextmanager
    def batch(self, batch: Batch) -> Iterator[Reader]:
        """A reader for one forward pass over these documents."""
        found = _Found()
        layers: dict[str, list[Attention]] = {}
        couples = any(metric.scope == "layers" for metric in self._metrics.values())

        def read(attention: Attention) -> None:
            attention = replace(attention, batch=batch, weights=_full(attention.weights))
            for layer in (attention.layer, ONCE):
                self._read(attention, (attention.block, layer), found)
            attention.derived.clear()
            if couples:
                layers.setdefault(attention.block, []).append(attention.without_vectors())

        yield read
        for block, attentions in layers.items():
            for metric in self._metrics.values():
                if metric.scope == "layers" and block in metric.blocks:
                    found.states[(block, ONCE), metric.name] = metric.measure_layers(attentions)
        self._check_finite(found)
        self._add(found, batch)
        batch.derived.clear()

    def _read(self, attention: Attention, place: _Place, found: _Found) -> None:
        """Measure what belongs to a layer, or (once a batch) to the text alone."""
        if place in found.rows:
            return
        rows: list[Tensor] = []
        for metric in self._of(place):
            if metric.is_sum:
                rows.extend(cast("RatioMetric", metric).rows(attention))
            elif (place, metric.name) not in found.states:
                found.states[place, metric.name] = metric.measure(attention)
        if rows:
            found.rows[place] = rows, side_by_side(rows)

    def _of(self, place: _Place) -> list[Metric]:
        """The metrics measured there."""
        block, layer = place
        scope = "tokens" if layer == ONCE else "layer"
        return [m for m in self._metrics.values() if m.scope == scope and block in m.blocks]

    def _add(self, found: _Found, batch: Batch) -> None:
        for place, (arrays, rows) in found.rows.items():
            if place not in self._sums:
                self._sums[place] = Sums(batch.axes.n_parts, arrays)
            self._sums[place].add(rows, batch)
        for key, state in found.states.items():
            waiting = self._waiting.setdefault(key, [])
            waiting.append(state)
            if len(waiting) >= MOST_WAITING:
                waiting[:] = [self._metrics[key[1]].merge_all(waiting)]

    def layers(self) -> dict[str, list[int]]:
        """The layers of each block that were seen."""
        blocks: dict[str, set[int]] = {}
        for block, layer in [*self._sums, *(place for place, _ in self._waiting)]:
            blocks.setdefault(block, set())
            if layer != ONCE:
                blocks[block].add(layer)
        return {block: sorted(layers) for block, layers in blocks.items()}

    def states(self) -> States:
        """The states by block and metric, those of all layers stacked."""
        states: States = {}
        for block, layers in self.layers().items():
            once = self._at((block, ONCE))
            by_layer = [self._at((block, layer)) for layer in layers]
            for name, metric in self._metrics.items():
                if name in once:
                    states.setdefault(block, {})[name] = once[name]
                elif by_layer and all(name in at for at in by_layer):
                    of_layers = [at[name] for at in by_layer]
                    states.setdefault(block, {})[name] = _stacked(metric, of_layers)
        return states

    def _at(self, place: _Place) -> dict[str, State]:
        """The states of one layer, by metric."""
        states = {}
        if place in self._sums:
            arrays = iter(self._sums[place].arrays())
            for metric in self._of(place):
                if metric.is_sum:
                    states[metric.name] = {name: next(arrays) for name in RATIO_ARRAYS}
        for (where, name), waiting in self._waiting.items():
            if where == place:
                states[name] = self._metrics[name].merge_all(waiting)
        return states

    def _check_finite(self, found: _Found) -> None:
        for (block, layer), (arrays, rows) in found.rows.items():
            if not rows.sum().isfinite():  # one pass: NaN and infinity stay what they are
                names = [
                    (m.name, a) for m in self._of((block, layer)) if m.is_sum for a in RATIO_ARRAYS
                ]
                for (metric, name), array in zip(names, arrays, strict=True):
                    if not torch.isfinite(array).all():
                        raise _not_a_number(metric, name, block, layer)
        for ((block, layer), metric), state in found.states.items():
            for name, values in state.items():
                if np.isnan(values).any():
                    raise _not_a_number(metric, name, block, layer)


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


def _not_a_number(metric: str, array: str, block: str, layer: int) -> ModelError:
    where = f"layer {layer} of {block} attention" if layer != ONCE else "the text"
    return ModelError(
        f"The model gives attention that is not a number: {array} of {metric} is NaN in {where}. "
        "Check the model on this input, or its precision."
    )
