"""The contract of a metric: what is summed, how sums are added, what they come to.

A metric is a frozen description: a dataclass whose fields are its options. Its state is
separate, small and plain: a dict of NumPy arrays that pickles and can be merged with another.
One process, a pool of workers, a resume after a crash and "add last night's run" therefore all
do the same: they merge states.

    Metric                     what everyone who keeps or shows a metric needs
    ├── RatioMetric            a ratio of sums: write `rows`
    ├── SumMetric              other sums: write `zero`, `add` and `finalize`
    ├── MergedMetric           what is not a sum (the k highest): write `measure` and `merge`
    └── LayersMetric           the same, of all layers of a batch at once (pairs of heads)

`headscope.metrics.core.contract` holds `RatioMetric`, which most metrics are.

Ratios of sums over a corpus: what most metrics are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np

from headscope.attention import BlockName
from headscope.batch import Axes
from headscope.errors import HeadscopeError, MetricError
from headscope.lazy import torch
from headscope.metrics.core.layer_data import LayerData, Reduction
from headscope.statistics.jackknife import Jackknife, pool, ratio_jackknife, scale_of
from headscope.text.document import Document

if TYPE_CHECKING:
    from torch import Tensor

State = dict[str, np.ndarray]
Need = Literal["tags", "parents", "relations", "mentions", "gradients", "loss"]
"""What a metric cannot do without: annotations of the text, or a backward pass of the model."""
Fact = Callable[[Document], Mapping[str, float]]
"""What to count in each document; a run adds the counts up over its corpus beforehand."""

ALL_BLOCKS: frozenset[BlockName] = frozenset(("self", "encoder", "decoder", "cross"))
SELF_BLOCKS: frozenset[BlockName] = frozenset(("self", "encoder", "decoder"))


@dataclass(frozen=True, slots=True)
class Variable:
    """One array of a result, and how to show it: this becomes the array's attributes."""

    name: str
    dims: tuple[str, ...]
    units: str
    meaning: str
    """One sentence for a researcher."""
    paper: str = ""
    title: str = ""
    """What a heading says; empty for what is shown only beside something else."""
    short_title: str = ""
    """For narrow columns; the title where there is none."""
    equation: str = ""
    """In LaTeX. a is the attention of query i to key j in one head, after the softmax."""
    format: str = ".2f"
    """As Python formats numbers; `.1%` for shares."""
    order: int = 0
    """Where it stands among others in lists."""

    def attributes(self) -> dict[str, str | int]:
        """What is written beside the values; what is empty is left out."""
        named: dict[str, str | int] = {
            "units": self.units,
            "paper": self.paper,
            "long_name": self.meaning,
        }
        if self.title:
            named |= {
                "title": self.title,
                "short_title": self.short_title or self.title,
                "equation": self.equation,
                "format": self.format,
                "order": self.order,
            }
        return {name: value for name, value in named.items() if value != ""}


