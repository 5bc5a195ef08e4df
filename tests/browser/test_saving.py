"""What a page saves: drawings and tables."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest


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


def test_tables_are_saved(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=3")
    rows = list(csv.DictReader(io.StringIO(opened.download("Weights").decode())))
    assert len(rows) == 144
    weight = next(row for row in rows if (row["query"], row["key"]) == ("3", "7"))
    assert float(weight["weight"]) == pytest.approx(trace.attention.values[1, 2, 3, 7], abs=1e-3)
    heads = list(csv.DictReader(io.StringIO(opened.download("All heads").decode())))
    assert len(heads) == 16
    assert float(heads[0]["entropy"]) > 0
