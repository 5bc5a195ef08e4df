"""The bootstrap of variability: draws are the numbers of the documents drawn, brought back to
the number itself.
"""

from __future__ import annotations

import numpy as np
import pytest

from headscope.measuring.reading import Reading
from headscope.metrics.variability import Variability
from tests.metrics.worlds import attentions, make_batch, make_cases


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_draw_is_the_number_of_the_documents_drawn(is_causal: bool) -> None:
    cases = make_cases(5, 8, is_causal=is_causal)
    metric = Variability()
    batch = make_batch(cases, parts_per_group=5)
    states = [metric.measure(Reading(layer, batch)) for layer in attentions(cases, batch)]
    state = {name: np.stack([layer[name] for layer in states]) for name in states[0]}
    weights = np.random.default_rng(0).integers(0, 3, (6, batch.axes.n_parts)).astype(float)
    drawn = metric.draws(state, batch.axes, weights)["variability"]
    expected = []
    for weight in weights:
        part = state["part"][0].astype(int)
        again = np.repeat(np.arange(len(part)), weight[part].astype(int))
        repeated = {name: array[:, again] for name, array in state.items()}
        expected.append(metric.finalize(repeated, batch.axes)["variability"])
    value = metric.finalize(state, batch.axes)["variability"]
    moved = np.clip(expected + value - np.mean(expected, axis=0), 0, 1)
    np.testing.assert_allclose(drawn, moved, atol=1e-9)
    assert (np.mean(expected, axis=0) < value).all(), "repeated documents vary less"


def test_without_draws_there_is_no_interval() -> None:
    cases = make_cases(5, 3, is_causal=False)
    metric = Variability()
    batch = make_batch(cases)
    states = [metric.measure(Reading(layer, batch)) for layer in attentions(cases, batch)]
    state = {name: np.stack([layer[name] for layer in states]) for name in states[0]}
    drawn = metric.draws(state, batch.axes, np.zeros((4, batch.axes.n_parts)))["variability"]
    assert np.isnan(drawn).all()
