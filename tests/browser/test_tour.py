"""One question on the page; a tour that points and changes something; an exercise that asks."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import headscope as hs

SIZES = [(1440, 900), (1024, 768), (720, 450), (390, 844)]


@pytest.fixture
def written(tiny_llama: hs.Model) -> hs.Trace:
    """A text with a prediction, and the effect of each head on it."""
    return tiny_llama.trace("the cat sat on the mat", effects=True)


def state(opened: Any) -> dict[str, Any]:
    """What a visitor sees change: head, prediction, order, tab, list of answers."""
    page = opened.page
    return {
        "fragment": {k: v for k, v in opened.fragment.items() if k != "story"},
        "answer": page.locator(".ghost").all_inner_texts(),
        "open": page.locator(".pop.answers").count(),
        "tab": page.locator("[role=tab][aria-selected=true]").all_inner_texts(),
    }


def test_the_page_opens_on_the_last_word(open_page: Any, written: hs.Trace) -> None:
    opened = open_page(written)
    last = len(written.tokens) - 1
    effects = np.abs(written.effects.values.values)  # type: ignore[union-attr]
    layer, head = divmod(int(effects.argmax()), effects.shape[1])
    assert opened.fragment["head"] == f"L{layer}H{head}"
    assert opened.token("query", last).get_attribute("aria-selected") == "true"
    answer, probability = written.predictions.top()[0]  # type: ignore[union-attr]
    question = opened.page.locator(".question").inner_text()
    assert question.endswith(f"says {answer.strip()}. Why?")
    shown = re.search(r"([\d.]+) %", opened.page.locator(".ghost").inner_text())
    assert shown is not None
    assert float(shown[1]) == pytest.approx(100 * probability, rel=0.06)
    assert f"Heads behind {answer.strip()}" in opened.page.locator(".effect").inner_text()


def test_another_word_moves_question_and_ranking(open_page: Any, written: hs.Trace) -> None:
    opened = open_page(written)
    place = next(i for i, text in enumerate(written.tokens) if i > 1 and text.strip().isalpha())
    opened.token("query", place).click()
    word = written.tokens[place].strip()
    assert opened.page.locator(".question").inner_text().startswith(f"After “{word}”")
    effect = opened.page.locator(".effect").inner_text()
    assert f"Heads that read most for {word}" in effect
    assert "Heads behind" not in effect, "effects are about another word"
    rows = written.attention.values[:, :, place, 1:]
    first = opened.page.locator(".ranking .rank").first.inner_text()
    assert f"{rows.max():.2f}" in first
    opened.page.get_by_role("button", name="Go to").click()
    assert "Heads behind" in opened.page.locator(".effect").inner_text()


def test_a_stored_run_without_a_head_is_replayed(open_page: Any, written: hs.Trace) -> None:
    opened = open_page(written)
    before = opened.page.locator(".ghost").inner_text()
    first = opened.page.get_by_role("switch").first
    assert first.get_attribute("aria-checked") == "true"
    first.click()
    assert first.get_attribute("aria-checked") == "false"
    data = written.effects.data  # type: ignore[union-attr]
    code = re.match(r"L(\d+)H(\d+)", opened.fragment["off"])
    assert code is not None
    layer, head = map(int, code.groups())
    after = float(np.exp(data["after"].sel(layer=layer, head=head).isel(candidate=0)))
    shown = opened.page.locator(".ghost").inner_text()
    assert "→" in shown
    percent = re.search(r"→ ([\d.]+) %", shown)
    assert percent is not None
    assert float(percent[1]) == pytest.approx(100 * after, rel=0.06)
    first.click()
    assert opened.page.locator(".ghost").inner_text() == before


def test_answers_follow_temperature_and_a_limit(open_page: Any, written: hs.Trace) -> None:
    opened = open_page(written)
    opened.page.locator(".ghost").click()
    answers = opened.page.locator(".pop.answers")
    top = [p for _, p in written.predictions.top()]  # type: ignore[union-attr]
    answers.get_by_label("Number of answers").select_option(label="the first 3")
    shown = answers.locator(".pb .v").all_inner_texts()
    share = 100 * top[0] / sum(top[:3])
    assert float(shown[0].split()[0]) == pytest.approx(share, abs=0.6)
    assert shown[3] == "left out"


@pytest.mark.parametrize("size", SIZES)
def test_each_step_points_at_something_and_changes_something(
    open_page: Any, written: hs.Trace, size: tuple[int, int]
) -> None:
    opened = open_page(written, size=size)
    opened.page.get_by_role("button", name="▸ Tour").click()
    card, ring = opened.page.locator(".story.card"), opened.page.locator(".ring")
    seen = [state(opened)]
    for step in range(1, 6):
        opened.page.wait_for_timeout(300)
        assert f"{step} / 5" in card.text_content()
        around, beside = ring.bounding_box(), card.bounding_box()
        for box in (around, beside):
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size[0] + 1
            assert box["y"] + box["height"] <= size[1] + 1
        assert around["width"] * around["height"] > 400
        if step == 3:
            assert "switched off now" in card.inner_text(), "the twist comes by step three"
            assert "In this sentence" in card.inner_text() or "hardly" in card.inner_text()
        opened.page.keyboard.press("Space")
        seen.append(state(opened))
    assert card.count() == 0
    assert all(one != other for one, other in itertools.pairwise(seen))


def test_an_exercise_hides_asks_and_scores(open_page: Any, written: hs.Trace) -> None:
    effects = np.abs(written.effects.values.values)  # type: ignore[union-attr]
    layer, head = divmod(int(effects.argmax()), effects.shape[1])
    exercise = [
        ("Which head decides?", {"word": len(written.tokens) - 1}, "effect"),
        ("Which is head 1 of layer 1?", {}, [(1, 1)]),
    ]
    opened = open_page(written, exercise=exercise, fragment="ex=1")
    page = opened.page
    assert "Your turn. Which head decides?" in page.locator(".question").inner_text()
    assert page.locator(".ranking, .legend button").count() == 0, "effects and roles are hidden"
    assert opened.fragment["head"] == "L0H0", "the page does not open on the answer"
    pressed = page.get_by_role("button", name="Your turn")
    paint = "button => getComputedStyle(button).backgroundColor"
    at_rest = pressed.evaluate(paint)
    pressed.hover()
    assert pressed.evaluate(paint) == at_rest, "its white letters need the dark ground"
    page.mouse.move(0, 0)
    page.locator(f"[data-head=L{layer}H{head}]").click()
    page.get_by_role("button", name="Show the answer").click()
    bar = page.locator(".turn-bar")
    assert "3 / 3" in bar.inner_text()
    assert f"Without L{layer} H{head}" in bar.inner_text()
    assert page.locator(".ranking").count() > 0
    bar.get_by_role("button", name="Next").click()
    page.locator("[data-head=L0H0]").click()
    page.get_by_role("button", name="Show the answer").click()
    assert "0 / 3" in bar.inner_text()
    assert "It is L1 H1" in bar.inner_text()
    assert "score 3 of 6" in bar.inner_text()
    bar.get_by_role("button", name="Done").click()
    assert bar.count() == 0


def test_a_long_text_has_a_strip_and_chips(open_page: Any, make_trace: Any) -> None:
    trace = make_trace(300, layers=2, heads=2, causal=True)
    opened = open_page(trace, fragment="head=L1H1&word=250")
    page = opened.page
    shown = page.locator(".stage .tok").count()
    assert shown < 80, "only what is in view is in the document"
    assert page.locator(".tok.pin").count() == 1
    row = trace.attention.values[1, 1, 250]
    first = int(page.locator(".stage .tok").first.get_attribute("data-at").removeprefix("query"))
    far = next(i for i in np.argsort(-row) if 0 < i < first)
    chips = page.locator(".edge-chip")
    assert f"{row[far]:.2f} {250 - far} back" in " ".join(chips.first.inner_text().split())
    chips.first.click()
    assert page.locator(f".stage [data-at=query{far}]").count() == 1
    assert "pinned" in page.locator(".edge-chip.here").inner_text(), "the pinned word stays in view"


def test_a_filter_that_hides_everything_says_so(open_page: Any) -> None:
    n = 120
    weights = np.tril(np.ones((1, 1, n, n), dtype=np.float32))
    weights /= weights.sum(-1, keepdims=True)
    trace = hs.Trace.from_arrays(weights, [f"w{i}" for i in range(n)])
    opened = open_page(trace, fragment="head=L0H0&word=119")
    assert "nothing above 0.02" in opened.caption
    opened.page.get_by_role("button", name="show all").first.click()
    assert "filter" in opened.fragment
    opened.page.get_by_role("tab", name="Matrix").click()
    assert "scaled ×" in opened.page.locator(".wl").inner_text()


def test_a_link_to_a_question_hides_the_answer_on_an_open_page(
    open_page: Any, written: hs.Trace
) -> None:
    page = open_page(written).page
    badge = page.locator(".title .badge").first
    assert "L0 H0" not in badge.inner_text()
    page.evaluate("location.hash = 'ex=1'")
    page.get_by_text("colors are hidden while you guess").wait_for()
    assert "L0 H0" in badge.inner_text()


@pytest.mark.parametrize("clipboard", ["there", "missing", "refuses"])
def test_the_link_to_a_question_is_copied(
    open_page: Any, written: hs.Trace, clipboard: str
) -> None:
    page = open_page(written, fragment="ex=1").page
    page.evaluate(
        """(state) => {
          window.sent = [];
          const writeText = async (text) => {
            if (state === "refuses") throw new Error("refused");
            window.sent.push(text);
          };
          const value = state === "missing" ? undefined : { writeText };
          Object.defineProperty(navigator, "clipboard", { value });
          document.addEventListener("copy", () => window.sent.push(String(getSelection())));
        }""",
        clipboard,
    )
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="copied").wait_for()
    sent = page.evaluate("window.sent")
    assert len(sent) == 1
    assert clipboard != "there" or sent[0].endswith("#ex=1")
