"""The web app in Chromium: type a text, switch heads off, read what went wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headscope.app.lab.server import Desk, make_server
from headscope.model.model import Model
from tests.browser.conftest import collect_garbage


@pytest.fixture
def app(chromium: Any, tiny_bert: Model, tiny_llama: Model) -> Iterator[Any]:
    server = make_server(Desk({"bert": tiny_bert, "llama": tiny_llama}, "the cat sat"), port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    context = chromium.new_context(viewport={"width": 1200, "height": 760})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    page.wait_for_selector("html[data-ready=true]")
    yield page
    context.close()
    server.shutdown()
    server.server_close()
    thread.join()
    assert problems == []


def test_a_text_is_typed_and_shown(app: Any) -> None:
    assert "5 tokens" in str(app.locator(".facts").text_content())
    app.get_by_label("Text", exact=True).fill("the dog sat on the mat")
    app.get_by_label("Second text").fill("the cat")
    app.get_by_role("button", name="Show").click()
    app.locator(".facts", has_text="11 tokens").wait_for(state="attached")


def test_a_new_text_frees_the_old_one(app: Any) -> None:
    app.evaluate(
        "window.old = new WeakRef("
        "document.querySelector('.stage > div').shadowRoot.querySelector('.explorer'))"
    )
    app.get_by_label("Text", exact=True).fill("the dog")
    app.get_by_role("button", name="Show").click()
    app.locator(".facts", has_text="4 tokens").wait_for(state="attached")
    collect_garbage(app)
    assert app.evaluate("old.deref() === undefined")


def test_selected_heads_are_switched_off(app: Any) -> None:
    button = app.get_by_role("button", name="Switch off")
    app.evaluate("location.hash = '#layer=1&heads=2'")
    app.get_by_role("button", name="Show").click()
    app.get_by_role("button", name="Switch off L1 H2").wait_for()
    button.click()
    app.get_by_role("button", name="Difference").wait_for()
    assert "without L1 H2" in str(
        app.get_by_role("button", name="Second", exact=True).get_attribute("title")
    )
    app.get_by_role("button", name="All heads on").click()
    app.get_by_role("button", name="Difference").wait_for(state="detached")
    assert not app.get_by_role("button", name="All heads on").is_visible()


def test_a_refusal_is_read_on_the_page(app: Any) -> None:
    app.get_by_label("Text", exact=True).fill(" ")
    app.get_by_role("button", name="Show").click()
    app.locator(".note.problem", has_text="text is empty").wait_for()
    app.get_by_label("Text", exact=True).fill("the cat")
    app.get_by_role("button", name="Show").click()
    app.locator(".facts", has_text="4 tokens").wait_for(state="attached")


def test_what_a_model_cannot_do_is_not_offered(app: Any) -> None:
    assert app.get_by_label("Second text").is_visible()
    assert not app.get_by_label("Write on").is_visible()
    app.get_by_label("Model", exact=True).select_option("llama")
    assert not app.get_by_label("Second text").is_visible()
    assert app.get_by_label("Write on").is_visible()
