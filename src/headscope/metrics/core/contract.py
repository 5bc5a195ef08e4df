"""Contract of a metric: options in a frozen dataclass, sums in a state that merges.

A state is a dict of NumPy arrays that pickles. Workers, resumed runs and merged results all merge
states.

    Metric                     base of all metrics
    ├── RatioMetric            ratio of sums: write `rows`
    ├── SumMetric              other sums: write `arrays`, `add` and `finalize`
    ├── MergedMetric           no sum (the k highest): write `measure` and `merge`
    └── LayersMetric           all layers of a batch at once (pairs of heads)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from headscope.attention import BlockName
from headscope.batch import Axes, Batch
from headscope.errors import HeadscopeError, MetricError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.layer_data import LayerData, Reduction
from headscope.statistics.jackknife import Jackknife, pool, ratio, ratio_jackknife, scale_of
from headscope.text.document import Document

State = dict[str, np.ndarray]
Need = Literal["tags", "parents", "relations", "mentions", "gradients", "loss"]
"""Requirement of a metric: annotations of the text, or a backward pass of the model."""
Fact = Callable[[Document], Mapping[str, float]]
"""Counts of one document; a run adds them up over its corpus beforehand."""

ALL_BLOCKS: frozenset[BlockName] = frozenset(("self", "encoder", "decoder", "cross"))
SELF_BLOCKS: frozenset[BlockName] = frozenset(("self", "encoder", "decoder"))


@dataclass(frozen=True, slots=True)
class Variable:
    """One array of a result and its display, written as the array's attributes."""

    name: str
    dims: tuple[str, ...]
    units: str
    meaning: str
    """One sentence for a researcher."""
    paper: str = ""
    title: str = ""
    """Title for headings; empty if the variable is shown only with another one."""
    short_title: str = ""
    """Title for narrow columns; by default the title."""
    equation: str = ""
    """Equation in LaTeX. a is the attention of query i to key j in one head, after the softmax."""
    format: str = ".2f"
    """Python format of the values; `.1%` for shares."""
    order: int = 0
    """Sort key in lists."""

    def attributes(self) -> dict[str, str | int]:
        """Return the attributes of the array, without empty ones."""
        attributes = {"units": self.units, "paper": self.paper, "long_name": self.meaning}
        if self.title:
            short = {"title": self.title, "short_title": self.short_title or self.title}
            shown = {name: getattr(self, name) for name in ("equation", "format", "order")}
            attributes |= short | shown
        return {name: value for name, value in attributes.items() if value != ""}


class Metric(ABC):
    """Frozen description of a measurement. Subclasses are frozen dataclasses.

    Derive from `RatioMetric`, `SumMetric`, `MergedMetric` or `LayersMetric`. A state describes one
    layer. The run stacks the states of all layers along a new first axis before `merge` and
    `finalize`: write these two for any number of leading axes.
    """

    name: ClassVar[str]
    """Name of the metric and of its main variable in a result."""
    title: ClassVar[str] = ""
    """Title for headings; by default the name, in words."""
    short_title: ClassVar[str] = ""
    """Title for narrow columns; by default the title."""
    equation: ClassVar[str] = ""
    """Equation in LaTeX."""
    paper: ClassVar[str]
    """Source of the definition: `Vig & Belinkov 2019, Eq. 6`."""
    units: ClassVar[str]
    format: ClassVar[str] = ".2f"
    """Python format of the values; `.1%` for shares."""
    order: ClassVar[int] = 1000
    """Sort key in lists."""
    counts: ClassVar[str] = "query tokens"
    """Unit of the variable `…_count`."""
    scope: ClassVar[Literal["layer", "text"]] = "layer"
    """`text`: measured once per document, without attention."""
    blocks: ClassVar[frozenset[BlockName]] = ALL_BLOCKS
    """Attention blocks that the metric applies to."""
    axis_labels: ClassVar[Mapping[str, Sequence[str] | Sequence[int]]] = {}
    """Labels of the metric's own axes that do not depend on the corpus or on options."""
    facts: ClassVar[Mapping[str, Fact]] = {}
    """Counts over the whole corpus that the metric needs beforehand, by name: see `Batch.facts`."""
    is_default: ClassVar[bool] = True
    """Included in "all"; false for metrics that cost as much as the model."""
    depends_on_count: ClassVar[bool] = False
    """True if the value changes with the count alone. Values with different counts are not
    compared."""
    document_arrays: ClassVar[tuple[str, ...]] = ()
    """Arrays of the state that hold numbers of documents (-1 for none)."""

    @property
    def sample(self) -> int | None:
        """Number of documents to draw, smallest `Batch.sample_hashes` first; None for all."""
        return None

    @property
    @final
    def meaning(self) -> str:
        """First line of the docstring."""
        first = (type(self).__doc__ or "").strip().split("\n")[0]
        # The default docstring of a dataclass is its signature.
        return "" if first.startswith(f"{type(self).__name__}(") else first

    @property
    def averaged(self) -> str:
        """Description of how documents are averaged."""
        return "ratio of sums over the corpus"

    @property
    def needs(self) -> frozenset[Need]:
        """Requirements: annotations, or a backward pass."""
        return frozenset()

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Reductions that the metric reads instead of the weights.

        A metric with reductions receives those of all layers of a batch at once, heads side by
        side, without weights. A metric without reductions receives whole layers, one by one.
        """
        return ()

    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """Return the variables that `finalize` computes."""

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str] | Sequence[int]]:
        """Return labels of the axes that this metric adds."""
        dims = {dim for variable in self.variables() for dim in variable.dims}
        labels_of: dict[str, Sequence[str] | Sequence[int]] = {
            "tag": axes.tags,
            "relation": axes.relations,
            "key_class": axes.key_classes,
            "gradient_class": (*axes.key_classes, "all"),
            **self.axis_labels,
        }
        return {dim: labels for dim, labels in labels_of.items() if dim in dims}

    @abstractmethod
    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return the axes of one array of the state (without `layer`)."""

    @abstractmethod
    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Return the state of no documents, the identity of `merge`."""

    @abstractmethod
    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Merge one or more states; associative and commutative (sums: up to rounding).

        With `in_place`, arrays of the first state may be overwritten; it is not used again.
        """

    @abstractmethod
    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return the values by variable name; nothing measured is NaN with a count of 0."""

    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Return the jackknife of each value of `finalize`; empty by default.

        Buckets with the same number in `units` (`bucket`, from 0) are pooled.
        """
        return {}

    @final
    def variable(self, name: str, dims: tuple[str, ...], **others: str) -> Variable:
        """Return a variable with the metric's description, except for the given fields."""
        shared = ("units", "meaning", "paper", "short_title", "equation", "format", "order")
        description: dict[str, Any] = {field: getattr(self, field) for field in shared}
        description["title"] = self.title or self.name.replace("_", " ").capitalize()
        return Variable(name, dims, **{**description, **others})

    @final
    def count_variable(self, dims: tuple[str, ...], name: str = "") -> Variable:
        """Return the variable with the number of measured query tokens (or other cases)."""
        meaning = f"number of {self.counts} in {self.name}"
        return Variable(name or f"{self.name}_count", dims, self.counts, meaning)


