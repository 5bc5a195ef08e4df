"""The lab in Chromium: type a text, compare two, edit the model, see what follows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headscope.app.lab.jobs import QueueFull
from headscope.app.lab.server import bind, make_server
from headscope.app.lab.service import LabService
from headscope.model.model import Model
from tests.browser.conftest import collect_garbage


@pytest.fixture
def lab(chromium: Any, tiny_bert: Model, tiny_llama: Model) -> Iterator[Any]:
    service = LabService({"llama": tiny_llama, "bert": tiny_bert}, "the cat sat on the mat")
    server = make_server(service, "127.0.0.1")
    socket = bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://127.0.0.1:{socket.getsockname()[1]}/")
    page.wait_for_selector("html[data-ready=true]")
    yield page
    context.close()
    server.should_exit = True
    thread.join()
    assert problems == []


def read(page: Any, *texts: str) -> None:
    """Let the model read one text, or compare two."""
    page.get_by_role("button", name="Models and pairs").click()
    if len(texts) == 2:
        page.get_by_role("button", name="Compare two").click()
    for index, text in enumerate(texts):
        page.locator("textarea").nth(index).fill(text)
    page.get_by_role("button", name="Read it").click()


def arrived(page: Any, part: str) -> None:
    """Wait until the address says that a text was read."""
    page.wait_for_function("(part) => location.hash.includes(part)", arg=part)


def test_a_text_is_typed_and_a_reload_loses_nothing(lab: Any) -> None:
    assert lab.locator(".stage .tok").first.is_visible()
    read(lab, "the dog sat")
    arrived(lab, "text=the%20dog%20sat")
    lab.get_by_role("gridcell", name="L1 H1").click()
    address = lab.url
    lab.reload()
    lab.wait_for_selector("html[data-ready=true]")
    assert "L1 H1" in lab.locator(".badge").inner_text()
    assert lab.url == address


def test_back_returns_to_the_text_before(lab: Any) -> None:
    first = lab.locator(".stage .tok").all_inner_texts()
    read(lab, "the dog sat")
    arrived(lab, "text=the%20dog%20sat")
    lab.go_back()
    lab.wait_for_function(
        "(n) => document.querySelector('.stage > div').shadowRoot"
        ".querySelectorAll('.tok').length === n",
        arg=len(first),
    )
    assert lab.locator(".stage .tok").all_inner_texts() == first


def test_a_new_text_frees_the_old_one(lab: Any) -> None:
    lab.evaluate(
        "window.old = new WeakRef("
        "document.querySelector('.stage > div').shadowRoot.querySelector('.page'))"
    )
    read(lab, "the dog")
    arrived(lab, "text=the%20dog&")
    collect_garbage(lab)
    assert lab.evaluate("old.deref() === undefined")


def test_edits_change_the_prediction_and_are_undone(lab: Any) -> None:
    assert lab.locator(".stage .tok").last.get_attribute("aria-pressed") == "true"
    lab.get_by_role("gridcell", name="L1 H1").click()
    answer = lab.locator(".ghost")
    before = answer.inner_text()
    lab.get_by_role("button", name="Switch L1 H1 off").click()
    lab.locator(".ghost", has_text="→").wait_for()
    assert lab.locator(".cell .off").count() == 1
    assert "Switched off" in lab.locator(".title").inner_text()
    assert "off=L1H1" in lab.url
    lab.get_by_role("gridcell", name="L0 H1").click()
    lab.locator(".slider input").first.fill("0.9")
    lab.locator(".chip", has_text="= 0.9").wait_for()
    assert lab.locator(".chip").count() == 2
    lab.keyboard.press("Control+z")
    assert lab.locator(".chip").count() == 1
    lab.get_by_role("button", name="Remove L1 H1 off").click()
    lab.locator(".ghost", has_text="→").wait_for(state="detached")
    assert lab.locator(".chip").count() == 0
    assert answer.inner_text() == before


def test_the_sentence_is_typed_where_it_stands(lab: Any) -> None:
    lab.get_by_role("button", name="Type in the sentence").click()
    field = lab.get_by_label("The sentence")
    assert field.input_value() == "the cat sat on the mat"
    field.fill("the dog sat on")
    field.press("Enter")
    arrived(lab, "text=the%20dog%20sat%20on")
    assert "dog" in "".join(lab.locator(".stage .tok").all_inner_texts())
    lab.get_by_role("button", name="Type in the sentence").click()
    lab.get_by_label("The sentence").press("Escape")
    assert lab.locator(".stage .tok").count() > 0


def test_heads_are_switched_off_together_and_what_changed_is_colored(lab: Any) -> None:
    lab.get_by_role("gridcell", name="L0 H1").click()
    lab.get_by_role("gridcell", name="L0 H0").click(modifiers=["Shift"])
    lab.get_by_role("button", name="Switch them off together").click()
    lab.locator(".ghost", has_text="→").wait_for()
    assert lab.locator(".cell .off").count() == 2
    lab.get_by_label("Color heads by").select_option("difference")
    assert "differs by" in lab.locator(".legend").inner_text()
    assert "differently" in lab.locator(".effect").inner_text()


def test_a_weight_that_was_set_stays_in_hand(lab: Any) -> None:
    lab.locator(".stage .tok").nth(3).click()
    lab.get_by_role("gridcell", name="L1 H1").click()
    slider = lab.locator(".effect .slider").first
    name = slider.locator("span").inner_text()
    slider.locator("input").fill("0")
    lab.wait_for_selector(".chip")
    lab.wait_for_selector(".title .dn")
    assert slider.locator("span").inner_text() == name
    assert slider.locator("b").inner_text() == "0.00"


def test_heads_are_measured_and_ranked(lab: Any) -> None:
    lab.get_by_role("button", name="Measure all heads").click()
    lab.locator(".effect h2", has_text="Heads behind").wait_for()
    first = lab.locator(".ranking .rank").first
    name = first.locator("span").nth(1).inner_text()
    first.click()
    assert name in lab.locator(".badge").inner_text()
    lab.get_by_label("Color heads by").select_option("effect")
    assert "without the head" in lab.locator(".legend").inner_text()


def test_why_it_looked_there(lab: Any) -> None:
    lab.locator(".stage .tok").last.click()
    lab.get_by_role("tab", name="Neurons").click()
    assert "worked out" in lab.locator(".worked").inner_text()
    lab.get_by_role("button", name="Why did it look there?").click()
    lab.locator(".why table").wait_for()
    assert "it is made of" in lab.locator(".why caption").inner_text()


def test_two_texts_are_compared(lab: Any) -> None:
    read(lab, "the cat sat", "the dog sat")
    lab.locator(".stage .band.b").wait_for()
    assert lab.locator(".panel").count() == 2
    assert "text2=" in lab.url


def test_a_refusal_is_read_on_the_page(lab: Any) -> None:
    read(lab, " ")
    alert = lab.get_by_role("alert")
    alert.wait_for()
    assert "empty" in alert.inner_text()
    lab.locator("textarea").first.fill("the cat")
    lab.get_by_role("button", name="Read it").click()
    alert.wait_for(state="detached")
    assert lab.locator(".stage .tok").count() >= 2


def test_what_a_model_cannot_do_is_not_offered(lab: Any) -> None:
    lab.get_by_role("button", name="Models and pairs").click()
    assert not lab.get_by_label("with a second sentence").is_visible()
    assert lab.get_by_label("write on by").is_visible()
    lab.get_by_label("Model", exact=True).select_option("bert")
    assert lab.get_by_label("with a second sentence").is_visible()
    assert not lab.get_by_label("write on by").is_visible()


def test_the_first_text_is_waited_for_in_words(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the first text is read, the page says so; a refusal shows the form."""
    may_go_on = threading.Event()
    original = LabService.trace

    def trace(service: LabService, reader: str, request: Any) -> Any:
        may_go_on.wait(30)
        return original(service, reader, request)

    monkeypatch.setattr(LabService, "trace", trace)
    lab.reload()
    assert lab.get_by_role("status").first.inner_text() == "The model is reading …"
    may_go_on.set()
    lab.wait_for_selector("html[data-ready=true]")
    assert lab.locator(".stage .tok").first.is_visible()

    def refuse(service: LabService, reader: str, request: Any) -> Any:
        raise QueueFull("The model is busy and 32 requests wait; ask again in about 9 s.", 9)

    monkeypatch.setattr(LabService, "trace", refuse)
    lab.reload()
    lab.wait_for_selector("html[data-ready=true]")
    assert lab.get_by_text("The model is busy and 32 requests wait").is_visible()
    assert lab.locator("textarea").first.is_visible()
