"""Heads ranked by what they do to one answer, and to one over another."""

from __future__ import annotations

import math
from typing import Any

from tests.page.golden_payload import golden_trace


def test_an_answer_is_held_against_another(open_page: Any) -> None:
    opened = open_page(golden_trace(), fragment="head=L0H0&word=2&tab=effect")
    ranking = opened.page.locator(".effect .ranking")
    # P(things) is .625, without L0 H1 .25; P(.) is .25, without it .5.
    assert "−37.5" in ranking.locator(".rank").first.inner_text()
    opened.page.get_by_label("over").select_option(label=".")
    log_odds = math.log(0.25 / 0.5) - math.log(0.625 / 0.25)
    first = ranking.locator(".rank").first.inner_text()
    assert "L0 H1" in first
    assert f"−{abs(log_odds):.2f}" in first
    said = opened.page.locator(".effect").inner_text()
    assert "Heads behind things" in said
    assert "log-odds without each head" in said
    assert "against=." in opened.page.evaluate("location.hash")


def test_a_link_names_the_other_answer(open_page: Any) -> None:
    opened = open_page(golden_trace(), fragment="head=L0H1&word=2&tab=effect&against=.")
    assert opened.page.get_by_label("over").input_value() == "."
    assert "log-odds" in opened.page.locator(".effect .what").inner_text()
    unknown = open_page(golden_trace(), fragment="head=L0H1&word=2&tab=effect&against=nobody")
    assert unknown.page.get_by_label("over").input_value() == ""
    assert "points of probability" in unknown.page.locator(".effect .what").inner_text()
