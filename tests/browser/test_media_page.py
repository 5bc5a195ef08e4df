"""Pictures and recordings in the explorer."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.browser.conftest import Opened
from tests.model import media_zoo as zoo


@pytest.fixture
def llava_page(open_page: Callable[..., Opened]) -> Opened:
    trace = zoo.llava().trace("the cat", image=zoo.picture(), generate=2)
    return open_page(trace, fragment="tab=lines&word=")


def painted(opened: Opened, selector: str) -> list[int]:
    """The color in the middle of the right half of a canvas: the picture that answers."""
    return opened.page.evaluate(
        """(selector) => {
          const find = (root) => root.querySelector(selector)
            ?? [...root.querySelectorAll("*")].map((e) => e.shadowRoot && find(e.shadowRoot))
              .find(Boolean);
          const canvas = find(document);
          const context = canvas.getContext("2d");
          return [...context.getImageData(canvas.width * 0.75, canvas.height / 2, 1, 1).data];
        }""",
        selector,
    )


def test_patches_are_thumbnails_and_words_are_words(llava_page: Opened) -> None:
    patch = llava_page.token("query", 5)
    assert patch.inner_text().strip() == "1,1"
    assert patch.locator("canvas").count() == 1
    assert llava_page.token("query", 17).locator("canvas").count() == 0


def test_a_words_attention_is_laid_over_the_picture(llava_page: Opened) -> None:
    words = llava_page.page.locator(".media-words")
    llava_page.page.keyboard.press("Escape")
    llava_page.page.keyboard.press("Escape")
    assert "all 21 words look, on average" in words.inner_text()
    llava_page.token("query", 17).click()
    assert "Where “the” looks" in words.inner_text()
    assert "% of it on the image" in words.inner_text()
    assert painted(llava_page, ".media canvas")[3] == 255


def test_a_patch_is_pinned_on_the_picture(llava_page: Opened) -> None:
    canvas = llava_page.page.locator(".media canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.9, "y": box["height"] * 0.1})
    assert llava_page.fragment["word"] == "3"
    lower = canvas.bounding_box()
    canvas.hover(position={"x": 4, "y": lower["height"] - 4})
    assert llava_page.tooltip.startswith("patch 3,0")


def test_the_vision_tower_has_its_own_tokens(llava_page: Opened) -> None:
    llava_page.page.get_by_label("Attention", exact=True).select_option("vision")
    assert llava_page.token("key", 0).locator("bdi").inner_text() == "[+0]"
    assert llava_page.token("key", 1).locator("canvas").count() == 1


def test_frames_stand_on_a_time_axis(open_page: Callable[..., Opened]) -> None:
    trace = zoo.whisper().trace(audio=zoo.tone(0.7), target="the cat")
    opened = open_page(trace)
    opened.page.get_by_label("Attention", exact=True).select_option("cross")
    opened.page.keyboard.press("1")
    canvas = opened.page.locator(".media canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.5, "y": 20})
    assert opened.fragment["key"] == "17"  # 0.35 s
    opened.token("query", 1).click()
    assert "% of it on the recording" in opened.page.locator(".media-words").inner_text()


def test_text_alone_has_no_strip(open_page: Callable[..., Opened]) -> None:
    from headscope.results.trace import Trace

    opened = open_page(Trace.from_arrays([[[[1.0, 0], [0.5, 0.5]]]], ["a", "b"]))
    assert opened.page.locator(".media").count() == 0


def test_words_about_an_image_are_of_images(open_page: Callable[..., Opened]) -> None:
    opened = open_page(zoo.vit().trace(image=zoo.picture()), fragment="word=5")
    stage = opened.page.locator(".stage").inner_text()
    assert re.search(r"look at for patch \d,\d\?", stage)
    assert re.search(r"patch \d,\d looks at patch \d,\d", opened.caption)
    assert "click another patch" in stage
    assert "tokens away" not in opened.page.locator(".title").inner_text()
    assert "bars: what “patch" in opened.page.locator("section.heads").inner_text()


def test_frames_alone_leave_no_strip_of_words(open_page: Callable[..., Opened]) -> None:
    opened = open_page(zoo.whisper().trace(audio=zoo.tone(0.7), target="the cat"))
    assert "for frame 0." in opened.page.locator(".question").inner_text()
    assert opened.page.locator(".density").count() == 0


@pytest.mark.parametrize("size", [(390, 844), (1440, 900)])
def test_switches_of_an_image_are_not_covered(
    open_page: Callable[..., Opened], size: tuple[int, int]
) -> None:
    page = open_page(zoo.vit().trace(image=zoo.picture()), size=size).page
    frame, inside = (page.locator(name).bounding_box() for name in (".media", ".media-controls"))
    assert inside["y"] + inside["height"] <= frame["y"] + frame["height"]
