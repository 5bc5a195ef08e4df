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
        "view=all&queries=3",
        "view=head&heads=0,1,2",
        "view=head&form=matrix",
        "view=model&sort=entropy",
        "view=neurons",
    ],
)
def test_axe(open_page: Any, trace: Any, fragment: str, theme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    opened = open_page(trace, fragment=f"{fragment}&theme={theme}")
    opened.page.evaluate(AXE.read_text("utf-8"))
    violations = opened.page.evaluate("axe.run().then((result) => result.violations)")
    found = [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"][:2]
    ]
    assert found == []
