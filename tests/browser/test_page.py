"""What a reader does with the offline page."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from headscope.results.trace import Block, Trace, attention_dataset
from headscope.text.tokens import Tokens

SVG = "{http://www.w3.org/2000/svg}"


def shows(text: str, number: float) -> bool:
    """Whether `text` has a number within 0.001 of this one."""
    found = re.findall(r"[−-]?\d+\.\d{3,}", text)
    return any(abs(float(one.replace("−", "-")) - number) <= 0.001 for one in found)


def test_opens_with_all_views_and_asks_for_nothing(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    assert opened.page.locator(".pane.model").is_visible()
    assert opened.page.locator(".pane.head").is_visible()
    assert opened.page.locator(".token").count() == 24
    assert "L0 H0" in opened.status


def test_hover_shows_the_weights(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="layer=1&heads=2")
    opened.token("query", 3).hover()
    weights = trace.attention.values[1, 2, 3]
    best = int(weights.argmax())
    assert shows(opened.tooltip, weights[best])
    assert "query 3" in opened.tooltip
    assert "row entropy" in opened.status
    opened.token("key", 5).hover()
    assert "key 5" in opened.tooltip
    assert shows(opened.tooltip, trace.attention.values[1, 2, :, 5].max())


def test_click_pins_and_several_pins_are_summed(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head")
    opened.token("query", 3).click()
    assert opened.fragment["queries"] == "3"
    assert opened.token("query", 3).get_attribute("aria-selected") == "true"
    opened.token("query", 4).click()
    assert opened.fragment["queries"] == "3,4"
    opened.page.mouse.move(700, 20)
    assert "2 queries pinned, attention summed" in opened.status
    opened.token("query", 3).click()
    assert opened.fragment["queries"] == "4"
    opened.page.keyboard.press("Escape")
    assert "queries" not in opened.fragment


def test_a_pinned_token_stays_in_sight(open_page: Any, make_trace: Any) -> None:
    opened = open_page(make_trace(60), fragment="view=all")

    def is_seen() -> bool:
        token = opened.token("query", 50).bounding_box()
        pane = opened.page.locator(".panel .scroller").bounding_box()
        return bool(pane["y"] <= token["y"] <= pane["y"] + pane["height"] - token["height"])

    opened.token("query", 50).click()  # the neuron pane takes room from the head pane
    assert opened.page.locator(".pane.neurons").is_visible()
    assert is_seen()
    opened = open_page(make_trace(60), fragment="queries=50")
    assert is_seen()


def test_a_link_reopens_where_it_was(open_page: Any, trace: Any) -> None:
    opened = open_page(
        trace, fragment="view=head&layer=2&heads=1,3&queries=4&pair=ab&threshold=0.1&top=3"
    )
    pressed = opened.page.locator(".chip[aria-pressed=true]")
    assert [chip.inner_text() for chip in pressed.all()] == ["1", "3"]
    assert opened.page.locator(".tokens.query .token").count() == 6
    assert opened.page.locator(".tokens.key .token").count() == 6
    assert opened.token("query", 4).get_attribute("aria-selected") == "true"


def test_a_fragment_that_makes_no_sense_is_put_right(open_page: Any, trace: Any) -> None:
    opened = open_page(
        trace, fragment="layer=99&heads=77,x&view=nonsense&queries=-1&threshold=oops"
    )
    assert "L0 H0" in opened.status


def test_python_says_where_to_open(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, selection="view=head&layer=3&heads=2")
    assert "L3 H2" in opened.status


def test_arrows_walk_through_layers_and_heads(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        opened.page.keyboard.press(key)
    assert (opened.fragment["layer"], opened.fragment["heads"]) == ("1", "1")
    opened.page.keyboard.press("Shift+ArrowRight")
    assert opened.fragment["heads"] == "1,2"
    opened.page.keyboard.press("a")
    assert opened.fragment["heads"] == "0,1,2,3"


def test_tokens_by_keyboard(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head")
    opened.page.locator(".tokens.query").focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("ArrowDown")
    assert "brown" in opened.status
    opened.page.keyboard.press("Enter")
    assert opened.fragment["queries"] == "2"


def focus_of(opened: Any) -> str:
    inside = "document.querySelector('#headscope').shadowRoot.activeElement"
    return str(opened.page.evaluate(f"{inside}?.ariaLabel ?? {inside}?.textContent ?? ''"))


def test_matrix_by_keyboard(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head&form=matrix&layer=1")
    opened.page.get_by_role("button", name="Matrix").focus()
    opened.page.keyboard.press("Tab")
    assert "Attention matrix" in focus_of(opened)
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        opened.page.keyboard.press(key)
    assert f"{trace.tokens[1]} → {trace.tokens[1]}" in opened.tooltip
    assert f"{trace.tokens[1]} → {trace.tokens[1]}" in opened.status
    assert shows(opened.tooltip, trace.attention.values[1, 0, 1, 1])
    assert opened.fragment["layer"] == "1"
    opened.page.keyboard.press("Enter")
    assert opened.fragment["queries"] == "1"
    opened.page.keyboard.press("Escape")
    assert "queries" not in opened.fragment
    assert opened.page.locator(".tooltip").is_hidden()


def test_neurons_by_keyboard(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="queries=7&layer=1")
    opened.page.locator(".neuron-body .scroller").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        opened.page.keyboard.press(key)
    equation = opened.page.locator(".equation").inner_text()
    assert f"{trace.tokens[7]} → {trace.tokens[2]} " in equation
    opened.page.keyboard.press("Enter")
    assert opened.fragment == {"queries": "7", "layer": "1", "keys": "2"}
    opened.page.keyboard.press("Escape")
    assert opened.fragment == {"layer": "1"}
    opened.page.keyboard.press("ArrowDown")  # the pane is closed: the arrows are the explorer's
    assert opened.fragment == {"layer": "2"}


def test_search_finds_and_pins(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("lazy")
    assert opened.page.locator(".token.found").count() == 2
    opened.page.keyboard.press("Enter")
    assert opened.fragment["queries"] == "7"
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(".token.found").count() == 0


def test_chips_toggle_and_isolate(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    chip = opened.page.locator(".chip")
    chip.nth(2).click()
    assert opened.fragment["heads"] == "0,2"
    chip.nth(3).dblclick()
    assert opened.fragment["heads"] == "3"


def test_a_thumbnail_opens_its_head(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    box = opened.page.locator(".thumbs .stage").bounding_box()
    step = (box["width"] - 38) / 4
    opened.page.mouse.move(box["x"] + 30 + 2.4 * step, box["y"] + 20 + 1.4 * step)
    assert "L1 H2" in opened.tooltip
    assert "entropy" in opened.tooltip
    opened.page.mouse.down()
    opened.page.mouse.up()
    assert (opened.fragment["layer"], opened.fragment["heads"]) == ("1", "2")


def test_special_tokens_are_hidden_and_rows_renormalized(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head&layer=1")
    opened.page.keyboard.press("s")
    assert opened.fragment["specials"] == "0"
    assert opened.page.locator(".tokens.query .token").count() == 9
    row = trace.attention.values[1, 0, 3].copy()
    row[[0, 5, 11]] = 0
    row /= row.sum()
    opened.token("query", 3).hover()
    assert shows(opened.tooltip, row.max())


def test_words_sum_to_and_average_from(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head")
    opened.page.keyboard.press("w")
    words = trace.by_word()
    assert opened.page.locator(".tokens.query .token").count() == len(words.tokens)
    opened.token("query", 2).hover()
    row = words.attention.values[0, 0, words.tokens.index("brownfox")]
    assert shows(opened.tooltip, row.max())


def test_mean_and_maximum(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head&combine=mean&over=heads")
    opened.token("query", 3).hover()
    mean = trace.attention.values[0].mean(axis=0)[3]
    assert shows(opened.tooltip, mean.max())
    opened.page.locator("select[aria-label=Combine]").select_option("max/both")
    assert opened.fragment["combine"] == "max"
    assert "all 4 layers" in opened.page.locator(".head .caption").inner_text()


@pytest.mark.parametrize(("groups", "causal"), [(None, False), (2, True)])
def test_neuron_view_adds_up(open_page: Any, make_trace: Any, groups: Any, causal: bool) -> None:
    trace = make_trace(groups=groups, causal=causal)
    opened = open_page(trace, fragment="view=neurons&layer=2&heads=1&queries=7&keys=3")
    text = opened.page.locator(".equation").inner_text()
    block = trace.main
    group = int(block.data["group_of_head"].values[1])
    q, k = block.queries.values[2, 1, 7], block.keys.values[2, group, 3]
    dot, score = float(q @ k), float(q @ k) / np.sqrt(8)
    assert f"= {dot:.2f}".replace("-", "−") in text
    assert f"{score:.2f}".replace("-", "−") in text
    assert shows(text, trace.attention.values[2, 1, 7, 3])
    opened.page.get_by_text("By contribution").click()
    assert opened.fragment["order"] == "contribution"
    canvas = opened.page.locator(".neuron-body .scroller").bounding_box()
    opened.page.mouse.move(canvas["x"] + 200, canvas["y"] + 30)
    assert re.search(r"neuron \d", opened.tooltip)


def test_neuron_view_says_when_there_is_nothing(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=neurons", neurons=False)
    assert "no queries and keys" in opened.page.locator(".neurons .empty").inner_text()
    opened = open_page(trace, fragment="view=neurons&layer=1", neurons=[0])
    assert "layers 0 only" in opened.page.locator(".neurons .empty").inner_text()


def test_pair_filter(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="view=head")
    opened.page.get_by_role("button", name="A→B").click()
    assert opened.fragment["pair"] == "ab"
    first = opened.page.locator(".tokens.query .token").first.inner_text()
    key = opened.page.locator(".tokens.key .token").first.inner_text()
    assert (first, key) == ("[CLS]", trace.tokens[6])


def test_threshold_and_matrix_by_keyboard(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    opened.page.keyboard.press("]")
    assert opened.fragment["threshold"] == "0.05"
    opened.page.keyboard.press("m")
    assert opened.page.get_by_role("img", name="Attention of H0 as a matrix").is_visible()
    box = opened.page.locator(".panel .scroller").bounding_box()
    opened.page.mouse.move(box["x"] + 120, box["y"] + 120)
    assert "→" in opened.tooltip


def test_theme_follows_the_system_and_can_be_set(open_page: Any, trace: Any) -> None:
    background = (
        "getComputedStyle(document.querySelector('#headscope')"
        ".shadowRoot.querySelector('.explorer')).backgroundColor"
    )
    dark = open_page(trace, scheme="dark")
    light = open_page(trace)
    assert dark.page.evaluate(background) != light.page.evaluate(background)
    light.page.keyboard.press("t")
    light.page.keyboard.press("t")
    assert light.fragment["theme"] == "dark"
    assert dark.page.evaluate(background) == light.page.evaluate(background)


@pytest.mark.parametrize("view", ["model", "head", "neurons"])
@pytest.mark.parametrize("form", ["svg", "png"])
def test_export(open_page: Any, trace: Any, view: str, form: str) -> None:
    opened = open_page(trace, fragment=f"view={view}&layer=1")
    with opened.page.expect_download() as waiting:
        opened.page.get_by_role("button", name=form.upper()).click()
    data = waiting.value.path().read_bytes()
    if form == "png":
        assert data.startswith(b"\x89PNG")
        assert len(data) > 3000
    else:
        text = data.decode()
        assert text.startswith("<svg")
        if view != "model":
            assert ">brown</text>" in text


def test_export_of_all_views_has_them_one_below_another(
    open_page: Any, trace: Any, make_trace: Any
) -> None:
    def exported(opened: Any) -> ET.Element:
        with opened.page.expect_download() as waiting:
            opened.page.get_by_role("button", name="SVG").click()
        return ET.fromstring(waiting.value.path().read_text("utf-8"))

    def heights(root: ET.Element, *titles: str) -> list[float]:
        places = {element.text: float(element.get("y", "")) for element in root.iter(f"{SVG}text")}
        return [places[title] for title in titles]

    opened = open_page(trace, fragment="layer=1&heads=2&queries=3&color=entropy")
    root = exported(opened)
    titles = ("synthetic · L1 H2", "Model view: all heads", "Head view: L1 H2")
    found = heights(root, *titles, "Neuron view: L1 H2", "state after L1")
    assert found == sorted(found)
    assert found[-1] < float(root.get("height", ""))
    assert len(root.findall(f"{SVG}image")) == 16 + 1 + 6 + 2  # heads, scale, neurons, states
    opened.page.keyboard.press("Escape")
    texts = [element.text or "" for element in exported(opened).iter(f"{SVG}text")]
    assert "Head view: L1 H2" in texts
    assert not any(text.startswith("Neuron view") for text in texts)
    opened = open_page(trace, make_trace(seed=1), titles=["before", "after"])
    root = exported(opened)
    assert heights(root, "before") == heights(root, "after")


def test_export_of_all_views_as_a_picture(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="queries=3")
    with opened.page.expect_download() as waiting:
        opened.page.get_by_role("button", name="PNG").click()
    width, height = struct.unpack(">II", waiting.value.path().read_bytes()[16:24])
    assert width == 2 * 1440
    assert height > 2 * 700


def test_compare_two_traces(open_page: Any, make_trace: Any) -> None:
    first, second = make_trace(seed=1), make_trace(seed=2)
    opened = open_page(first, second, titles=["before", "after"])
    titles = opened.page.locator(".panel h2")
    assert [title.inner_text() for title in titles.all()] == ["before", "after"]
    opened.page.get_by_role("button", name="Difference").click()
    opened.page.locator(".tokens.query .token").nth(3).hover()
    change = (second.attention.values - first.attention.values)[0, 0, 3]
    largest = change[np.abs(change).argmax()]
    assert shows(opened.tooltip, largest)


def test_traces_of_different_length_have_no_difference(open_page: Any, make_trace: Any) -> None:
    opened = open_page(make_trace(10), make_trace(12))
    assert opened.page.get_by_role("button", name="Difference").is_disabled()
    assert opened.page.locator(".panel").count() == 2


def test_a_difference_is_explained_where_there_is_one(open_page: Any) -> None:
    def made(texts: list[str], special: list[bool]) -> Trace:
        n = len(texts)
        tokens = Tokens.of(texts, special=special)
        data = attention_dataset(np.full((1, 2, n, n), 1 / n, dtype=np.float32), [0])
        block = Block("self", data, tokens, tokens, is_causal=False)
        return Trace({"self": block}, {"self": tokens})

    first = made(["[CLS]", "a", "b"], [True, False, False])
    opened = open_page(first, made(["a", "b"], [False, False]))
    button = opened.page.get_by_role("button", name="Difference")
    assert "differ in their number" in button.get_attribute("title")
    opened.page.keyboard.press("s")
    assert button.is_enabled()
    assert button.get_attribute("title") == "The second minus the first"


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
    opened.page.get_by_role("button", name="Cross").click()
    read = [
        [token.inner_text() for token in opened.page.locator(f".tokens.{side} .token").all()]
        for side in ("query", "key")
    ]
    assert read == [["x", "y", "z"], ["a", "b", "c", "d"]]


def test_generated_tokens_are_marked(open_page: Any, make_trace: Any) -> None:
    opened = open_page(make_trace(causal=True, generated=3))
    assert opened.page.locator(".tokens.query .token.generated").count() == 3


def test_help(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, fragment="queries=3")
    dialog = opened.page.get_by_role("dialog")
    opened.page.keyboard.press("?")
    assert dialog.is_visible()
    opened.page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert opened.fragment == {"queries": "3"}


def test_help_keeps_the_focus_and_gives_it_back(open_page: Any, trace: Any) -> None:
    opened = open_page(trace)
    button = opened.page.get_by_role("button", name="? Keyboard and help")
    button.focus()
    opened.page.keyboard.press("Enter")
    dialog = opened.page.get_by_role("dialog")
    assert dialog.evaluate("(element) => element.matches(':modal')")
    for key in ("Tab", "Tab", "ArrowDown"):
        opened.page.keyboard.press(key)
        assert focus_of(opened) in ("Close", "")
    assert opened.fragment == {}
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()
    assert focus_of(opened) == "? Keyboard and help"


def test_narrow_pages_stack(open_page: Any, trace: Any) -> None:
    opened = open_page(trace, size=(420, 800))
    model = opened.page.locator(".pane.model").bounding_box()
    head = opened.page.locator(".pane.head").bounding_box()
    assert head["y"] >= model["y"] + model["height"] - 1
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 420
