"""What `html_action="return"` gives, written to a file and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


def test_returned_html_opens(chromium: Any, tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    from headscope.bertviz import head_view

    rng = np.random.default_rng(0)
    attention = [rng.dirichlet(np.ones(5), size=(1, 3, 5)) for _ in range(2)]
    tokens = ["[CLS]", "</script>", "Ġcat", "[SEP]", "b"]
    html = head_view(attention, tokens, sentence_b_start=4, layer=1, html_action="return")
    file = tmp_path / "view.html"
    file.write_text(html.data, "utf-8")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".page").wait_for(timeout=20_000)
    shown = [token.inner_text() for token in frame.locator(".words.query bdi").all()]
    assert shown == ["[CLS]", "</script>", "cat", "[SEP]", "b"]
    assert "L1 " in frame.locator(".badge").inner_text()
    frame.locator(".words.query .word").nth(2).click()
    assert frame.locator(".word[aria-selected=true]").count() == 1
    assert messages == []
    context.close()
