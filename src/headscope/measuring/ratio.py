"""Ratios of sums over a corpus: what most metrics are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from headscope.batch import Axes
from headscope.deferred import torch
from headscope.errors import MetricError
from headscope.measuring.contract import Metric, State, Variable, add_up
from headscope.measuring.reading import Reading
from headscope.statistics.pulls import Pulls, pool, ratio_pulls, scale_of

if TYPE_CHECKING:
    from torch import Tensor

RATIO_ARRAYS = ("numerator", "denominator", "count")


class RatioMetric(Metric):
    """A ratio of sums over the corpus. Subclasses write `rows`.

    The state holds `numerator` and `denominator` by part of the corpus, and `count`, the
    number of query tokens that entered. Besides the ratio a result has its count and, unless
    `has_layer_ratio` is off, the ratio over all heads of each layer.
    """

    dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the numerator after `part` and `head`."""
    denominator_dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the denominator after `part` and `head`: the first of `dims`, or none."""
    has_layer_ratio: ClassVar[bool] = True
    """Is there a meaning to the ratio over all heads of a layer?"""

    @abstractmethod
    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """For each document: numerator (`document head …`), denominator (`document head …`)
        and count (`document head`); without `head` where the scope is `text`.
        """

    @final
    def checked_rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """What `rows` gives, after making sure that it is what was promised.

        Raises:
            MetricError: it is not three tensors of the right shapes.
        """
        rows = self.rows(reading)
        if not isinstance(rows, tuple) or len(rows) != len(RATIO_ARRAYS):
            raise MetricError(
                f"`rows` gave {type(rows).__name__}; expected {', '.join(RATIO_ARRAYS)}."
            )
        lead = (len(reading.batch), reading.n_heads) if self._has_heads else (len(reading.batch),)
        labels = self.coordinates(reading.batch.axes)
        for name, array in zip(RATIO_ARRAYS, rows, strict=True):
            dims = self.state_dims(name)[len(lead) :]
            expected = (*lead, *(len(labels[dim]) for dim in dims))
            if not isinstance(array, torch.Tensor) or tuple(array.shape) != expected:
                shape = tuple(getattr(array, "shape", ()))
                axes = " ".join(("document", *self.state_dims(name)[1:]))
                raise MetricError(
                    f"the {name} that `rows` gave has the shape {shape}; expected {expected} "
                    f"(`{axes}`)."
                )
        return rows

    @final
    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Zeros."""
        lead = (axes.n_parts, n_heads) if self._has_heads else (axes.n_parts,)
        sizes = {dim: len(labels) for dim, labels in self.coordinates(axes).items()}
        shapes = {
            "numerator": (*lead, *(sizes[dim] for dim in self.dims)),
            "denominator": (*lead, *(sizes[dim] for dim in self.denominator_dims)),
            "count": lead,
        }
        return {name: np.zeros(shape) for name, shape in shapes.items()}

    @final
    def state_dims(self, array: str) -> tuple[str, ...]:
        """`part`, `head` and the metric's own."""
        lead = ("part", "head") if self._has_heads else ("part",)
        after = {"numerator": self.dims, "denominator": self.denominator_dims, "count": ()}
        return (*lead, *after[array])

    @final
    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Their sum."""
        return add_up(states, in_place=in_place)

    def variables(self) -> tuple[Variable, ...]:
        """The ratio, its count and, where there are heads, the ratio by layer."""
        heads = ("layer", "head") if self._has_heads else ()
        ratio = self.variable(self.name, (*heads, *self.dims))
        count = self.count_variable(heads)
        if not self._has_by_layer:
            return ratio, count
        return ratio, count, self.variable(self._by_layer, ("layer", *self.dims), title="")

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Numerator over denominator, summed over the parts."""
        part = self._part_axis
        sums = {name: array.sum(axis=part) for name, array in state.items()}
        return {f"{self.name}_count": sums["count"], **self._values(sums, part)}

    @final
    def pulls(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Pulls]:
        """Those of the ratio, and of the ratio by layer."""
        part = self._part_axis
        numerator = pool(state["numerator"], units, part)
        denominator = pool(state["denominator"], units, part)
        pulls = {self.name: self._pulls(numerator, denominator)}
        if self._has_by_layer:
            head = part + 1
            pulls[self._by_layer] = self._pulls(
                numerator.sum(axis=head), denominator.sum(axis=head)
            )
        return pulls

    def _pulls(self, numerator: np.ndarray, denominator: np.ndarray) -> Pulls:
        denominator = self._spread(denominator)
        return ratio_pulls(numerator, denominator, scale_of(self.units, numerator, denominator))

    @property
    def _has_heads(self) -> bool:
        return self.scope == "layer"

    @property
    def _has_by_layer(self) -> bool:
        return self._has_heads and self.has_layer_ratio

    @property
    def _by_layer(self) -> str:
        return f"{self.name}_by_layer"

    @property
    def _part_axis(self) -> int:
        return 1 if self._has_heads else 0

    def _values(self, sums: State, head_axis: int) -> dict[str, np.ndarray]:
        numerator, denominator = sums["numerator"], sums["denominator"]
        values = {self.name: self._ratio(numerator, denominator)}
        if self._has_by_layer:
            values[self._by_layer] = self._ratio(
                numerator.sum(axis=head_axis), denominator.sum(axis=head_axis)
            )
        return values

    def _ratio(self, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        denominator = self._spread(denominator)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: np.ndarray = np.where(denominator > 0, numerator / denominator, np.nan)
        return ratio

    def _spread(self, denominator: np.ndarray) -> np.ndarray:
        """The denominator with all axes of the numerator."""
        missing = len(self.dims) - len(self.denominator_dims)
        return denominator.reshape(denominator.shape + (1,) * missing)
