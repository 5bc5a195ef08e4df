"""The checks of `headscope.testing` for every registered metric, and rules of our own metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, fields

import numpy as np
import pytest
from torch import Tensor

import headscope as hs
from headscope.metrics import METRICS, LayerData, query_counts, total_mass
from headscope.metrics.core import registry
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.contract import Metric
from headscope.metrics.core.registry import is_ours, known_metrics
from headscope.metrics.variability import Variability
from headscope.testing import CHECKS, MetricSample, check_metric, make_attention, make_batch

Check = Callable[[MetricSample], None]


@pytest.fixture(params=sorted(known_metrics()))
def metric(request: pytest.FixtureRequest) -> Metric:
    return known_metrics()[request.param]()


@pytest.fixture(params=[True, False], ids=["causal", "encoder"])
def is_causal(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_metric_passes(metric: Metric, is_causal: bool, check: Check) -> None:
    check(MetricSample(metric, is_causal))


@pytest.mark.parametrize("budget", [2, 3, 4])
def test_a_full_sample_is_merged_in_its_own_arrays(is_causal: bool, budget: int) -> None:
    sample = MetricSample(Variability(budget=budget), is_causal)
    a, b = sample.state([0, 1, 2]), sample.state([3, 4, 5])
    merged, values = sample.metric.merge([a, b]), a["values"]
    into = sample.metric.merge([a, b], in_place=True)
    sample.require_same(into, merged, "in place", bits=True)
    assert (into["values"] is values) == (budget <= 3)


SINGLE_PRECISION = {
    ("variability", "values"),
    ("head_samples", "keys"),
    ("head_samples", "weights"),
}
"""Weights that are kept as the model computed them, and where they stand."""


def test_states_are_double_precision_but_for_weights(metric: Metric) -> None:
    for name, array in MetricSample(metric).state([0, 1]).items():
        assert array.dtype == np.float64 or (metric.name, name) in SINGLE_PRECISION


def test_metric_is_frozen(metric: Metric) -> None:
    for field in fields(metric):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(metric, field.name, None)


def test_our_metrics_have_a_meaning_and_a_paper(metric: Metric) -> None:
    if not is_ours(metric):
        return  # the guide requires name, paper and units of a user's metric
    papers = ("Vig & Belinkov 2019", "Clark et al. 2019", "Gu et al. 2024")
    papers += ("Olsson et al. 2022", "Wang et al. 2022", "Luger et al. 2026", "Wu et al. 2024")
    assert metric.paper.startswith(tuple(f"{paper}{sign}" for paper in papers for sign in ", "))
    assert len(metric.meaning) > 20
    assert metric.meaning.endswith((".", ","))
    assert metric.units
    assert metric.title
    assert f"{0.5:{metric.format}}"


def test_titles_and_places_in_lists_are_all_different() -> None:
    shown = [v for make in METRICS.values() for v in make().variables() if v.title]
    assert len({variable.title for variable in shown}) == len(shown)
    orders = [make.order for make in METRICS.values()]
    assert len(set(orders)) == len(orders)


def test_cross_layer_attention_is_not_kept(is_causal: bool) -> None:
    documents = MetricSample(Variability(), is_causal).documents
    batch = make_batch(documents)
    accumulator = Accumulator([make() for make in METRICS.values()])
    with accumulator.batch(batch) as read:
        for layer in make_attention(documents, batch):
            read(layer)
    assert not batch.derived


Rows = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Minimal(hs.RatioMetric):
    name = "minimal"
    paper = "none"
    units = "share of attention"

    def rows(self, layer_data: LayerData) -> Rows:
        total = total_mass(layer_data)
        return total, total, query_counts(layer_data)


@dataclass(frozen=True)
class OfCross(Minimal):
    blocks = frozenset({"cross"})


@dataclass(frozen=True)
class CountsPadding(Minimal):
    def rows(self, layer_data: LayerData) -> Rows:
        every = layer_data.weights.sum((2, 3))
        return every, total_mass(layer_data), query_counts(layer_data)


@dataclass(frozen=True)
class DependsOnBatch(Minimal):
    def rows(self, layer_data: LayerData) -> Rows:
        total = total_mass(layer_data)
        return total, total / len(layer_data.batch), query_counts(layer_data)


@dataclass(frozen=True)
class NamedAll(Minimal):
    name = "all"


@pytest.fixture
def _no_registration() -> Iterator[None]:
    before = dict(registry._theirs)
    yield
    registry._theirs.clear()
    registry._theirs.update(before)


@pytest.mark.usefixtures("_no_registration")
@pytest.mark.parametrize("metric", [Minimal(), OfCross()])
def test_what_the_guide_requires_is_enough(metric: Metric) -> None:
    check_metric(metric)


def _local() -> Metric:
    @dataclass(frozen=True)
    class Local(Minimal):
        pass

    return Local()


@pytest.mark.usefixtures("_no_registration")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (CountsPadding, r"minimal: padding should change nothing \(numerator differs by up to"),
        (DependsOnBatch, "minimal: merge|minimal: any sharding should equal the whole"),
        (NamedAll, "NamedAll is named 'all'"),
        (_local, "minimal: workers cannot unpickle it .* top level of a module"),
    ],
)
def test_a_wrong_metric_is_described(make: Callable[[], Metric], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_metric(make())
