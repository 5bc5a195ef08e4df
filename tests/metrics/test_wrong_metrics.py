"""Metrics of one's own that are wrong: refused by name, before or while they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import HeadscopeError, InputError, MetricError
from headscope.metrics import (
    Fact,
    LayerData,
    Reduction,
    Small,
    State,
    SumMetric,
    Variable,
    query_counts,
    region_weights,
    row_mass,
    total_mass,
)
from headscope.metrics.core import registry
from headscope.results.display import display_of

if TYPE_CHECKING:
    from headscope.batch import Axes
    from headscope.model.model import Model

TEXTS = ["the cat sat on the mat", "a dog ran", "the red house"]
Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    registry._theirs.clear()


@dataclass(frozen=True)
class Plain(hs.RatioMetric):
    """Everything over everything."""

    name = "plain"
    paper = "none"
    units = "share"

    def rows(self, reading: LayerData) -> Rows:
        return total_mass(reading), total_mass(reading), query_counts(reading)


def variant(**members: object) -> hs.Metric:
    """A metric that differs from `Plain` in these."""
    return dataclass(frozen=True)(type("Variant", (Plain,), {"__doc__": "A variant.", **members}))()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"format": "boom"}, r"Variant\.format is 'boom'. Expected a Python number format"),
        ({"format": None}, r"Variant\.format is None"),
        ({"order": "first"}, r"Variant\.order should be a whole number"),
        ({"equation": None}, r"Variant\.equation should be text"),
        ({"scope": "boo"}, "Unknown scope of Variant 'boo'"),
        ({"blocks": frozenset({"boo"})}, r"Unknown value in Variant\.blocks 'boo'"),
        ({"blocks": "self"}, r"Variant\.blocks should be a frozenset"),
        ({"needs": frozenset({"tagz"})}, r"Unknown value in Variant\.needs 'tagz'.*'tags'"),
        ({"facts": [1]}, r"Variant\.facts should be functions by name"),
        ({"facts": {"x": 5}}, r"Variant\.facts should be functions by name"),
        ({"sample": "many"}, r"Variant\.sample should be a whole number"),
        ({"reductions": (row_mass,)}, "row_mass in `reductions`, which is not a Reduction"),
        ({"name": "a|b"}, r"named 'a\|b'; expected letters, digits"),
        ({"name": "../x"}, "expected letters, digits"),
        ({"name": "all"}, "and none of all"),
        ({"name": "layer"}, "and none of"),
        ({"name": "provenance"}, "and none of"),
        ({"name": "distance_count"}, "a variable 'distance_count', which is a name of headscope's"),
        ({"name": "distance_mean"}, "'distance_mean', which is a name of headscope's"),
        ({"name": "distance_by_layer"}, "'distance_by_layer', which is a name of"),
    ],
)
def test_wrong_descriptions_are_refused_first(
    tiny_bert: Model, members: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        hs.analyze(tiny_bert, TEXTS, ["distance", variant(**members)])


class _Undecorated(hs.RatioMetric):
    """A class without a decorator."""

    name = "undecorated"
    paper = units = "none"
    rows = Plain.rows


class _Extended(Plain):
    """A subclass with a field, but without a decorator."""

    name = "extended"
    reach: int = 3


@dataclass
class _Thawed(SumMetric):
    """A dataclass that is not frozen."""

    name = "thawed"
    paper = units = "none"
    add = state_dims = zero = finalize = variables = None  # type: ignore[assignment]


@dataclass(frozen=True)
class _Listed(Plain):
    """A metric with a list among its options."""

    name = "listed"
    seen: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (_Undecorated, r"is not a dataclass\. Write @dataclass\(frozen=True\)"),
        (_Extended, r"_Extended adds the field 'reach' without the decorator\. Write @dataclass"),
        (_Thawed, r"not a frozen one\. Write @dataclass\(frozen=True\) directly above"),
        (_Listed, r"_Listed\.seen is a list, which can change.* use a tuple"),
        (lambda: variant(cache={}), r"Variant\.cache is a dict, which can change"),
    ],
)
def test_a_metric_with_state_is_refused(tiny_bert: Model, metric: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hs.analyze(tiny_bert, TEXTS, metric())


def test_a_class_is_not_an_instance(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match=r"Plain is a class; pass a metric: Plain\(\)"):
        hs.analyze(tiny_bert, TEXTS, [Plain])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            lambda r: (total_mass(r), total_mass(r)),
            "plain: `rows` returned a tuple. Expected a tuple of three",
        ),
        (
            lambda r: tuple(t[:, :2] for t in (total_mass(r), total_mass(r), query_counts(r))),
            r"plain: the numerator that `rows` returned has the shape \(3, 2\)\. Expected \(3, 4\)",
        ),
        (
            lambda r: tuple(t[:1] for t in (total_mass(r), total_mass(r), query_counts(r))),
            r"has the shape \(1, 4\)\. Expected \(3, 4\) \(`document head`\)",
        ),
        (lambda r: 1 / 0, "The metric plain failed: ZeroDivisionError"),
        (
            lambda r: tuple(t.numpy() for t in (total_mass(r), total_mass(r), query_counts(r))),
            r"plain: the numerator that `rows` returned is numpy\.ndarray, not a torch tensor",
        ),
    ],
)
def test_wrong_rows_stop_the_run_and_name_the_metric(
    tiny_bert: Model, rows: Any, message: str
) -> None:
    metric = variant(name="plain", rows=lambda self, reading: rows(reading))
    with pytest.raises(MetricError, match=message):
        hs.analyze(tiny_bert, TEXTS, ["distance", metric])


def test_a_metric_that_gives_nan_is_blamed_and_not_the_model(tiny_bert: Model) -> None:
    def rows(self: Plain, reading: LayerData) -> Rows:
        total = total_mass(reading)
        return total * torch.nan, total, query_counts(reading)

    with pytest.raises(HeadscopeError, match="numerator of plain is NaN or infinite") as error:
        hs.analyze(tiny_bert, TEXTS, variant(name="plain", rows=rows))
    assert "The model gives" not in str(error.value)


def _writes_weights(layer_data: LayerData) -> None:
    layer_data.weights[..., 0] = 0


def _writes_through_numpy(layer_data: LayerData) -> None:
    layer_data.weights.numpy()[..., 0] = 0


def _writes_shared(layer_data: LayerData) -> None:
    region_weights(layer_data).mul_(2)


def _writes_batch(layer_data: LayerData) -> None:
    layer_data.queries.words[:] = 0


@pytest.mark.parametrize(
    "write", [_writes_weights, _writes_through_numpy, _writes_shared, _writes_batch]
)
@pytest.mark.parametrize("others", [["distance", "row_entropy"], []])
def test_a_metric_that_writes_into_its_input_is_named(
    tiny_bert: Model, write: Callable[[LayerData], None], others: list[str]
) -> None:
    def rows(self: Plain, layer_data: LayerData) -> Rows:
        write(layer_data)
        total = total_mass(layer_data)
        return total, total, query_counts(layer_data)

    metric = variant(name="plain", rows=rows)
    with pytest.raises(MetricError, match="plain: it writes into a tensor that all metrics share"):
        hs.analyze(tiny_bert, TEXTS, [metric, *others])


def test_a_metric_that_writes_into_a_reduction_is_named(tiny_bert: Model) -> None:
    def rows(self: Plain, layer_data: LayerData) -> Rows:
        (total,) = totals(layer_data)
        total.numpy()[:] = 0
        return total, total, query_counts(layer_data)

    metric = variant(name="plain", rows=rows, reductions=(totals,))
    with pytest.raises(MetricError, match="plain: it writes into a tensor"):
        hs.analyze(tiny_bert, TEXTS, [metric, "distance"])


@Reduction
def totals(reading: LayerData) -> Small:
    return (total_mass(reading),)


@dataclass(frozen=True)
class Fails(SumMetric):
    """Fails when what a batch came to is added up."""

    name = "fails"
    paper = "none"
    units = "none"
    reductions = (totals,)

    def variables(self) -> tuple[Variable, ...]:
        return (self.variable(self.name, ("layer", "head")),)

    def state_dims(self, array: str) -> tuple[str, ...]:
        return ("head",)

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        return {"sum": np.zeros(n_heads)}

    def add(self, state: State, reading: LayerData) -> None:
        if len(reading.batch) > 1:
            raise MemoryError("no memory left")
        state["sum"] += totals(reading)[0].sum(0).numpy()

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        return {self.name: state["sum"]}


def test_a_batch_is_counted_whole_or_not_at_all(tiny_bert: Model) -> None:
    """What fails while sums are added must not be tried again: part of it is counted."""
    with pytest.raises(MetricError, match="could not be added up: MemoryError"):
        hs.analyze(tiny_bert, TEXTS, ["distance", Fails()])
    alone = hs.analyze(tiny_bert, TEXTS[:1], ["distance", Fails()])
    assert alone.n_documents == 1


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (lambda document: 1 / 0, "Counting 'x' in document 'list-0' failed: ZeroDivisionError"),
        (lambda document: ["a"], r"gave \['a'\]; expected numbers by name"),
        (lambda document: {"a": float("nan")}, "expected numbers by name"),
        (lambda document: {"a": "b"}, "failed: TypeError"),
    ],
)
def test_facts_that_are_no_counts(tiny_bert: Model, count: Fact, message: str) -> None:
    facts: Mapping[str, Fact] = {"x": count}
    with pytest.raises(MetricError, match=message):
        hs.analyze(tiny_bert, TEXTS, variant(facts=facts))


def test_metrics_may_come_from_an_iterator(tiny_bert: Model) -> None:
    result = hs.analyze(tiny_bert, TEXTS, (name for name in ["distance"]))
    assert "distance" in result
    assert "distance" in tiny_bert.trace(TEXTS[0]).measure(name for name in ["distance"])


def test_a_metric_without_a_docstring_says_nothing() -> None:
    @dataclass(frozen=True)
    class Bare(Plain):
        name = "bare"

    assert Bare().meaning == ""
    assert Plain().meaning == "Everything over everything."


def test_damaged_descriptions_in_files_do_no_harm(tiny_bert: Model) -> None:
    array = hs.analyze(tiny_bert, TEXTS, "distance")["distance"]
    array.attrs.update(format="boom", order="first", units="tokens")
    known = display_of(array)
    assert known.show(1.234) == "1.23\u00a0tokens"
    assert known.order > 1000
