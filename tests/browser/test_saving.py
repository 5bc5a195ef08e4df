"""What a page saves: drawings and tables."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from headscope.results.trace import Trace


@pytest.mark.parametrize("tab", ["lines", "matrix", "neurons"])
def test_drawings_are_saved(open_page: Any, trace: Any, tab: str) -> None:
    opened = open_page(trace, fragment=f"head=L1H2&word=3&tab={tab}", neurons=True)
    text = opened.download("Drawing (SVG)").decode()
    assert text.startswith("<svg")
    assert ">brown</text>" in text
    assert "L1 H2" in text
    data = opened.download("Picture (PNG)")
    assert data.startswith(b"\x89PNG")
    assert len(data) > 3000


def test_a_saved_drawing_has_no_badge_that_its_title_contradicts(open_page: Any) -> None:
    weights = np.zeros((1, 1, 8, 8), dtype=np.float32)
    weights[..., 0] = 1
    weights[..., 7, [0, 3]] = [0.2, 0.8]  # the last word reads a word, all others the first
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    for word, has_badge in (("7", False), ("", True)):
        opened = open_page(Trace.from_arrays(weights, words), fragment=f"head=L0H0&word={word}")
        text = opened.download("Drawing (SVG)").decode()
        assert ("⇤" in text) is has_badge
        assert (opened.page.locator(".plain-badge").count() == 0) is has_badge
        assert ("→ four" in text) is not has_badge
        assert opened.download("Card of this head").startswith(b"\x89PNG")


def test_tables_are_saved(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=3")
    rows = list(csv.DictReader(io.StringIO(opened.download("Weights").decode())))
    assert len(rows) == 144
    weight = next(row for row in rows if (row["query"], row["key"]) == ("3", "7"))
    assert float(weight["weight"]) == pytest.approx(trace.attention.values[1, 2, 3, 7], abs=1e-3)
    heads = list(csv.DictReader(io.StringIO(opened.download("All heads").decode())))
    assert len(heads) == 16
    assert float(heads[0]["entropy"]) > 0
