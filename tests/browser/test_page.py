"""What a reader does with the offline page."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.results.trace import Block, Trace, attention_dataset
from headscope.text.tokens import Tokens

SIZES = [(1440, 900), (1024, 768), (720, 450), (390, 844)]


def shows(text: str, number: float) -> bool:
    """Whether `text` has a number within 0.001 of this one."""
    found = re.findall(r"[−-]?\d+\.\d{3,}", text)
    return any(abs(float(one.replace("−", "-")) - number) <= 0.001 for one in found)


def inside(opened: Any, script: str) -> Any:
    """What a script says inside the explorer's root."""
    root = "const root = document.querySelector('#headscope').shadowRoot;"
    return opened.page.evaluate(f"(() => {{ {root} {script} }})()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_collapses_at_any_size(
    open_page: Any, trace: Any, size: tuple[int, int], scheme: str
) -> None:
    width, height = size
    opened = open_page(trace, fragment="head=L1H2&word=3", size=size, scheme=scheme)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".stage .tok").count() == 12
    if width <= 600:
        assert page.locator(".panes > section").count() == 1
        assert page.get_by_role("navigation").is_visible()
        assert opened.token("query", 3).bounding_box()["height"] >= 32
    else:
        assert page.get_by_role("grid").is_visible()
        body = page.locator(".head .body").bounding_box()
        assert body["height"] >= 180
        assert body["y"] + body["height"] <= height
        assert page.get_by_role("gridcell").count() == 16
    effect = page.locator(".effect")
    assert effect.is_visible() == (width > 1100)
    if 600 < width <= 1100:
        page.get_by_role("tab", name="Effect").click()
        assert effect.is_visible()
    ink, paper = (
        inside(opened, f"return getComputedStyle(root.querySelector('.root')).{name}")
        for name in ("color", "backgroundColor")
    )
    brightness = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (ink, paper)]
    assert (brightness[0] > brightness[1]) == (scheme == "dark")


