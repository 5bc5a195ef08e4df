"""One text at several steps of a training: a slider moves all views."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headscope as hs
from headscope.errors import InputError
from headscope.page.save_page import save_page

STEPS = (0, 100, 1000)


@pytest.fixture
def page(open_page: Any, make_trace: Callable[..., hs.Trace], tmp_path: Path) -> Any:
    traces = {n: make_trace(8, causal=True, seed=i) for i, n in enumerate(STEPS)}
    save_page(traces, tmp_path / "steps.html")
    return open_page(file=tmp_path / "steps.html")


def drawn(opened: Any) -> list[str]:
    return [str(text) for text in opened.page.locator(".words.key .share").all_inner_texts()]


def test_the_slider_moves_all_views_and_keeps_what_is_pinned(page: Any) -> None:
    slider = page.page.get_by_role("slider", name="Training step")
    assert slider.input_value() == "2", "a page opens on the last step"
    assert page.page.locator(".step").inner_text() == "step 1,000"
    assert page.page.locator(".step-bars i").count() == len(STEPS)
    page.token("query", 5).click()
    head = page.fragment["head"]
    seen = {1000: drawn(page)}
    for place, step in ((1, 100), (0, 0)):
        slider.fill(str(place))
        assert page.page.locator(".step").inner_text() == f"step {step}"
        assert (page.fragment["head"], page.fragment["word"]) == (head, "5")
        seen[step] = drawn(page)
    assert len({tuple(values) for values in seen.values()}) == len(STEPS)
    page.page.get_by_role("button", name="Next step").click()
    assert drawn(page) == seen[100]
    assert page.fragment["example"] == "1"
    assert re.match(r"Step 100: \w+", slider.get_attribute("aria-valuetext") or "")


def test_steps_of_different_texts_are_refused(
    make_trace: Callable[..., hs.Trace], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="Steps 0 and 5 are of different texts or models"):
        save_page({0: make_trace(8), 5: make_trace(10)}, tmp_path / "page.html")
    with pytest.raises(InputError, match="step"):
        save_page({"a": make_trace(8)}, tmp_path / "page.html")  # type: ignore[dict-item]
    with pytest.raises(InputError, match="There is no trace"):
        save_page({}, tmp_path / "page.html")
