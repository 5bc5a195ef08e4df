"""Nothing is cut, hidden or left behind at any size of the window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from headscope.model.model import Model
from headscope.page.payload import Contents, Evidence, make_payload
from headscope.page.save_page import page_of, save_page

SIZES = [(1440, 900), (1200, 800), (1024, 768), (720, 450), (390, 844)]
SMALL = SIZES[2:]


def inside(page: Any, inner: str, outer: str) -> bool:
    """Whether an element is seen whole within another."""
    return bool(
        page.locator(inner).first.evaluate(
            """(element, outer) => {
                const own = element.getBoundingClientRect();
                const box = element.closest(outer).getBoundingClientRect();
                return own.left >= box.left - 1 && own.right <= box.right + 1
                    && own.top >= box.top - 1 && own.bottom <= box.bottom + 1;
            }""",
            outer,
        )
    )


@pytest.mark.parametrize("size", SMALL)
def test_lines_scroll_to_the_pinned_word(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], size: tuple[int, int]
) -> None:
    shown = open_page(make_trace(60, causal=True), fragment="head=L1H1&word=55", size=size)
    assert inside(shown.page, ".words.query .word.pin", ".panels")
    assert inside(shown.page, ".heading .read", ".panels"), "column heads stay in sight"
    for _ in range(50):
        shown.page.keyboard.press(",")
    assert inside(shown.page, ".words.query .word.pin", ".panels")


@pytest.mark.parametrize("size", [*SIZES, (700, 450)])
def test_the_matrix_has_a_legend_and_a_switch_at_every_size(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], size: tuple[int, int]
) -> None:
    traces = [make_trace(9, pair=False, seed=seed) for seed in (1, 2)]
    for shown, n_parts in (
        (open_page(*traces, fragment="tab=matrix", size=size), 2),
        (open_page(traces[0], fragment="tab=matrix", size=size), 1),
    ):
        assert shown.page.locator(".wl > *").count() == n_parts
        assert inside(shown.page, ".wl .ramp", ".tabs")
        assert inside(shown.page, ".wl > :last-child", ".tabs")
        fits = "tabs => tabs.scrollWidth <= tabs.clientWidth"
        assert shown.page.locator(".tabs").evaluate(fits)


@pytest.mark.parametrize("size", [(720, 450), (640, 450)])
def test_the_answer_leaves_the_pinned_word_of_a_long_text_in_view(
    open_page: Callable[..., Any], tiny_llama: Model, size: tuple[int, int]
) -> None:
    page = open_page(tiny_llama.trace("the cat and the dog " * 5), size=size).page
    assert page.locator(".flow.long > .answer").count() == 1
    assert inside(page, ".stage .tok.pin", ".scrolled")
    page.keyboard.press("Escape")


@pytest.mark.parametrize("width", [390, 430, 470, 510])
def test_the_letter_of_a_text_stands_before_its_first_word(
    open_page: Callable[..., Any], trace: Any, width: int
) -> None:
    page = open_page(trace, size=(width, 844)).page
    for band in page.locator(".stage .band").all():
        letter, word = band.locator(".letter").bounding_box(), band.locator(".tok").first
        box = word.bounding_box()
        assert abs(letter["y"] + letter["height"] / 2 - box["y"] - box["height"] / 2) < 12


@pytest.mark.parametrize("size", SIZES)
def test_columns_say_whose_reading_they_show_at_every_size(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], size: tuple[int, int]
) -> None:
    shown = open_page(make_trace(14, causal=True), fragment="head=L1H1&word=8", size=size)
    heading = shown.page.locator(".heading").first
    assert "by “dog”" in heading.inner_text()
    is_cut = "element => [...element.children].some(one => one.scrollWidth > one.clientWidth + 1)"
    assert not heading.evaluate(is_cut)
    assert inside(shown.page, ".heading > :last-child", ".panels")
    legend = shown.page.locator(".wl")
    if legend.is_visible():
        assert inside(shown.page, ".wl", ".tabs")


@pytest.mark.parametrize("size", SIZES[:3])
def test_all_layers_are_seen_without_scrolling(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], size: tuple[int, int]
) -> None:
    shown = open_page(make_trace(12, layers=30, heads=9, causal=True), size=size)
    assert inside(shown.page, "[data-head=L29H8]", ".gridwrap")


@pytest.mark.parametrize("size", SIZES)
def test_a_long_text_leaves_room_for_the_head(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], size: tuple[int, int]
) -> None:
    shown = open_page(make_trace(58, causal=True), size=size)
    stage = shown.page.locator(".stage").bounding_box()
    assert stage["height"] <= 0.32 * size[1]


def test_a_head_has_both_names_where_corpus_and_text_differ(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    trace = make_trace(12, layers=2, heads=2)
    corpus = xr.Dataset(
        {
            "role": (
                ("layer", "head"),
                [["first_token", "first_token"], ["first_token", "previous_token"]],
            ),
            "share": (("layer", "head"), [[0.8, 0.8], [0.8, 0.9]]),
            "queries": (("layer", "head"), [[90, 90], [90, 90]]),
        },
        attrs={"source": "corpus"},
    )
    evidence = Evidence({"about": "88 documents", "meanings": {}, "cards": {}}, {"self": corpus})
    contents = Contents(evidence=evidence, selection="head=L1H1", report="report.html")
    payload = make_payload([trace], contents)
    here = trace.roles()["role"].values[1, 1]
    assert here != "previous_token"
    shown = open_page(html=page_of(payload, trace))
    cell = shown.page.locator("[data-head=L1H1]")
    assert " in this text, previous token over the corpus" in cell.get_attribute("aria-label")
    assert " in this text, previous token over the corpus" in shown.title
    assert shown.page.locator(".badge").inner_text().startswith("←")
    shown.page.get_by_role("tab", name="Evidence").click()
    link = shown.page.get_by_role("link", name="All of it in the report")
    assert link.get_attribute("href") == "report.html#synthetic/L1H1"
    legend = shown.page.locator(".legend")
    assert "previous token 1" in " ".join(legend.inner_text().split())
    legend.get_by_role("button", name="in this text").click()
    assert "previous token" not in legend.inner_text()
    assert shown.fragment["named"] == "text"
    assert not shown.page.locator(".badge").inner_text().startswith("←")


def test_neurons_scroll_to_what_the_pinned_word_reads(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    fragment = "head=L1H1&word=55&key=54&tab=neurons"
    shown = open_page(make_trace(60, causal=True), fragment=fragment, size=(1024, 768), neurons=[1])
    assert inside(shown.page, ".strip[aria-selected=true]", ".neurons")
    assert inside(shown.page, ".strips-heading", ".neurons")


@pytest.mark.parametrize("size", SMALL)
def test_the_help_fits_the_window(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], size: tuple[int, int]
) -> None:
    shown = open_page(make_trace(12), size=size)
    shown.page.keyboard.press("?")
    assert inside(shown.page, ".help", ".page")


def test_a_comparison_opens_on_a_word(
    open_page: Callable[..., Any], make_trace: Callable[..., Any]
) -> None:
    shown = open_page(make_trace(12), make_trace(12, seed=1))
    pinned = shown.page.locator(".stage .tok.pin").first
    assert pinned.inner_text() not in ("[CLS]", "[SEP]")


@pytest.mark.parametrize("fragment", ["", "word=4"])
def test_a_comparison_opens_on_the_head_that_is_ranked_first(
    open_page: Callable[..., Any], make_trace: Callable[..., Any], fragment: str
) -> None:
    shown = open_page(make_trace(12), make_trace(12, seed=1), selection=fragment)
    ranked = shown.page.locator(".ranking").first.locator(".rank")
    assert ranked.first.get_attribute("aria-current") == "true"
    pinned = shown.page.locator(".stage .tok.pin").first.get_attribute("data-at")
    assert fragment in ("", f"word={pinned.removeprefix('query')}")


def test_roles_are_not_counted_before_they_are_known(
    open_page: Callable[..., Any], tiny_llama: Model
) -> None:
    trace = tiny_llama.trace("the cat sat on the mat", keep="top", top=2)
    legend = open_page(trace, fragment="color=role").page.locator(".legend").inner_text()
    assert "roles need whole rows" in legend
    assert "no single role" not in legend


def test_a_page_in_a_frame_leaves_the_page_around_it_where_it_is(
    chromium: Any, tmp_path: Path, make_trace: Callable[..., Any]
) -> None:
    save_page(make_trace(10), tmp_path / "page.html")
    around = tmp_path / "around.html"
    frame = '<iframe src="page.html#head=L3H3" width="900" height="600"></iframe>'
    around.write_text(f'<p style="height: 3000px">Above.</p>{frame}', "utf-8")
    page = chromium.new_page(viewport={"width": 1000, "height": 700})
    page.goto(around.as_uri())
    page.frame_locator("iframe").locator(".cell.sel").wait_for()
    assert page.evaluate("scrollY") == 0
    page.close()
