"""What someone sees who was sent a page or a link: it explains itself, and nothing jumps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headscope.page.payload import Contents, make_payload
from headscope.page.save_page import make_page
from headscope.results.trace import Trace

Open = Callable[..., Any]
STORY = [("First this.", "head=L1H1&word=2"), ("Then that.", "head=L2H3&tab=matrix&color=spread")]
FOCUSED = """() => {
    let focused = document.activeElement;
    while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
    return {
        name: focused?.getAttribute("aria-label") ?? focused?.innerText ?? "",
        isInside: Boolean(focused?.closest("[role=dialog]")),
    };
}"""


def told(trace: Any) -> str:
    return make_page(make_payload([trace], Contents(story=STORY)))


def test_a_link_to_a_step_opens_what_the_step_is_about(open_page: Open, trace: Any) -> None:
    opened = open_page(html=told(trace), fragment="story=2")
    assert "Then that." in opened.page.locator(".story").inner_text()
    assert "L2 H3" in opened.page.locator(".badge").inner_text()
    assert opened.page.get_by_role("application").is_visible()
    assert opened.fragment == {"head": "L2H3", "story": "2"}
    again = open_page(html=told(trace), fragment="story=2&head=L0H0&color=role")
    assert "L0 H0" in again.page.locator(".badge").inner_text(), "what the link adds is kept"
    assert (again.fragment["color"], again.fragment["story"]) == ("role", "2")


def test_a_page_without_a_story_has_a_tour(open_page: Open, trace: Any) -> None:
    opened = open_page(trace)
    assert not opened.page.locator(".story").is_visible()
    assert "story" not in opened.fragment
    opened.page.get_by_role("button", name="▸ Tour").click()
    bar = opened.page.locator(".story")
    captions = []
    while bar.is_visible():
        captions.append(bar.locator("p").inner_text())
        assert len(captions) < 10
        opened.page.keyboard.press("Space")
    assert len(captions) == 5
    assert " reads “" in captions[0]
    assert "All 16 heads" in captions[1]
    assert "Reading is not using" in captions[2]
    assert "corpus" in captions[-1]


def test_on_a_phone_a_step_turns_to_its_pane(open_page: Open, trace: Any) -> None:
    opened = open_page(trace, size=(390, 844))
    opened.page.get_by_role("button", name="Help").click()
    opened.page.get_by_role("dialog").get_by_role("button", name="▸ Tour").click()
    panes = []
    while (bar := opened.page.locator(".story")).is_visible():
        panes.append(opened.page.locator("nav [aria-current]").inner_text())
        bar.locator(".go").click()
    assert panes == ["This head", "Heads", "Effect", "This head", "This head"]


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (720, 450)])
def test_nothing_moves_under_the_pointer(
    open_page: Open, make_trace: Open, size: tuple[int, int]
) -> None:
    traces = [make_trace(14, causal=True, seed=seed) for seed in (0, 1)]
    opened = open_page(tuple(traces), size=size)
    words = opened.page.locator(".stage .tok")
    places = set()
    for index in range(words.count()):
        words.nth(index).hover()
        places.add(opened.page.locator(".tabs").bounding_box()["y"])
    assert len(places) == 1


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (720, 450)])
def test_the_bar_names_the_model_and_is_not_cut(
    open_page: Open, trace: Any, size: tuple[int, int]
) -> None:
    opened = open_page(trace, size=size)
    for part in (".model", "text=Export", "text=▸ Tour", "[aria-label=Help]"):
        box = opened.page.locator(f".bar >> {part}").first.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]


def test_without_a_pinned_word_columns_show_averages(open_page: Open, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H1&word=")
    assert "on average" in opened.page.locator(".heading").inner_text()
    assert "strongest link is drawn" in opened.caption
    shares = opened.page.locator(".words.key .share").all_inner_texts()
    assert sum(map(float, shares)) == pytest.approx(1, abs=0.06)
    opened.token("query", 3).hover()
    assert "by “" in opened.page.locator(".heading").inner_text()


def test_words_that_both_texts_have_say_whose_they_are(open_page: Open, make_trace: Open) -> None:
    trace = make_trace(30)
    opened = open_page(trace, fragment="head=L1H1&word=3")
    opened.page.locator(".stage .tok").nth(4).hover()
    marks = opened.page.locator(".cap sup.letter").all_inner_texts()
    assert set(marks) <= {"A", "B"}
    assert marks


def test_a_prediction_says_after_which_word(open_page: Open, tiny_llama: Any) -> None:
    trace = tiny_llama.trace("the cat sat on the mat")
    opened = open_page(trace, fragment="word=1")
    question = opened.page.locator(".question")
    assert re.match(r"After “.+”, \S+ says .+ %.*\. Why\?", " ".join(question.inner_text().split()))
    assert question.locator(".ghost").count() == 1
    opened.page.locator(".stage .tok").last.click()
    assert re.fullmatch(r"\S+ says .+\. Why\?", question.inner_text())
    assert opened.page.locator(".toks .ghost").count() == 1
    assert opened.page.locator(".ghost").count() == 1, "one answer on the page"


def test_the_help_keeps_the_focus_and_gives_it_back(open_page: Open, trace: Any) -> None:
    opened = open_page(trace)
    opened.page.get_by_role("button", name="Help").focus()
    opened.page.keyboard.press("Enter")
    for _ in range(6):
        opened.page.keyboard.press("Tab")
        focused = opened.page.evaluate(FOCUSED)
        assert focused["isInside"] or focused["name"] == ""
    opened.page.keyboard.press("Escape")
    opened.page.wait_for_timeout(50)
    assert opened.page.evaluate(FOCUSED)["name"] == "Help"


def test_letters_of_two_texts_do_not_turn_them_around(open_page: Any) -> None:
    words = ["שלום", "עולם", "טוב", "מאוד"]
    trace = Trace.from_arrays(np.full((1, 1, 4, 4), 0.25), words)
    opened = open_page((trace, trace))
    bands = opened.page.locator(".stage .band").all()
    assert [band.evaluate("band => getComputedStyle(band).direction") for band in bands] == [
        "rtl",
        "rtl",
    ]