class Metric(ABC):
    """A frozen description of something to measure. Subclasses are frozen dataclasses.

    Derive from `RatioMetric`, `SumMetric`, `MergedMetric` or `LayersMetric`. A state describes one
    layer. The run stacks the states of all layers along a new first axis before it calls `merge`
    and `finalize`: write these two for any number of leading axes.
    """

    name: ClassVar[str]
    """Name of the metric and of its main variable in a result."""
    title: ClassVar[str] = ""
    """What a heading says; the name, in words, by default."""
    short_title: ClassVar[str] = ""
    """For narrow columns; the title by default."""
    equation: ClassVar[str] = ""
    """In LaTeX."""
    paper: ClassVar[str]
    """Where it was defined: `Vig & Belinkov 2019, Eq. 6`."""
    units: ClassVar[str]
    format: ClassVar[str] = ".2f"
    """As Python formats numbers; `.1%` for shares."""
    order: ClassVar[int] = 1000
    """Where it stands among other metrics in lists."""
    counts: ClassVar[str] = "query tokens"
    """What its `_count` counts."""
    scope: ClassVar[Literal["layer", "text"]] = "layer"
    """`text`: measured once for a document; attention does not matter."""
    blocks: ClassVar[frozenset[BlockName]] = ALL_BLOCKS
    """The attention it makes sense for."""
    facts: ClassVar[Mapping[str, Fact]] = {}
    """What it wants to know of the whole corpus beforehand, by name: see `Batch.facts`."""
    is_default: ClassVar[bool] = True
    """Is it one of "all"? Not if it costs as much as the model."""
    depends_on_count: ClassVar[bool] = False
    """Does the value change with the count alone? Then values of different counts are not
    compared."""
    document_arrays: ClassVar[tuple[str, ...]] = ()
    """Arrays of the state that hold numbers of documents (-1 for none)."""

    @property
    def sample(self) -> int | None:
        """How many documents it draws, those with the smallest keys; None: it measures all. See
        `Batch.last_keys`.
        """
        return None

    @property
    @final
    def meaning(self) -> str:
        """The first line of the docstring: what the number says."""
        first = (type(self).__doc__ or "").strip().split("\n")[0]
        # A dataclass without a docstring gets its signature for one.
        return "" if first.startswith(f"{type(self).__name__}(") else first

    @property
    def averaged(self) -> str:
        """How the documents of a corpus are averaged, in words."""
        return "ratio of sums over the corpus"

    @property
    def needs(self) -> frozenset[Need]:
        """Without these there is nothing to measure."""
        return frozenset()

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """All that the metric reads of the weights; empty if it reads the weights themselves.

        A metric that names digests is handed the digests of all layers of a batch at once, heads
        side by side as if they were one layer's, and no weights. A metric that names none is
        handed whole layers, one by one.
        """
        return ()

    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """What `finalize` gives."""

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str] | Sequence[int]]:
        """Labels of the axes that are this metric's own."""
        dims = {dim for variable in self.variables() for dim in variable.dims}
        known = {"tag": axes.tags, "relation": axes.relations}
        return {dim: labels for dim, labels in known.items() if dim in dims}

    @abstractmethod
    def state_dims(self, array: str) -> tuple[str, ...]:
        """Names of the axes of one of the state's arrays (without `layer`)."""

    @abstractmethod
    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """The state of nothing measured: the identity of `merge`."""

    @abstractmethod
    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Several states as one; associative and commutative (sums: up to rounding).

        Args:
            states: one or more.
            in_place: the arrays of the first may be written to; it is not used again.
        """

    @abstractmethod
    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The values by variable name; nothing measured is NaN with a count of 0."""

    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """How far each bucket of the corpus jackknives each value of `finalize`: what intervals and
        tests are made of. Empty where the metric has none.

        Args:
            state: of all layers.
            axes: its labels.
            units: `bucket`, numbers from 0 on; buckets with the same number are taken together.
        """
        return {}

    @final
    def variable(self, name: str, dims: tuple[str, ...], **others: str) -> Variable:
        """A variable of this metric: described as the metric is, but for what is given."""
        described = {
            "units": self.units,
            "meaning": self.meaning,
            "paper": self.paper,
            "title": self.title or self.name.replace("_", " ").capitalize(),
            "short_title": self.short_title,
            "equation": self.equation,
            "format": self.format,
        }
        return Variable(name, dims, order=self.order, **{**described, **others})

    @final
    def count_variable(self, dims: tuple[str, ...], name: str = "") -> Variable:
        """The variable that says how many query tokens (or other cases) were measured."""
        meaning = f"how many {self.counts} {self.name} is of"
        return Variable(name or f"{self.name}_count", dims, self.counts, meaning)


