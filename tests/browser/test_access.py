"""axe finds nothing to object to in any view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "fragment",
    [
        "head=L1H2&word=3",
        "head=L1H2&tab=matrix&color=spread",
        "head=L1H2&tab=neurons&word=3",
        "head=L1H2&tab=evidence&role=unnamed",
        "head=L1H2&with=L0H1,L2H3&word=3",
        "head=L1H2&word=3&color=spread&sort=1",
        "story=1",
        "ex=1",
    ],
)
def test_axe(open_page: Any, trace: Any, fragment: str, theme: str) -> None:
    opened = open_page(trace, fragment=f"{fragment}&theme={theme}", neurons=True)
    assert objections(opened) == []


def test_axe_with_two_inputs_and_a_long_text(open_page: Any, make_trace: Any) -> None:
    pair = [make_trace(8, causal=True, seed=seed) for seed in (0, 1)]
    for tab in ("lines", "matrix", "matrix&minus=1"):
        assert objections(open_page(*pair, fragment=f"head=L1H2&word=5&tab={tab}")) == []
    long = make_trace(200, layers=2, heads=2, causal=True)
    assert objections(open_page(long, fragment="head=L1H1&word=150")) == []


@pytest.mark.parametrize("key", ["f", "?", "/"])
def test_axe_in_popovers(open_page: Any, trace: Any, key: str) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=3")
    opened.page.keyboard.press(key)
    assert objections(opened) == []


@pytest.mark.parametrize("pane", [1, 2, 3])
def test_axe_on_a_phone(open_page: Any, trace: Any, pane: int) -> None:
    opened = open_page(trace, fragment=f"head=L1H2&word=3&pane={pane}", size=(390, 844))
    assert objections(opened) == []


def objections(opened: Any) -> list[str]:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    opened.page.evaluate(AXE.read_text("utf-8"))
    rules = "{ 'label-content-name-mismatch': { enabled: true } }"
    violations = opened.page.evaluate(
        f"axe.run(document, {{ rules: {rules} }}).then((result) => result.violations)"
    )
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"][:2]
    ]
