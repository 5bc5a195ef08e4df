"""The bootstrap of variability: a draw is the number of the documents it drew."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.metrics.variability import Variability
from tests.metrics.worlds import attentions, make_batch, make_cases


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_draw_is_the_number_of_the_documents_drawn(is_causal: bool) -> None:
    cases = make_cases(5, 8, is_causal=is_causal)
    metric = Variability()
    batch = make_batch(cases, parts_per_group=5)
    states = [metric.measure(attention) for attention in attentions(cases, batch)]
    state = {name: np.stack([layer[name] for layer in states]) for name in states[0]}
    weights = np.random.default_rng(0).integers(0, 3, (6, batch.axes.n_parts)).astype(float)
    drawn = metric.draws(state, batch.axes, weights)["variability"]
    for row, weight in zip(drawn, weights, strict=True):
        part = state["part"][0].astype(int)
        again = np.repeat(np.arange(len(part)), weight[part].astype(int))
        repeated = {name: array[:, again] for name, array in state.items()}
        expected = metric.finalize(repeated, batch.axes)["variability"]
        np.testing.assert_allclose(row, expected, atol=1e-9)
    assert np.nanmax(drawn) <= 1
