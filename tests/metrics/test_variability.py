"""The interval of variability: it is computed again without each part of the corpus."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.metrics.core.contract import State
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.variability import Variability
from headscope.statistics.intervals import interval
from tests.metrics.worlds import attentions, make_batch, make_cases


def _measured(n: int, is_causal: bool) -> tuple[Variability, State, np.ndarray]:
    cases = make_cases(5, n, is_causal=is_causal)
    metric = Variability()
    batch = make_batch(cases, buckets_per_group=5)
    states = [metric.measure(LayerData(layer, batch)) for layer in attentions(cases, batch)]
    state = {name: np.stack([layer[name] for layer in states]) for name in states[0]}
    return metric, state, np.arange(batch.axes.n_buckets)


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_pull_is_what_is_lost_without_the_documents_of_a_part(is_causal: bool) -> None:
    metric, state, units = _measured(8, is_causal)
    axes = make_batch(make_cases(5, 8, is_causal=is_causal), buckets_per_group=5).axes
    of = metric.jackknives(state, axes, units)["variability"]
    value = metric.finalize(state, axes)["variability"]
    for part in np.unique(state["bucket"][0]).astype(int):
        kept = state["bucket"][0] != part
        rest = {name: array[:, kept] for name, array in state.items()}
        lost = value - metric.finalize(rest, axes)["variability"]
        np.testing.assert_allclose(of.deltas[part], lost, atol=1e-9)


def test_too_few_parts_give_no_interval() -> None:
    metric, state, units = _measured(3, is_causal=False)
    axes = make_batch(make_cases(5, 3, is_causal=False), buckets_per_group=5).axes
    assert np.isnan(interval(metric.jackknives(state, axes, units)["variability"]).low).all()
