"""Statistics of heads, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headscope.heads.roles import known_weights, row_entropies
from headscope.page.payload_blocks import head_statistics
from headscope.results.trace import Trace

PREVIOUS = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
EVEN = [[1 / 3] * 3] * 3


def statistics(trace: Trace) -> dict[str, Any]:
    weights = known_weights(trace.main)
    return head_statistics(trace.main, weights, row_entropies(weights))


def test_by_hand() -> None:
    trace = Trace.from_arrays(
        np.array([[PREVIOUS, EVEN]]),
        ["[CLS]", "a", "b"],
        special=[True, False, False],
        segments=[0, 0, 1],
    )
    table = statistics(trace)
    assert table["entropy"] == [[0.0, round(math.log(3), 4)]]
    assert table["first"] == [[round(2 / 3, 4), round(1 / 3, 4)]]
    assert table["special"] == table["first"]
    assert table["distance"] == [[round(2 / 3, 4), round(8 / 9, 4)]]
    assert table["previous"] == [[round(2 / 3, 4), round(2 / 9, 4)]]
    assert table["same"] == [[round(1 / 3, 4), round(1 / 3, 4)]]
    assert table["next"] == [[0.0, round(2 / 9, 4)]]
    assert table["between"] == [[round(1 / 3, 4), round(4 / 9, 4)]]


def test_a_head_without_attention_has_none() -> None:
    weights = np.array([[PREVIOUS, np.full((3, 3), np.nan)]])
    table = statistics(Trace.from_arrays(weights, list("abc")))
    assert "special" not in table
    assert "between" not in table
    assert table["entropy"] == [[0.0, None]]
