"""Several heads at once, heads in order, two inputs compared, words and heads found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def test_heads_are_drawn_over_one_another(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&word=9")
    shown.page.locator("[data-head=L2H3]").click(modifiers=["Shift"])
    shown.page.get_by_role("button", name="+ head").click()
    shown.page.locator("[data-head=L3H0]").click()
    assert shown.fragment["with"] == "L2H3,L3H0"
    assert shown.page.locator(".cell.kept").count() == 3
    rows = trace.main.attention.values[[1, 2, 3], [1, 3, 0], 9]
    for row, letter in zip(rows, "abc", strict=True):
        best = trace.tokens[int(row.argmax())]
        assert f"{letter} reads {best} {row.max():.2f}" in shown.title
    key = int(rows.sum(0).argmax())
    parts = " + ".join(f"{weight:.2f}" for weight in rows[:, key] if weight >= 0.02)
    assert parts in shown.token("key", key).inner_text()
    assert shown.token("key", key).locator(".stack i").count() == parts.count("+") + 1
    shown.page.get_by_role("button", name="b L2 H3 ×").click()
    assert shown.fragment["with"] == "L3H0"


def test_heads_are_drawn_over_one_another_by_keys_alone(
    open_page: Callable[..., Any], trace: Any
) -> None:
    shown = open_page(trace, fragment="head=L1H1&word=3")
    for key in ("m", "ArrowRight", "ArrowDown"):
        shown.page.keyboard.press(key)
    assert (shown.fragment["head"], shown.fragment["with"]) == ("L2H2", "L1H1")
    shown.page.keyboard.press("ArrowDown")
    assert (shown.fragment["head"], shown.fragment["with"]) == ("L3H2", "L1H1")


def test_weights_of_several_heads_fit_a_phone(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&with=L2H3,L3H0&word=9", size=(390, 844))
    shares = shown.page.locator(".words.key .share")
    ends = shares.evaluate_all("all => all.map((s) => s.getBoundingClientRect().right)")
    assert ends
    assert max(ends) <= 390
    rows = trace.main.attention.values[[1, 2, 3], [1, 3, 0], 9]
    key = int(rows.sum(0).argmax())
    best = int(rows[:, key].argmax())
    said = shown.token("key", key).locator(".share").inner_text()
    assert said.split() == ["abc"[best], f"{rows[best, key]:.2f}"]
    # Bars below a line of words end above the next line.
    bars = shown.page.locator(".minis i")
    lowest = bars.evaluate_all("all => all.map((i) => i.getBoundingClientRect().bottom)")
    words = shown.page.locator(".toks .tok, .toks .ghost")
    tops = words.evaluate_all("all => all.map((w) => w.getBoundingClientRect().top)")
    first = bars.first.locator("xpath=ancestor::*[contains(@class, 'tok')][1]").bounding_box()
    below = [top for top in tops if top > first["y"] + first["height"] / 2]
    assert not below or lowest[0] <= min(below) + 1


def test_kept_heads_are_averaged(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&word=9")
    shown.page.locator("[data-head=L2H3]").click(modifiers=["Control"])
    assert shown.fragment["with"] == "L2H3"
    shown.page.get_by_role("button", name="mean").click()
    assert "mean over L1 H1, L2 H3" in shown.title
    weights = trace.main.attention.values[[1, 2], [1, 3], 9].mean(axis=0)
    strongest = int(weights.argmax())
    option = shown.token("key", strongest)
    assert f"{weights[strongest]:.2f}" in option.inner_text()
    shown.page.get_by_role("button", name="back to one").click()
    assert "with" not in shown.fragment
    assert "mean over" not in shown.title


def test_heads_stand_in_order_of_what_they_are_colored_by(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&color=spread")
    shown.page.get_by_role("button", name="largest first").click()
    weights = trace.main.attention.values
    logs = np.log(np.where(weights > 0, weights, 1))
    entropy = -(weights * logs).sum(axis=-1).mean(axis=-1)
    order = np.argsort(-entropy, axis=None)
    expected = [f"L{i // 4}H{i % 4}" for i in order]
    script = "cells => cells.map(cell => cell.dataset.head)"
    cells = shown.page.locator("[role=gridcell]").evaluate_all(script)
    assert cells == expected
    names = shown.page.locator("[role=gridcell] .named b").all_inner_texts()
    assert names == [name.replace("H", " H") for name in expected], "names are kept"
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


def test_heads_are_ranked_by_their_difference(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    a, b = make_trace(6, causal=True), make_trace(6, causal=True, seed=1)
    shown = open_page(a, b, fragment="head=L1H1&word=5")
    rows = [trace.main.attention.values[:, :, 5] for trace in (a, b)]
    apart = np.abs(rows[0] - rows[1]).sum(-1) / 2
    order = [f"L{i // 4} H{i % 4}" for i in np.argsort(-apart, axis=None)]
    ranking = shown.page.locator(".ranking").first
    listed = ranking.locator(".rank span:nth-child(2)").all_inner_texts()
    assert listed[:6] == order[:6]
    assert f"{apart.max():.2f}" in ranking.locator(".rank").first.inner_text()
    assert f"differs by {apart.max():.2f}" in shown.page.locator(".legend").inner_text()
    wings = shown.page.locator(".butterfly tbody tr")
    assert wings.count() == 6
    strongest = int(rows[0][1, 1].argmax())
    assert f"{rows[0][1, 1].max():.2f}" in wings.nth(strongest).inner_text()


def test_a_tile_is_magnified_on_hover_and_focus(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(10, causal=True)
    shown = open_page(trace, fragment="head=L1H1&word=9")
    row = trace.main.attention.values[2, 3, 9]
    best = f"{trace.tokens[int(row.argmax())]} {row.max():.2f}"
    card = shown.page.locator(".magnifier")
    shown.page.locator("[data-head=L2H3]").hover()
    assert "L2 H3" in card.inner_text()
    assert best in card.inner_text()
    shown.page.mouse.move(5, 5)
    assert card.count() == 0


def test_words_and_heads_are_found_by_name(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    shown = open_page(make_trace(10, causal=True), fragment="head=L1H1&word=2")
    shown.page.keyboard.press("/")
    assert shown.page.locator(".pop.find button").count() > 3, "offers before anything is typed"
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
