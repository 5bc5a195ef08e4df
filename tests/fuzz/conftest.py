"""Outcomes of watched cases: `pytest tests/fuzz -rP` shows them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.watch import watch


@pytest.fixture(autouse=True)
def shown_outcomes() -> Iterator[None]:
    """Print the outcomes of a test's cases by kind of input."""
    watch.outcomes.clear()
    yield
    for kind, counts in watch.outcomes.items():
        print(f"OUTCOMES {kind}: {counts.total()} tried, {dict(counts)}")