class SumMetric(Metric):
    """Sums that are not one ratio. The state's arrays are float64 and are added up."""

    @abstractmethod
    def add(self, state: State, layer_data: LayerData) -> None:
        """Add what a reading holds to a state, in place. Write only to the entries that change:
        the state may be large, and the batch small.
        """

    @final
    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Their sum."""
        return add_up(states, in_place=in_place)


class MergedMetric(Metric):
    """A metric that is not a sum: the k highest, a sample, a mean of deviations from a mean."""

    @abstractmethod
    def measure(self, layer_data: LayerData) -> State:
        """The state of one reading. Pure: its input is left as it was."""


class LayersMetric(Metric):
    """A metric that compares layers: it is handed all layers of a batch, with their weights.

    The run keeps the weights of all layers until the batch is done, and makes batches smaller
    for that reason.
    """

    @abstractmethod
    def measure(self, layers: Sequence[LayerData]) -> State:
        """The state of all layers of one batch. Pure: its input is left as it was."""


def add_up(states: Sequence[State], *, in_place: bool) -> State:
    """The sum of states, array by array, in the order given."""
    total = states[0] if in_place else {name: array.copy() for name, array in states[0].items()}
    for state in states[1:]:
        for name, array in state.items():
            total[name] += array
    return total


@contextmanager
def attribute_errors(metric: Metric) -> Iterator[None]:
    """Within the block, what goes wrong in a metric's own code is said to be its fault.

    headscope's own errors say themselves whose fault they are, and a lack of memory is not the
    metric's.
    """
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
            f"The metric {metric.name} failed: {type(error).__name__}: {error}. Run it on one "
            "trace to find out why: trace.measure(metric)."
        ) from error


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


RATIO_ARRAYS = ("numerator", "denominator", "count")


class RatioMetric(Metric):
    """A ratio of sums over the corpus. Subclasses write `rows`.

    The state holds `numerator` and `denominator` by bucket of the corpus, and `count`, the
    number of query tokens that entered. Besides the ratio a result has its count and, unless
    `has_layer_ratio` is off, the ratio over all heads of each layer.
    """

    dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the numerator after `bucket` and `head`."""
    denominator_dims: ClassVar[tuple[str, ...]] = ()
    """Axes of the denominator after `bucket` and `head`: the first of `dims`, or none."""
    has_layer_ratio: ClassVar[bool] = True
    """Is there a meaning to the ratio over all heads of a layer?"""

    @abstractmethod
    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """For each document: numerator (`document head …`), denominator (`document head …`)
        and count (`document head`); without `head` where the scope is `text`.
        """

    @final
    def checked_rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """What `rows` gives, after making sure that it is what was promised.

        Raises:
            MetricError: it is not three tensors of the right shapes.
        """
        rows = self.rows(layer_data)
        if not isinstance(rows, tuple) or len(rows) != len(RATIO_ARRAYS):
            raise MetricError(
                f"`rows` gave {type(rows).__name__}; expected {', '.join(RATIO_ARRAYS)}."
            )
        lead = (
            (len(layer_data.batch), layer_data.n_heads)
            if self._has_heads
            else (len(layer_data.batch),)
        )
        labels = self.coordinates(layer_data.batch.axes)
        for name, array in zip(RATIO_ARRAYS, rows, strict=True):
            dims = self.state_dims(name)[len(lead) :]
            expected = (*lead, *(len(labels[dim]) for dim in dims))
            if not isinstance(array, torch.Tensor):
                raise MetricError(
                    f"the {name} that `rows` returned is {_type_name(array)}, not a torch tensor. "
                    "Return torch tensors: torch.from_numpy(array), torch.as_tensor(values)."
                )
            if tuple(array.shape) != expected:
                shape = tuple(array.shape)
                axes = " ".join(("document", *self.state_dims(name)[1:]))
                raise MetricError(
                    f"the {name} that `rows` gave has the shape {shape}; expected {expected} "
                    f"(`{axes}`)."
                )
        return rows

    @final
    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Zeros."""
        lead = (axes.n_buckets, n_heads) if self._has_heads else (axes.n_buckets,)
        sizes = {dim: len(labels) for dim, labels in self.coordinates(axes).items()}
        shapes = {
            "numerator": (*lead, *(sizes[dim] for dim in self.dims)),
            "denominator": (*lead, *(sizes[dim] for dim in self.denominator_dims)),
            "count": lead,
        }
        return {name: np.zeros(shape) for name, shape in shapes.items()}

    @final
    def state_dims(self, array: str) -> tuple[str, ...]:
        """`bucket`, `head` and the metric's own."""
        lead = ("bucket", "head") if self._has_heads else ("bucket",)
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
        """Numerator over denominator, summed over the buckets."""
        bucket = self._part_axis
        sums = {name: array.sum(axis=bucket) for name, array in state.items()}
        return {f"{self.name}_count": sums["count"], **self._values(sums, bucket)}

    @final
    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Those of the ratio, and of the ratio by layer."""
        bucket = self._part_axis
        numerator = pool(state["numerator"], units, bucket)
        denominator = pool(state["denominator"], units, bucket)
        jackknives = {self.name: self._jackknife(numerator, denominator)}
        if self._has_by_layer:
            head = bucket + 1
            jackknives[self._by_layer] = self._jackknife(
                numerator.sum(axis=head), denominator.sum(axis=head)
            )
        return jackknives

    def _jackknife(self, numerator: np.ndarray, denominator: np.ndarray) -> Jackknife:
        denominator = self._spread(denominator)
        return ratio_jackknife(numerator, denominator, scale_of(self.units, numerator, denominator))

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
