"""The tables of metrics in the docs are what the metrics say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("metric_tables", DOCS / "metric_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "papers.md").read_text(encoding="utf-8")
    assert module.written(page) == page, "run: python docs/metric_tables.py"
    for name in module.METRICS:
        assert page.count(f"| `{name}` |") == 1, name
