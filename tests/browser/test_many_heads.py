"""Several heads at once, heads in order, two inputs subtracted, words and heads found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def test_kept_heads_are_averaged(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&word=9")
    shown.page.locator("[data-head=L2H3]").click(modifiers=["Control"])
    assert shown.fragment["with"] == "L2H3"
    assert "mean over L1 H1, L2 H3" in shown.title
    weights = trace.main.attention.values[[1, 2], [1, 3], 9].mean(axis=0)
    strongest = int(weights.argmax())
    option = shown.token("key", strongest)
    assert f"{weights[strongest]:.2f}" in option.inner_text()
    shown.page.get_by_role("button", name="one head").click()
    assert "with" not in shown.fragment
    assert "mean over" not in shown.title


def test_heads_stand_in_order_of_what_they_are_colored_by(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&color=spread")
    shown.page.get_by_role("button", name="Sort by spread").click()
    weights = trace.main.attention.values
    logs = np.log(np.where(weights > 0, weights, 1))
    entropy = -(weights * logs).sum(axis=-1).mean(axis=-1)
    order = np.argsort(-entropy, axis=None)
    expected = [f"L{i // 4}H{i % 4}" for i in order]
    script = "cells => cells.map(cell => cell.dataset.head)"
    cells = shown.page.locator("[role=gridcell]").evaluate_all(script)
    assert cells == expected
    shown.page.locator(f"[data-head={expected[0]}]").click()
    shown.page.keyboard.press("ArrowRight")
    assert shown.fragment["head"] == expected[1]


def test_two_inputs_are_subtracted(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    a, b = make_trace(6, causal=True), make_trace(6, causal=True, seed=1)
    shown = open_page(a, b, fragment="head=L1H1&tab=matrix")
    assert shown.page.locator(".heat").count() == 2
    shown.page.get_by_role("button", name="B − A").click()
    assert shown.page.locator(".heat").count() == 1
    shown.page.locator(".heat .map").focus()
    for _ in range(3):
        shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("ArrowRight")
    said = shown.page.locator(".heat .map").get_attribute("aria-label")
    values = [trace.main.attention.values[1, 1, 3, 1] for trace in (a, b)]
    assert float(said.split()[-1].replace("−", "-")) == pytest.approx(
        values[1] - values[0], abs=0.002
    )


def test_words_and_heads_are_found_by_name(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    shown = open_page(make_trace(10, causal=True), fragment="head=L1H1&word=2")
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("l3 h2")
    shown.page.keyboard.press("Enter")
    assert shown.fragment["head"] == "L3H2"
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("fox")
    shown.page.keyboard.press("Enter")
    assert shown.page.locator(".tok.pin").inner_text() == "fox"
    assert shown.page.locator(".pop").count() == 0


def test_another_head_draws_no_thumbnail_again(open_page: Callable[..., Any], trace: Any) -> None:
    page = open_page(trace, fragment="head=L1H2&word=3").page
    page.evaluate(
        """() => {
          const own = CanvasRenderingContext2D.prototype.putImageData;
          globalThis.drawn = 0;
          CanvasRenderingContext2D.prototype.putImageData = function (...given) {
            globalThis.drawn += 1;
            return own.apply(this, given);
          };
        }"""
    )
    page.keyboard.press("ArrowDown")
    page.locator(".cell.sel[aria-label*='L2 H2']").wait_for()
    assert page.evaluate("drawn") == 0
    for _ in range(2):  # one of the themes is the other one, which draws them all
        page.get_by_role("button", name="Theme").click()
    page.wait_for_function("drawn >= 16")