def test_hover_previews_and_click_pins(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=")
    weights = trace.attention.values[1, 2, 3]
    best = int(weights.argmax())
    before = opened.page.locator(".columns").bounding_box()
    opened.token("query", 3).hover()
    assert shows(opened.tooltip, weights[best])
    assert "query 3" in opened.tooltip
    assert opened.caption.startswith(f"{trace.tokens[3]} reads from")
    assert f"{weights[best]:.2f}" in opened.caption
    assert opened.page.locator(".columns").bounding_box() == before
    assert not opened.fragment.get("word")
    opened.token("query", 3).click()
    assert opened.fragment["word"] == "3"
    opened.page.mouse.move(5, 5)
    numbers = opened.page.locator(".words.key .share").all_inner_texts()
    shown = sorted((round(float(w), 2) for w in weights if w >= 0.005), reverse=True)
    assert sorted(map(float, numbers), reverse=True) == pytest.approx(shown, abs=0.011)
    opened.token("key", 5).hover()
    assert "key 5" in opened.tooltip
    assert shows(opened.tooltip, trace.attention.values[1, 2, :, 5].max())
    opened.token("query", 3).click()
    assert not opened.fragment.get("word")


def test_what_a_caption_leaves_out_is_summed(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=3")
    numbers = [float(n) for n in re.findall(r"\d\.\d\d", opened.caption)]
    assert "together" in opened.caption
    assert sum(numbers) == pytest.approx(1, abs=0.03)


def test_the_sentence_shows_what_the_head_shows(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=")
    word = opened.page.locator(".stage [data-at=query4]")
    word.hover()
    assert opened.caption.startswith(trace.tokens[4])
    seen = int((trace.attention.values[1, 2, 4] >= 0.02).sum())
    assert opened.page.locator(".stage .arcs path").count() == seen
    word.click()
    assert opened.token("query", 4).get_attribute("aria-selected") == "true"
    assert opened.page.locator(".stage .band").count() == 2  # A and B


def test_a_link_reopens_where_it_was(open_page: Any, trace: Any) -> None:
    fragment = "head=L2H1&word=4&tab=matrix&color=spread&filter=above:0.1,pairs:ab"
    opened = open_page(trace, fragment=fragment)
    assert opened.page.get_by_role("tab", name="Matrix").get_attribute("aria-selected") == "true"
    assert "L2 H1" in opened.title
    assert "A→B" in opened.page.get_by_role("button", name="Filter").inner_text()
    assert opened.fragment == dict(part.split("=") for part in fragment.split("&"))


def test_a_fragment_that_makes_no_sense_is_put_right(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L99H77&tab=nonsense&word=-1&filter=above:oops")
    assert "L0 H0" in opened.title


def test_python_says_where_to_open(open_page: Any, trace: Any) -> None:
    assert "L3 H2" in open_page(trace, selection="head=L3H2").title


def test_arrows_walk_through_layers_and_heads(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L0H0")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        opened.page.keyboard.press(key)
    assert opened.fragment["head"] == "L1H1"
    cell = opened.page.get_by_role("gridcell", name="L1 H1")
    cell.focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.wait_for_timeout(60)
    assert inside(opened, "return root.activeElement.dataset.head") == "L1H2"


def test_words_by_keyboard(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=0")
    opened.token("query", 0).focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        opened.page.keyboard.press(key)
    assert opened.fragment["word"] == "2"
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press(".")
    assert opened.fragment["word"] == "0"


def test_a_thumbnail_says_what_it_is_and_opens(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    cell = opened.page.get_by_role("gridcell", name="L1 H2")
    cell.hover()
    said = opened.page.locator(".magnifier").inner_text()
    assert "L1 H2" in said
    assert "words" in said
    cell.click()
    assert opened.fragment["head"] == "L1H2"
    assert cell.get_attribute("aria-selected") == "true"


def roles_trace() -> Trace:
    """Two layers of two heads: previous token, current token, first token, broad."""
    n = 8
    previous, same, first = np.eye(n, k=-1), np.eye(n), np.zeros((n, n))
    previous[0, 0] = first[:, 0] = 1
    weights = np.stack([previous, same, first, np.full((n, n), 1 / n)]).reshape(2, 2, n, n)
    return Trace.from_arrays(
        weights.astype(np.float32), ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    )


def test_roles_have_a_name_a_sign_and_a_filter(open_page: Any) -> None:
    opened = open_page(roles_trace(), fragment="head=L0H0")
    legend = opened.page.locator(".legend")
    assert "previous token 1" in " ".join(legend.inner_text().split())
    assert "roles in this text" in legend.inner_text()
    assert "reads the token before" in opened.title
    assert "←" in opened.page.locator(".badge").inner_text()
    opened.page.get_by_role("button", name="current token").click()
    assert opened.fragment["role"] == "current_token"
    assert opened.page.locator(".cell.dim").count() == 3
    opened.page.get_by_role("button", name="current token").click()
    assert opened.page.locator(".cell.dim").count() == 0
    opened.page.get_by_role("gridcell", name="L1 H0").click()
    assert "attention sink" in opened.title
    opened.page.get_by_label("Color heads by").select_option("distance")
    assert "tokens" in opened.page.locator(".legend.scale").inner_text()


def test_keys_that_heads_share_are_bracketed(open_page: Any, make_trace: Any) -> None:
    opened = open_page(make_trace(groups=2, causal=True))
    assert opened.page.locator(".brk").count() == 2
    assert open_page(make_trace()).page.locator(".brk").count() == 0


def test_special_tokens_are_hidden_and_rows_rescaled(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H0&word=3")
    assert opened.page.locator(".words.query .word.sp").count() == 3  # dimmed
    opened.page.keyboard.press("s")
    assert opened.fragment["filter"] == "specials:hidden"
    assert opened.page.locator(".words.query .word").count() == 9
    row = trace.attention.values[1, 0, 3].copy()
    row[[0, 5, 11]] = 0
    row /= row.sum()
    opened.token("query", 3).hover()
    assert shows(opened.tooltip, row.max())


def test_words_sum_to_and_average_from(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L0H0")
    opened.page.keyboard.press("w")
    words = trace.by_word()
    assert opened.page.locator(".words.query .word").count() == len(words.tokens)
    opened.token("query", 2).hover()
    row = words.attention.values[0, 0, words.tokens.index("brownfox")]
    assert shows(opened.tooltip, row.max())


def test_the_filter_says_what_is_on_and_takes_it_back(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L0H0&word=3")
    button = opened.page.get_by_role("button", name="Filter")
    button.click()
    dialog = opened.page.get_by_role("dialog", name="What is drawn")
    dialog.get_by_role("button", name="A→B").click()
    assert opened.page.locator(".words.key .word").first.inner_text().startswith(trace.tokens[6])
    dialog.get_by_role("button", name="layer").click()
    opened.token("query", 3).hover()
    mean = trace.attention.values[0].mean(axis=0)[3, 6:]
    assert shows(opened.tooltip, mean.max())
    assert "A→B, mean of the layer" in button.inner_text()
    dialog.get_by_role("button", name="Clear").click()
    assert "filter" not in opened.fragment
    opened.page.keyboard.press("Escape")
    assert not dialog.is_visible()


@pytest.mark.parametrize(("groups", "causal"), [(None, False), (2, True)])
def test_neurons_add_up(open_page: Any, make_trace: Any, groups: Any, causal: bool) -> None:
    trace = make_trace(groups=groups, causal=causal)
    opened = open_page(trace, fragment="head=L2H1&word=7&key=3&tab=neurons", neurons=True)
    text = opened.page.locator(".worked").inner_text()
    block = trace.main
    group = int(block.data["group_of_head"].values[1])
    q, k = block.queries.values[2, 1, 7], block.keys.values[2, group, 3]
    dot, score = float(q @ k), float(q @ k) / np.sqrt(8)
    assert f"= {dot:.2f}".replace("-", "−") in text
    assert f"{score:.2f}".replace("-", "−") in text
    assert shows(text, trace.attention.values[2, 1, 7, 3])
    opened.page.get_by_role(
        "option", name=re.compile("^dog: q·k" if causal else "^lazy: q·k")
    ).first.focus()
    strips = opened.page.locator(".strips").bounding_box()
    opened.page.mouse.move(strips["x"] + strips["width"] * 0.55, strips["y"] + 30)
    assert re.search(r"neuron \d", opened.tooltip)


def test_neurons_say_when_there_is_nothing(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H0&tab=neurons", neurons=False)
    assert "not in this file" in opened.page.locator(".neurons .note").inner_text()
    assert "headscope serve" in opened.page.locator(".neurons .note").inner_text()


def test_the_matrix_is_the_default_of_long_texts(open_page: Any, make_trace: Any) -> None:
    opened = open_page(make_trace(80), fragment="head=L1H2&word=70")
    assert opened.page.get_by_role("tab", name="Matrix").get_attribute("aria-selected") == "true"
    pinned = opened.page.locator(".stage .tok.pin").bounding_box()
    assert 0 <= pinned["x"] <= 1440  # one line that scrolls there
    opened.page.get_by_role("button", name="Magnify").click()
    assert opened.page.locator(".minimap").is_visible()
    opened.page.get_by_role("button", name="fit").click()
    assert not opened.page.locator(".minimap").is_visible()


def test_the_matrix_by_keyboard_and_pointer(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H0&tab=matrix&word=")
    area = opened.page.get_by_role("application")
    area.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        opened.page.keyboard.press(key)
    label = str(area.get_attribute("aria-label"))
    assert f"{trace.tokens[2]} reads {trace.tokens[1]}" in label
    assert shows(label, trace.attention.values[1, 0, 2, 1])
    opened.page.keyboard.press("Enter")
    assert (opened.fragment["word"], opened.fragment["key"]) == ("2", "1")
    ranked = opened.page.locator(".ranking").first.locator(".rank").first
    best = np.unravel_index(trace.attention.values[:, :, 2, 1].argmax(), (4, 4))
    assert f"L{best[0]} H{best[1]}" in ranked.inner_text()  # all heads by that weight
    box = area.bounding_box()
    opened.page.mouse.move(box["x"] + 160, box["y"] + 160)
    assert "→" in opened.tooltip


def test_theme_can_be_set(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    opened.page.keyboard.press("t")
    opened.page.keyboard.press("t")
    assert opened.fragment["theme"] == "dark"
    assert inside(opened, "return root.querySelector('.root').dataset.theme") == "dark"


def test_two_traces_stand_side_by_side(open_page: Any, make_trace: Any) -> None:
    first, second = make_trace(seed=1), make_trace(seed=2)
    opened = open_page(first, second, fragment="head=L0H0&word=3")
    assert opened.page.locator(".stage .flow").count() == 2
    tops = [line.bounding_box()["y"] for line in opened.page.locator(".stage .toks").all()]
    assert tops[0] < tops[1], "A stands over B"
    for letter, trace in (("A", first), ("B", second)):
        assert f"{letter}" in opened.caption
        assert f"{trace.attention.values[0, 0, 3].max():.2f}" in opened.caption
    narrow = open_page(first, second, fragment="head=L0H0&word=3", size=(1024, 768))
    assert narrow.page.locator(".stage .flow").count() == 1
    narrow.page.get_by_role("button", name="B", exact=True).click()
    assert f"{second.attention.values[0, 0, 3].max():.2f}" in narrow.caption


def test_a_story_is_told_by_steps(open_page: Any, trace: Any) -> None:
    from headscope.page.payload import Contents, make_payload
    from headscope.page.save_page import make_page

    story = [("First this.", "head=L1H1&word=2"), ("Then that.", "head=L2H3&tab=matrix")]
    page = make_page(make_payload([trace], Contents(story=story)))
    opened = open_page(html=page)
    bar = opened.page.locator(".story")
    bar.get_by_role("button", name="Start, 2 steps").click()
    assert "First this." in bar.inner_text()
    assert (opened.fragment["story"], opened.fragment["head"]) == ("1", "L1H1")
    opened.page.keyboard.press("Space")
    assert "Then that." in bar.inner_text()
    assert opened.page.get_by_role("application").is_visible()
    opened.page.keyboard.press("Escape")
    assert not bar.is_visible()
    embedded = open_page(html=page, fragment="embed=1&story=1")
    assert embedded.page.locator(".bar, .story").count() == 0
    assert embedded.page.locator(".stage").is_visible()


def test_a_file_says_what_it_cannot_do(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    effect = opened.page.locator(".effect")
    assert "A saved file cannot run the model" in effect.inner_text()
    assert "headscope serve" in effect.inner_text()
    assert "Not measured" in effect.inner_text()
    opened.page.get_by_role("tab", name="Evidence").click()
    assert "headscope analyze" in opened.page.locator(".evidence").inner_text()


def test_a_phone_shows_a_pane_and_a_sheet(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L1H2&word=", size=(390, 844))
    opened.page.locator(".stage [data-at=query3]").click()
    sheet = opened.page.get_by_role("dialog")
    assert f"{trace.tokens[3]} reads from" in " ".join(sheet.inner_text().split())
    opened.page.get_by_role("button", name="Next word").click()
    assert opened.fragment["word"] == "4"
    sheet.get_by_role("button", name="Close").click()
    opened.page.get_by_role("button", name="Heads", exact=True).click()
    assert opened.fragment["pane"] == "1"
    opened.page.get_by_role("gridcell", name="L2 H0").click()
    assert (opened.fragment["head"], "pane" in opened.fragment) == ("L2H0", False)


def test_encoder_decoder(open_page: Any) -> None:
    rng = np.random.default_rng(0)
    encoder, decoder = Tokens.of(["a", "b", "c", "d"]), Tokens.of(["x", "y", "z"])

    def block(name: Any, queries: Tokens, keys: Tokens) -> Block:
        weights = rng.dirichlet(np.ones(len(keys)), size=(2, 3, len(queries)))
        data = attention_dataset(weights.astype(np.float32), [0, 1])
        return Block(name, data, queries, keys, is_causal=False)

    blocks = {
        "encoder": block("encoder", encoder, encoder),
        "decoder": block("decoder", decoder, decoder),
        "cross": block("cross", decoder, encoder),
    }
    opened = open_page(Trace(blocks, {"encoder": encoder, "decoder": decoder}))
    opened.page.get_by_label("Attention", exact=True).select_option("cross")
    read = [
        [word.inner_text() for word in opened.page.locator(f".words.{side} bdi").all()]
        for side in ("query", "key")
    ]
    assert read == [["x", "y", "z"], ["a", "b", "c", "d"]]
    assert opened.page.locator(".stage .tok").count() == 7


def test_generated_tokens_are_marked(open_page: Any, make_trace: Any) -> None:
    opened = open_page(make_trace(causal=True, generated=3))
    assert opened.page.locator(".words.query .word.written").count() == 3
    assert opened.page.locator(".stage .tok.written").count() == 3


def test_right_to_left_text_runs_right_to_left(open_page: Any) -> None:
    words = ["שלום", "עולם", "טוב", "מאוד"]
    opened = open_page(Trace.from_arrays(np.full((1, 1, 4, 4), 0.25), words))
    places = [tok.bounding_box()["x"] for tok in opened.page.locator(".stage .tok").all()]
    assert places == sorted(places, reverse=True)


def test_help(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="head=L0H0&word=3")
    opened.page.keyboard.press("?")
    dialog = opened.page.get_by_role("dialog", name="Help")
    assert "previous token" in dialog.inner_text()
    opened.page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert opened.fragment["word"] == "3"


def test_a_page_of_bare_attention_claims_only_what_it_knows(open_page: Any) -> None:
    weights = np.full((2, 2, 3, 3), 1 / 3, dtype=np.float32)
    opened = open_page(hs.Trace.from_arrays(weights, ["The", "cat", "sat"]))
    said = opened.page.locator(".page").inner_text()
    for tab in ("Neurons", "Evidence"):
        opened.page.get_by_role("tab", name=tab).click()
        said += opened.page.locator(".page").inner_text()
    assert "made from attention alone" in said
    assert "of attention read" not in said
    for claim in ("headscope serve", "headscope analyze", "view --effects", "writes no words"):
        assert claim not in said