class _Summed(Metric):
    """Metric whose states are arrays of float64 that are added."""

    arrays: ClassVar[Collection[str]]
    """Names of the arrays of a state."""

    def axis_sizes(self, n_heads: int, axes: Axes) -> dict[str, int]:
        """Return the lengths of the axes of a state."""
        own = {dim: len(labels) for dim, labels in self.coordinates(axes).items()}
        return {"bucket": axes.n_buckets, "head": n_heads, **own}

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        sizes = self.axis_sizes(n_heads, axes)
        return {
            name: np.zeros([sizes[dim] for dim in self.state_dims(name)]) for name in self.arrays
        }

    @final
    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Add the states, array by array, in the given order."""
        total = states[0] if in_place else {name: a.copy() for name, a in states[0].items()}
        for state in states[1:]:
            for name, array in state.items():
                total[name] += array
        return total


class SumMetric(_Summed):
    """Sums that are not one ratio. The arrays of the state are float64 and are added."""

    arrays: ClassVar[Mapping[str, tuple[str, ...]]]
    """Arrays of the state, each with its axes: `bucket`, `head` and those of `coordinates`."""

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return the axes of an array in `arrays`."""
        return self.arrays[array]

    @abstractmethod
    def add(self, state: State, layer_data: LayerData) -> None:
        """Add the data to a state in place. Write only to entries that change, in large states."""


class MergedMetric(Metric):
    """Metric that is not a sum: the k highest, a sample, a mean of deviations from a mean."""

    @abstractmethod
    def measure(self, layer_data: LayerData) -> State:
        """Return the state of one LayerData, without changing its input."""


class LayersMetric(Metric):
    """Metric that compares layers: it receives all layers of a batch with their weights.

    The run keeps the weights of all layers until the batch ends, and makes batches smaller.
    """

    takes_rows: ClassVar[bool] = False
    """True if `measure` may also get all layers by blocks of rows (`layer_data.rows`). The states
    of the blocks are merged, and no layer is kept whole."""

    @abstractmethod
    def measure(self, layers: Sequence[LayerData]) -> State:
        """Return the state of all layers of one batch, without changing its input."""


def reads_rows(metric: Metric) -> bool:
    """Return whether a metric can be measured from blocks of rows, without whole layers."""
    if metric.scope == "text":
        return True
    if isinstance(metric, LayersMetric):
        return metric.takes_rows
    reductions = metric.reductions
    return bool(reductions) and all(reduction.join is not None for reduction in reductions)


@contextmanager
def attribute_errors(metric: Metric) -> Iterator[None]:
    """Convert errors in a metric's code, but not a lack of memory, to MetricError with its name."""
    try:
        yield
    except MetricError as error:
        raise MetricError(f"{metric.name}: {error}") from error
    except (HeadscopeError, MemoryError):
        raise
    except Exception as error:
        if "memory" in str(error).lower():
            raise
        raise MetricError(
            f"The metric {metric.name} failed: {type(error).__name__}: {error}. Debug it on one "
            "trace: trace.measure(metric)."
        ) from error


