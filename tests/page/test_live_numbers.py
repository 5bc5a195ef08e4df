"""Roles and words that pages derive too: the golden file is what Python computes today."""

from __future__ import annotations

import json

from tests.page.golden_live import GOLDEN, golden_live


def test_golden_live_numbers() -> None:
    """`web/tests/live.test.ts` compares the page with the same file."""
    assert json.loads(GOLDEN.read_text("utf-8")) == json.loads(json.dumps(golden_live()))


def test_the_golden_cases_show_every_role() -> None:
    roles = {
        part["role"] for case in golden_live()["cases"] for row in case["roles"] for part in row
    }
    assert len(roles) == 10
