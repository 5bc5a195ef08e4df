"""Attention between words against loops over its definition (Clark et al., section 4.1)."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.word_attention import has_tokens, word_weights
from tests.metrics.worlds import attentions, make_batch, make_cases


@pytest.mark.parametrize("is_causal", [False, True])
def test_sums_to_and_means_from(is_causal: bool) -> None:
    cases = make_cases(3, 9, is_causal=is_causal)
    batch = make_batch(cases, extra_padding=2)
    for layer, attention in enumerate(attentions(cases, batch)):
        reading = LayerData(attention, batch)
        found = word_weights(reading).numpy()
        has = has_tokens(reading)
        for number, case in enumerate(cases):
            words = [-1] * len(case.special) if case.words is None else case.words
            assert set(np.flatnonzero(has[number])) == {w for w in words if w >= 0}
            expected = np.zeros(found.shape[1:])
            for query in {w for w in words if w >= 0}:
                rows = [i for i, w in enumerate(words) if w == query]
                for key, word in enumerate(words):
                    if word >= 0:
                        expected[:, query, word] += case.attention[layer][:, rows, key].mean(-1)
            np.testing.assert_allclose(found[number], expected, atol=1e-12)
