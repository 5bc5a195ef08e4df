"""Payloads that are wrong somewhere, in a real browser: the page shows something or says what it
cannot show; nothing runs, nothing is asked of a network, and nothing hangs.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headscope.page.payload import Payload, make_payload  # type: ignore[attr-defined]
from headscope.page.save_page import make_page
from headscope.results.trace import Trace
from tests.fuzz.hostile import NASTY, damaged, fuzz, texts

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((-1, 0, 1, 2, 7, 10**9, 2**53, 0.5, -1e300)),
    st.sampled_from([text for text in NASTY if len(text) < 100]),
    st.just("<img src=x onerror=window.hacked=1>"),
    st.just("javascript:window.hacked=1"),
    st.lists(st.one_of(st.integers(-2, 9), texts(8)), max_size=3),
    st.just({}),
)
SECONDS = 20
TEXT = """() => {
    const inside = (node) => [...node.childNodes].map((child) =>
        child.nodeType === Node.TEXT_NODE ? child.data
        : ["SCRIPT", "STYLE"].includes(child.tagName) ? ""
        : inside(child.shadowRoot ?? child)).join("");
    return inside(document.body);
}"""
"""What the page says, shadow trees included."""


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a header something could be wrong."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    inside = [(*path, key) for key, _ in items]
    deeper = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in deeper:
        if isinstance(value, dict | list):
            inside += places(value, (*path, key))
    return inside


@st.composite
def hostile(draw: st.DrawFn, payload: Payload) -> Payload:
    """A payload with a few values replaced or removed, and perhaps a buffer damaged."""
    header = copy.deepcopy(json.loads(json.dumps(payload.header)))
    buffers = list(payload.buffers)
    for _ in range(draw(st.integers(0, 3))):
        *path, last = draw(st.sampled_from(places(header)))
        part = header
        for key in path:
            part = part[key]
        if draw(st.booleans()):
            part[last] = draw(VALUES)
        else:
            del part[last]
        if not places(header):
            break
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(buffers) - 1))
        buffers[at] = draw(st.one_of(damaged(buffers[at], most=2), st.sampled_from(buffers)))
    return Payload(header, buffers)


def test_hostile_payloads(chromium: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    trace = Trace.from_arrays(
        rng.dirichlet(np.ones(4), size=(2, 2, 4)), ["The", " cat", " sat", "."]
    )
    payload = make_payload([trace])
    file = tmp_path / "page.html"
    context = chromium.new_context(offline=True)
    asked: list[str] = []
    context.on(
        "request",
        lambda request: (
            request.url.split("#")[0] == file.as_uri()
            or request.url.startswith(("data:", "blob:"))
            or asked.append(request.url)
        ),
    )

    @fuzz("payloads in a browser")
    @given(hostile(payload))
    def attempt(payload: Payload) -> None:
        text = make_page(payload, title="hostile")
        file.write_text(text, encoding="utf-8", errors="replace")
        page = context.new_page()
        try:
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-ready]", timeout=SECONDS * 1000)
            assert page.evaluate("window.hacked") is None
            assert page.evaluate(TEXT).strip()
        finally:
            page.close()
        assert asked == []

    attempt()
    context.close()
