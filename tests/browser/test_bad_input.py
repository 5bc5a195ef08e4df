"""Tokens that are markup, attention that is missing, files that are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.errors import HeadscopeWarning
from headscope.page.save_page import save_page
from headscope.results.trace import Trace

NASTY = [
    "<b>bold</b>",
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<!--",
    "]]>",
    "&amp;",
    "שלום",
    "مرحبا",
    "é̂̃",
    "👩‍👩‍👧‍👦",
    "line\nbreak",
    "",
    " ",
    "\u2028",
    "\x00\x07",
    "w" * 60,
    "{{7*7}}",
    "'\"`",
]


def uniform(n: int) -> np.ndarray:
    return np.full((2, 2, n, n), 1 / n, dtype=np.float32)


@pytest.mark.parametrize("tab", ["lines", "matrix"])
def test_nasty_tokens_are_shown_literally(open_page: Any, tab: str) -> None:
    trace = Trace.from_arrays(uniform(len(NASTY)), NASTY, name="</title><script>")
    opened = open_page(trace, fragment=f"tab={tab}", titles=["<script>alert(1)</script>"])
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator(".stage .tok").nth(1).inner_text() == NASTY[1]
    if tab == "lines":
        texts = [t.inner_text() for t in opened.page.locator(".words.query bdi").all()]
        assert texts[:3] == NASTY[:3]
        assert texts[6:10] == NASTY[6:10]
        assert texts[10] == "line⏎break"
        assert texts[11:13] == ["∅", "␣"]
        for word in opened.page.locator(".words .word").all():
            box = word.bounding_box()
            assert box["height"] < 48
            assert box["width"] < 500
        opened.token("query", 1).hover()
        assert "</script>" in opened.tooltip


def test_nasty_tokens_in_exports(open_page: Any) -> None:
    from xml.etree import ElementTree as ET

    trace = Trace.from_arrays(uniform(len(NASTY)), NASTY)
    opened = open_page(trace, fragment="tab=lines")
    root = ET.fromstring(opened.download("Drawing (SVG)"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert NASTY[1] in texts


def test_missing_weights_are_shown_as_missing(open_page: Any) -> None:
    weights = uniform(4)
    weights[0, 1, 2, 3] = np.nan
    trace = Trace.from_arrays(weights, ["a", "b", "c", "d"])
    with pytest.warns(HeadscopeWarning, match="1 weights of block 'self' are NaN"):
        opened = open_page(trace, fragment="head=L0H1&word=2")
    assert "missing" in opened.page.locator(".words.key .share").last.inner_text()
    opened.page.keyboard.press("2")
    assert opened.page.get_by_role("application").is_visible()


def test_heads_that_a_layer_does_not_have_are_left_out(open_page: Any) -> None:
    weights = uniform(4)
    weights[1, 1] = np.nan
    opened = open_page(Trace.from_arrays(weights, list("abcd")), fragment="head=L1H1")
    assert opened.page.get_by_role("gridcell").count() == 3
    assert "L1 H0" in opened.title


def test_one_token(open_page: Any) -> None:
    opened = open_page(Trace.from_arrays(np.ones((1, 1, 1, 1)), ["alone"]))
    opened.token("query", 0).hover()
    assert "1.000" in opened.tooltip


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_page_cut_in_the_middle_says_so(
    open_page: Any, chromium: Any, tmp_path: Path, share: float
) -> None:
    rng = np.random.default_rng(0)
    whole = tmp_path / "whole.html"
    weights = rng.dirichlet(np.ones(60), size=(4, 4, 60))
    save_page(Trace.from_arrays(weights, ["t"] * 60), whole)
    text = whole.read_text("utf-8")
    cut = tmp_path / "cut.html"
    data = text.index('<script type="application/json"')  # a cut script is another test
    cut.write_text(text[: data + int((len(text) - data) * share)], "utf-8")
    opened = open_page(file=cut)
    message = opened.page.locator("[role=alert]").inner_text()
    assert "cannot show this trace" in message
    assert "cut off or damaged" in message


def test_a_page_cut_in_its_script_says_so(chromium: Any, tmp_path: Path) -> None:
    whole = tmp_path / "whole.html"
    save_page(Trace.from_arrays(uniform(3), ["a", "b", "c"]), whole)
    cut = tmp_path / "cut.html"
    cut.write_text(whole.read_text("utf-8")[:20_000], "utf-8")
    page = chromium.new_page()
    page.goto(cut.as_uri())
    assert "the file is incomplete" in page.inner_text("body")
    page.close()
