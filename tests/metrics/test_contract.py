"""One battery over every registered metric: what the engine takes for granted."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import numpy as np
import pytest

from headscope.attention import Attention
from headscope.metrics import METRICS, metric_from_dict, metric_to_dict
from headscope.metrics.core.accumulator import Accumulator, measure_reading
from headscope.metrics.core.contract import LayersMetric, Metric, RatioMetric, State
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.registry import is_ours, known_metrics
from headscope.metrics.variability import Variability
from tests.metrics.slow import Case
from tests.metrics.worlds import attentions, make_batch, make_cases

HEADS = 3


@pytest.fixture(params=sorted(known_metrics()))
def metric(request: pytest.FixtureRequest) -> Metric:
    return known_metrics()[request.param]()


@pytest.fixture(params=[True, False], ids=["causal", "encoder"])
def cases(request: pytest.FixtureRequest) -> list[Case]:
    return make_cases(7, 12, is_causal=request.param, heads=HEADS)


def state(metric: Metric, cases: list[Case], numbers: list[int], padding: int = 0) -> State:
    """The stacked state of some documents, in one batch."""
    fold = Accumulator([metric])
    some = [cases[n] for n in numbers]
    batch = make_batch(some, numbers=numbers, extra_padding=padding)
    batch = replace(batch, facts=facts(metric, cases))
    with fold.batch(batch) as read:
        for attention in attentions(some, batch):
            read(attention)
    return fold.states()["self"][metric.name]


def facts(metric: Metric, cases: list[Case]) -> dict[str, Counter[str]]:
    """What the metric wants counted, in all documents."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in metric.facts}
    for document in make_batch(cases).documents:
        for name, count in metric.facts.items():
            counts[name].update(count(document))
    return counts


def assert_same(left: State, right: State, *, bits: bool = False) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].shape == right[name].shape, name
        if bits:
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)
        else:
            np.testing.assert_allclose(left[name], right[name], rtol=1e-12, atol=1e-13)


def zero(metric: Metric, cases: list[Case]) -> State:
    """Nothing, stacked over two layers as the fold does it."""
    axes = make_batch(cases).axes
    empty = metric.zero(HEADS, axes, is_causal=cases[0].is_causal)
    if metric.scope == "text" or isinstance(metric, LayersMetric):
        return empty
    return {name: np.stack([array, array]) for name, array in empty.items()}


def test_zero_is_the_identity(metric: Metric, cases: list[Case]) -> None:
    some = state(metric, cases, [0, 1, 2])
    nothing = zero(metric, cases)
    assert_same(metric.merge([some, nothing]), some, bits=True)
    assert_same(metric.merge([nothing, some]), some, bits=True)


def test_merge_is_commutative(metric: Metric, cases: list[Case]) -> None:
    a, b = state(metric, cases, [0, 1, 2]), state(metric, cases, [3, 4])
    assert_same(metric.merge([a, b]), metric.merge([b, a]), bits=True)


def test_merging_in_place_gives_the_same_bits(metric: Metric, cases: list[Case]) -> None:
    a, b = state(metric, cases, [0, 1, 2]), state(metric, cases, [3, 4])
    merged = metric.merge([a, b])
    copy = pickle.loads(pickle.dumps(b))
    assert_same(metric.merge([a, b], in_place=True), merged, bits=True)
    assert_same(b, copy, bits=True)


@pytest.mark.parametrize("budget", [2, 3, 4])
def test_a_full_sample_is_merged_in_its_own_arrays(cases: list[Case], budget: int) -> None:
    metric = Variability(budget=budget)
    a, b = state(metric, cases, [0, 1, 2]), state(metric, cases, [3, 4, 5])
    merged, values = metric.merge([a, b]), a["values"]
    into = metric.merge([a, b], in_place=True)
    assert_same(into, merged, bits=True)
    assert (into["values"] is values) == (budget <= 3)


def test_merge_is_associative(metric: Metric, cases: list[Case]) -> None:
    a, b, c = (state(metric, cases, numbers) for numbers in ([0, 1], [2, 3, 4], [5]))
    left = metric.merge([metric.merge([a, b]), c])
    assert_same(left, metric.merge([a, metric.merge([b, c])]))
    assert_same(left, metric.merge([a, b, c]))


def test_any_sharding_equals_the_whole(metric: Metric, cases: list[Case]) -> None:
    whole = metric.merge([state(metric, cases, list(range(12))), zero(metric, cases)])
    generator = np.random.default_rng(1)
    for _ in range(4):
        order = [int(n) for n in generator.permutation(12)]
        cuts = sorted({0, 12, *(int(n) for n in generator.integers(1, 12, 3))})
        total = zero(metric, cases)
        for start, stop in itertools.pairwise(cuts):
            total = metric.merge([total, state(metric, cases, order[start:stop])])
        assert_same(total, whole)