RATIO_ARRAYS = ("numerator", "denominator", "count")


class RatioMetric(_Summed):
    """Ratio of sums over the corpus. Subclasses write `rows`.

    The state holds `numerator` and `denominator` by bucket, and `count`, the number of query
    tokens. A result has the ratio, its count and, unless `has_layer_ratio` is off, the ratio over
    all heads of each layer.
    """

    arrays = RATIO_ARRAYS
    dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the numerator after `bucket` and `head`."""
    denominator_dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the denominator after `bucket` and `head`: the first of `dims`, or none of them."""
    has_layer_ratio: ClassVar[bool] = True
    """True if the ratio over all heads of a layer is meaningful."""

    @abstractmethod
    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return numerator (`document head …`), denominator (`document head …`) and count
        (`document head`, or `document` if it is the same for all heads) as torch tensors; without
        `head` if the scope is `text`.
        """

    @final
    def checked_rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result of `rows`, after checking that it is three tensors of right shapes."""
        rows = self.rows(layer_data)
        if not isinstance(rows, tuple) or len(rows) != len(RATIO_ARRAYS):
            raise MetricError(
                f"`rows` returned a {type(rows).__name__}. Expected a tuple of three tensors: "
                f"{', '.join(RATIO_ARRAYS)}."
            )
        sizes = self.axis_sizes(layer_data.n_heads, layer_data.batch.axes)
        is_by_head = "head" in self.state_dims("count")
        if is_by_head and isinstance(rows[2], torch.Tensor) and rows[2].ndim == 1:
            rows = (*rows[:2], rows[2][:, None].expand(-1, layer_data.n_heads))
        for name, array in zip(RATIO_ARRAYS, rows, strict=True):
            dims = self.state_dims(name)[1:]
            expected = (len(layer_data.batch), *(sizes[dim] for dim in dims))
            kind = f"{type(array).__module__}.{type(array).__name__}".removeprefix("builtins.")
            if not isinstance(array, torch.Tensor):
                raise MetricError(
                    f"the {name} that `rows` returned is {kind}, not a torch tensor. Return torch "
                    "tensors: torch.from_numpy(array), torch.as_tensor(values)."
                )
            if tuple(array.shape) != expected:
                raise MetricError(
                    f"the {name} that `rows` returned has the shape {tuple(array.shape)}. Expected "
                    f"{expected} (`{' '.join(('document', *dims))}`)."
                )
        return rows

    @final
    def add_rows(self, state: State, rows: tuple[Tensor, Tensor, Tensor], batch: Batch) -> None:
        """Add the rows to a state in place, by bucket of the documents."""
        buckets = torch.from_numpy(batch.buckets.astype(np.int64))
        for name, array in zip(RATIO_ARRAYS, rows, strict=True):
            torch.from_numpy(state[name]).index_add_(0, buckets, array.double().cpu())

    @final
    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return `bucket`, `head` and the metric's own axes."""
        lead = ("bucket", "head") if self.scope == "layer" else ("bucket",)
        own = {"numerator": self.dims, "denominator": self.denominator_dims, "count": ()}
        return (*lead, *own[array])

    def variables(self) -> tuple[Variable, ...]:
        """Return the ratio, its count and, with heads, the ratio by layer."""
        heads = ("layer", "head") if self.scope == "layer" else ()
        main = self.variable(self.name, (*heads, *self.dims))
        count = self.count_variable(heads)
        if not self._has_by_layer:
            return main, count
        by_layer = self.variable(f"{self.name}_by_layer", ("layer", *self.dims), title="")
        return main, count, by_layer

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return numerator over denominator, summed over buckets."""
        axis = int(self.scope == "layer")
        numerator, denominator, count = (state[name].sum(axis) for name in RATIO_ARRAYS)
        values = {f"{self.name}_count": count, self.name: self._ratio(numerator, denominator)}
        if self._has_by_layer:  # after the sum, heads are on the axis of buckets
            by_layer = self._ratio(numerator.sum(axis), denominator.sum(axis))
            values[f"{self.name}_by_layer"] = by_layer
        return values

    @final
    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Return the jackknife of the ratio, overall and by layer."""
        axis = int(self.scope == "layer")
        sums = [pool(state[name], units, axis) for name in ("numerator", "denominator")]
        estimates = {self.name: sums}
        if self._has_by_layer:
            estimates[f"{self.name}_by_layer"] = [array.sum(axis + 1) for array in sums]
        jackknives = {}
        for name, (numerator, denominator) in estimates.items():
            spread = self._spread(denominator)
            scale = scale_of(self.units, numerator, spread)
            jackknives[name] = ratio_jackknife(numerator, spread, scale)
        return jackknives

    @property
    def _has_by_layer(self) -> bool:
        return self.scope == "layer" and self.has_layer_ratio

    def _ratio(self, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        return ratio(numerator, self._spread(denominator))

    def _spread(self, denominator: np.ndarray) -> np.ndarray:
        missing = len(self.dims) - len(self.denominator_dims)
        return denominator.reshape(denominator.shape + (1,) * missing)
