"""The contract of a metric: what is summed, how sums are added, what they come to.

A metric is a frozen description. Its state is separate, small and plain: a dict of NumPy
arrays, float64, that pickles and can be added to another. One process, a pool, a resume
after a crash and "add last night's run" are therefore the same reduce.

Most metrics are a `RatioMetric` and write one method: `rows`, the numerator and
denominator of each document of a batch. Other sums are a `Metric`; what cannot be a sum (the
k highest, a mean of deviations from a mean) brings its own `merge` too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from torch import Tensor

from headscope.attention import Attention, Block
from headscope.batch import Axes, Batch
from headscope.measuring.sums import Sums, row_shape, side_by_side

if TYPE_CHECKING:
    from headscope.measuring.digests import Digest

__all__ = ["Metric", "RatioMetric", "Scope", "State", "batch_of"]

State = dict[str, np.ndarray]
Scope = Literal["layer", "layers", "tokens"]
"""What `measure` gets: one layer of a batch; all layers of a batch together (for metrics
that compare layers); or any one of them, because attention itself does not matter."""

ALL_BLOCKS: frozenset[Block] = frozenset(("self", "encoder", "decoder", "cross"))
SELF_BLOCKS: frozenset[Block] = frozenset(("self", "encoder", "decoder"))
RATIO_ARRAYS = ("numerator", "denominator", "count")


class Metric(ABC):
    """A frozen description of something to measure. Subclasses are frozen dataclasses.

    A state of scope `layer` is of one layer. The fold stacks the states of all layers
    along a new first axis, and `merge` and `finalize` see them so: write them for any
    number of leading axes (`merge`) and for one more (`finalize`).
    """

    name: ClassVar[str]
    """Name of the metric and of its main variable in a result."""
    paper: ClassVar[str]
    """Where it was defined: `Vig & Belinkov 2019, Eq. 6`."""
    units: ClassVar[str]
    counts: ClassVar[str] = "query tokens"
    """What its `_count` counts."""
    scope: ClassVar[Scope] = "layer"
    blocks: ClassVar[frozenset[Block]] = ALL_BLOCKS
    """The attention it makes sense for."""
    needs: ClassVar[frozenset[Literal["tags", "parents", "relations", "mentions"]]] = frozenset()
    """Annotations without which there is nothing to measure."""
    adds_in_place: ClassVar[bool] = False
    """Does a run keep one state of sums and `add` to it, rather than merge those of batches?
    Only with `digests`."""
    reads: ClassVar[Literal["attention", "gradients"]] = "attention"
    """What the run must hand over: a forward pass, or a backward pass too."""
    is_default: ClassVar[bool] = True
    """Is it one of "all"? Not if it costs as much as the model."""
    nothing: ClassVar[float] = 0.0
    """What a state holds for heads that a layer has not: others may have more."""

    @property
    def meaning(self) -> str:
        """The first line of the docstring: what the number says."""
        return (type(self).__doc__ or "").strip().split("\n")[0]

    @property
    def averaged(self) -> str:
        """How documents are put together."""
        return "ratio of sums over the corpus"

    def digests(self) -> tuple[Digest, ...]:
        """All that a metric of scope `layer` reads of the weights, where that is little.

        Then it gets the layers of a batch at once, their heads side by side as if of one
        layer. Empty: it reads what it likes, layer by layer.
        """
        return ()

    @abstractmethod
    def state_dims(self, array: str) -> tuple[str, ...]:
        """Names of the axes of one of the state's arrays (without `layer`)."""

    @abstractmethod
    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """The state of nothing measured: the identity of `merge`."""

    @abstractmethod
    def measure(self, attention: Attention) -> State:
        """The state of one layer of one batch. Pure: its input is left as it was."""

    def measure_layers(self, attentions: Sequence[Attention]) -> State:
        """The state of all layers of one batch, for metrics of scope `layers`; by default
        that of each layer, merged.
        """
        return self.merge_all([self.measure(attention) for attention in attentions])

    def merge(self, left: State, right: State) -> State:
        """Both states as one: their sum. Others too have to be associative and commutative
        (sums: up to rounding).
        """
        return {name: left[name] + right[name] for name in left}

    def merge_all(self, states: Sequence[State]) -> State:
        """Several states as one: `merge` again and again, unless there is a shorter way."""
        return reduce(self.merge, states)

    def merge_into(self, left: State, right: State) -> State:
        """Both states as one, which may lie in the arrays of `left`: it is not used again."""
        if type(self).merge is not Metric.merge:
            return self.merge(left, right)
        for name in left:
            left[name] += right[name]
        return left

    def add(self, state: State, attention: Attention) -> None:
        """What `measure` gives added to a state of sums, in place. Where a batch adds little
        to a large state (`adds_in_place`), it should touch no more than that.
        """
        for name, array in self.measure(attention).items():
            state[name] += array

    def renumbered(self, state: State, offset: int) -> State:
        """The state with its documents, if it names any, numbered from `offset` on."""
        return state

    def is_comparable(self, left: State, right: State) -> bool:
        """Do the values of two states differ only by what was measured, and not also by how
        much of it there was?
        """
        return True

    @property
    def is_sum(self) -> bool:
        """Are states plain sums of `rows`, so that they can be added up in place?"""
        return False

    @abstractmethod
    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The values by variable name; nothing measured is NaN with a count of 0."""

    @abstractmethod
    def variable_dims(self, variable: str) -> tuple[str, ...]:
        """Names of the axes of a variable that `finalize` gives."""

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str] | Sequence[int]]:
        """Labels of the axes that are this metric's own."""
        found: dict[str, Sequence[str]] = {}
        for variable in self.variables():
            for dim in self.variable_dims(variable):
                if dim == "tag":
                    found[dim] = axes.tags
                elif dim == "relation":
                    found[dim] = axes.relations
        return found

    def variables(self) -> tuple[str, ...]:
        """Names of the variables that `finalize` gives."""
        return (self.name,)

    def draws(self, state: State, axes: Axes, weights: np.ndarray) -> dict[str, np.ndarray]:
        """The values for each row of weights on the parts (`draw part`): what `finalize`
        gives, with a first axis `draw`. Empty where the metric has no bootstrap.
        """
        return {}


