"""The tab *Wires*: wires over the sentence, and what a click on one shows."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

import headscope as hs
from tests.page.golden_payload import WIRES, golden_trace

SIZES = [(1440, 900), (1024, 768), (720, 450), (390, 844)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_wires_fit_the_screen(open_page: Any, size: tuple[int, int], scheme: str) -> None:
    opened = open_page(golden_trace(), wires=WIRES, fragment="tab=wires", size=size, scheme=scheme)
    page = opened.page
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Wires"
    assert page.locator(".wire").count() == 4
    frame, drawn = (page.locator(name).bounding_box() for name in (".body", ".wires-svg"))
    assert drawn["width"] <= frame["width"] + 1
    # Changed words are marked, with the word of the other text.
    assert page.locator(".changed").all_text_contents() == ["unun, in the other text foreor fore"]


def test_a_click_shows_heads_pairs_and_split(open_page: Any) -> None:
    opened = open_page(golden_trace(), wires=WIRES, selection={"tab": "wires"})
    page = opened.page
    assert "2 pairs of 2 templates" in page.locator(".wires-foot").inner_text()
    assert "0.75 with 1 %, on 2 other pairs" in page.locator(".curve").inner_text()
    page.get_by_role("button", name="L0 H1 → q of L1 H0, share").dispatch_event("click")
    assert opened.fragment["wire"] == "1"
    assert (opened.fragment["head"], opened.fragment["with"]) == ("L0H1", "L1H0")
    said = page.locator(".wire-detail").inner_text()
    assert "+0.50 [+0.25, +0.75]" in said
    assert "Chosen in 75 % of resamples; p = 0.031 on other sentences (Holm)" in said
    assert page.locator(".pair-dots circle.for").count() == 2
    assert page.locator(".split").count() == 0
    page.get_by_role("button", name="embedding → k of L1 H0-1").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".split")
    rows = page.locator(".split tr").all_inner_texts()
    assert [row.split() for row in rows] == [["L1", "H0", "−0.50"], ["L1", "H1", "+0.25"]]
    page.locator(".pair-dots circle.against").first.hover()
    assert "foreseen" in opened.tooltip


def test_strength_is_stability_and_dashes_an_interval_with_0(open_page: Any) -> None:
    page = open_page(golden_trace(), wires=WIRES, fragment="tab=wires").page
    lines = page.locator(".wire .line")
    styles = [
        [lines.nth(i).get_attribute(f"stroke-{name}") for name in ("opacity", "dasharray")]
        for i in range(4)
    ]
    assert [float(opacity) for opacity, _ in styles] == pytest.approx([0.775, 0.6, 0.775, 0.6])
    assert [dash for _, dash in styles] == [None, "5 4", None, None]
    kinds = [lines.nth(i).locator("..").get_attribute("class") for i in range(4)]
    assert ["against" in str(kind) for kind in kinds] == [False, True, False, False]


def test_the_drawing_is_exported_with_its_title(open_page: Any) -> None:
    opened = open_page(golden_trace(), wires=WIRES, fragment="tab=wires")
    text = opened.download("Drawing (SVG)").decode()
    root = ET.fromstring(text)
    assert "golden · wires on things" in "".join(root.itertext())
    assert text.count('class="line"') == 4
    assert opened.download("Picture (PNG)")[:4] == b"\x89PNG"


def test_pages_without_wires_have_no_tab_and_the_tour_ends_on_them(
    open_page: Any, tiny_llama: hs.Model
) -> None:
    page = open_page(golden_trace()).page
    assert page.get_by_role("tab", name="Wires").count() == 0
    trace = tiny_llama.trace("the cat sat on the mat", effects=True)
    opened = open_page(trace, wires=WIRES, fragment="story=5")
    assert "measured on 2 pairs" in opened.page.locator(".story.card p").inner_text()
    assert opened.page.locator(".wires-svg").count() == 1