def test_inputs_are_left_as_they_were(metric: Metric, cases: list[Case]) -> None:
    batch = replace(make_batch(cases), facts=facts(metric, cases))
    layer = attentions(cases, batch)[0]
    before = layer.weights.clone()
    sequences = pickle.dumps(batch.stacks["self"])
    measure_reading(metric, LayerData(layer, batch))
    assert (layer.weights == before).all()
    assert pickle.dumps(batch.stacks["self"]) == sequences
    a, b = state(metric, cases, [0, 1]), state(metric, cases, [2])
    copies = pickle.loads(pickle.dumps((a, b)))
    metric.merge([a, b])
    metric.finalize(a, batch.axes)
    assert_same(a, copies[0], bits=True)
    assert_same(b, copies[1], bits=True)


SINGLE_PRECISION = {
    ("variability", "values"),
    ("head_samples", "keys"),
    ("head_samples", "weights"),
}
"""Weights that are kept as the model computed them, and where they stand."""


def test_metric_and_state_pickle(metric: Metric, cases: list[Case]) -> None:
    assert pickle.loads(pickle.dumps(metric)) == metric
    some = state(metric, cases, [0, 1])
    assert_same(pickle.loads(pickle.dumps(some)), some, bits=True)
    for name, array in some.items():
        assert isinstance(array, np.ndarray)
        is_single = (metric.name, name) in SINGLE_PRECISION
        assert array.dtype == np.float64 or is_single


def test_metric_is_frozen_and_travels_as_plain_values(metric: Metric) -> None:
    assert is_dataclass(metric)
    for field in fields(metric):
        with pytest.raises(FrozenInstanceError):
            setattr(metric, field.name, None)
    assert metric_from_dict(metric_to_dict(metric)) == metric


def test_padding_changes_nothing(metric: Metric, cases: list[Case]) -> None:
    numbers = list(range(8))
    assert_same(state(metric, cases, numbers), state(metric, cases, numbers, padding=5))


def test_order_within_a_batch_changes_nothing(metric: Metric, cases: list[Case]) -> None:
    nothing = zero(metric, cases)
    forward = metric.merge([state(metric, cases, [0, 1, 2, 3]), nothing])
    backward = metric.merge([state(metric, cases, [3, 1, 2, 0]), nothing])
    assert_same(forward, backward)


def test_nothing_measured_is_nan_with_a_count_of_0(metric: Metric, cases: list[Case]) -> None:
    axes = make_batch(cases).axes
    values = metric.finalize(zero(metric, cases), axes)
    for name, array in values.items():
        if name.endswith("_count") or "cases" in name:
            assert (array == 0).all()
        elif name.startswith(("exemplar_", "sample_")) and name != "exemplar_weight":
            assert (array == -1).all()
        else:
            assert np.isnan(array).all(), name


def test_values_have_the_axes_they_claim(metric: Metric, cases: list[Case]) -> None:
    axes = make_batch(cases).axes
    values = metric.finalize(state(metric, cases, [0, 1]), axes)
    variables = {variable.name: variable for variable in metric.variables()}
    assert set(values) == set(variables)
    sizes = {"layer": 2, "head": HEADS}
    sizes |= {"layer_a": 2, "head_a": HEADS, "layer_b": 2, "head_b": HEADS}
    sizes |= {dim: len(labels) for dim, labels in metric.coordinates(axes).items()}
    for name, array in values.items():
        assert array.shape == tuple(sizes[dim] for dim in variables[name].dims), name


def test_pulls_are_what_the_values_lose_without_each_part(
    metric: Metric, cases: list[Case]
) -> None:
    chosen = list(range(12))
    axes = make_batch(cases).axes
    parts = make_batch(cases).buckets
    some = state(metric, cases, chosen)
    values = metric.finalize(some, axes)
    jackknife = metric.jackknives(some, axes, np.arange(axes.n_buckets))
    assert jackknife or not isinstance(metric, RatioMetric)
    for name, of in jackknife.items():
        np.testing.assert_allclose(of.value, values[name], rtol=1e-12)
    for part in (0, 3):
        rest = metric.finalize(state(metric, cases, [n for n in chosen if parts[n] != part]), axes)
        for name, of in jackknife.items():
            if name == "baseline":  # without the part, another offset may be best
                continue
            lost = values[name] - rest[name]
            known = np.isfinite(lost)
            np.testing.assert_allclose(of.deltas[part][known], lost[known], atol=1e-6)


def test_parts_taken_together_pull_together(metric: Metric, cases: list[Case]) -> None:
    axes = make_batch(cases).axes
    some = state(metric, cases, list(range(12)))
    units = np.arange(axes.n_buckets) % 2
    for name, of in metric.jackknives(some, axes, units).items():
        assert len(of.deltas) == 2
        np.testing.assert_allclose(of.value, metric.finalize(some, axes)[name], rtol=1e-12)


def test_says_what_it_means_and_where_it_is_from(metric: Metric) -> None:
    papers = ("Vig & Belinkov 2019", "Clark et al. 2019", "Gu et al. 2024")
    papers += ("Olsson et al. 2022", "Wang et al. 2022", "Luger et al. 2026")
    if is_ours(metric):
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


def test_cross_layer_attention_is_not_kept(cases: list[Case]) -> None:
    batch = make_batch(cases)
    fold = Accumulator([make() for make in METRICS.values()])
    layers: list[Attention] = attentions(cases, batch)
    with fold.batch(batch) as read:
        for layer in layers:
            read(layer)
    assert not batch.derived