class RatioMetric(Metric):
    """A ratio of sums over the corpus.

    The state holds `numerator` and `denominator` per part and `count`, the number of query
    tokens that entered. Subclasses say which axes come after `head` and write `rows`.
    """

    dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the numerator after `part` and `head`."""
    denominator_dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the denominator after `part` and `head`: the first of `dims`, or none."""
    has_heads: ClassVar[bool] = True
    sums_over_heads: ClassVar[bool] = True
    """Is there a meaning to the ratio over all heads of a layer?"""

    @abstractmethod
    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """For each document: numerator (`document head …`), denominator and count
        (`document head`); without `head` where `has_heads` is off.
        """

    def measure(self, attention: Attention) -> State:
        """Sums of `rows` by part."""
        batch = batch_of(attention)
        rows = self.rows(attention)
        sums = Sums(batch.axes.n_parts, [row_shape(array) for array in rows])
        sums.add(side_by_side(rows)[:, 0], batch)
        return dict(zip(RATIO_ARRAYS, sums.arrays(), strict=True))

    @property
    def is_sum(self) -> bool:
        """Yes, unless a subclass measures or merges in its own way."""
        own = type(self)
        return own.measure is RatioMetric.measure and own.merge is Metric.merge

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Zeros."""
        lead = (axes.n_parts, n_heads) if self.has_heads else (axes.n_parts,)
        sizes = {dim: len(labels) for dim, labels in self.coordinates(axes).items()}
        shapes = {
            "numerator": (*lead, *(sizes[dim] for dim in self.dims)),
            "denominator": (*lead, *(sizes[dim] for dim in self.denominator_dims)),
            "count": lead,
        }
        return {name: np.zeros(shape) for name, shape in shapes.items()}

    def state_dims(self, array: str) -> tuple[str, ...]:
        """`part`, `head` and the metric's own."""
        lead = ("part", "head") if self.has_heads else ("part",)
        own = {"numerator": self.dims, "denominator": self.denominator_dims, "count": ()}
        return (*lead, *own[array])

    def variables(self) -> tuple[str, ...]:
        """The ratio, its count and, where there are heads, the ratio by layer."""
        by_layer = self.has_heads and self.scope == "layer" and self.sums_over_heads
        return (self.name, f"{self.name}_count", *((f"{self.name}_by_layer",) * by_layer))

    def variable_dims(self, variable: str) -> tuple[str, ...]:
        """`layer`, `head` and the metric's own."""
        layer = ("layer",) if self.scope == "layer" else ()
        head = ("head",) if self.has_heads else ()
        if variable == f"{self.name}_by_layer":
            return (*layer, *self.dims)
        return (*layer, *head, *(() if variable.endswith("_count") else self.dims))

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Numerator over denominator, summed over the parts."""
        part = self._part_axis
        sums = {name: array.sum(axis=part) for name, array in state.items()}
        return {f"{self.name}_count": sums["count"], **self._values(sums, part)}

    def draws(self, state: State, axes: Axes, weights: np.ndarray) -> dict[str, np.ndarray]:
        """The same of weighted sums."""
        part = self._part_axis
        sums = {
            name: np.tensordot(weights, state[name], (1, part))
            for name in ("numerator", "denominator")
        }
        return self._values(sums, part + 1)

    @property
    def _part_axis(self) -> int:
        return 1 if self.scope == "layer" else 0

    def _values(self, sums: State, head_axis: int) -> dict[str, np.ndarray]:
        numerator, denominator = sums["numerator"], sums["denominator"]
        values = {self.name: self._ratio(numerator, denominator)}
        by_layer = f"{self.name}_by_layer"
        if by_layer in self.variables():
            values[by_layer] = self._ratio(
                numerator.sum(axis=head_axis), denominator.sum(axis=head_axis)
            )
        return values

    def _ratio(self, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        missing = len(self.dims) - len(self.denominator_dims)
        denominator = denominator.reshape(denominator.shape + (1,) * missing)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: np.ndarray = np.where(denominator > 0, numerator / denominator, np.nan)
        return ratio


def batch_of(attention: Attention) -> Batch:
    """The batch an attention belongs to."""
    assert attention.batch is not None, "metrics need Attention.batch"
    return attention.batch
