"""The usual vision-language families: which patch did this word read?"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.model.processing import prepare
from headscope.text.tokens import Patch
from tests.model import vision_zoo
from tests.model.media_zoo import SIDE, picture

PATCHES = {
    "LLaVA 1.5": 16,
    "LLaVA-NeXT": 32,  # the whole image, and a tile
    "LLaVA-OneVision": 32,
    "Qwen2.5-VL": 4,
    "Qwen3-VL": 4,
    "InternVL": 20,  # five tiles of 2 × 2
    "PaliGemma": 16,
    "Gemma 3": 4,
    "Idefics2": 0,  # a resampler: each of its tokens reads the whole image
    "Idefics3": 4,
    "SmolVLM": 4,
}


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of PaliGemma's processor
@pytest.mark.parametrize("name", PATCHES)
def test_a_word_reads_patches(name: str) -> None:
    model = vision_zoo.load(name)
    trace = model.trace("the cat", image=picture())
    patches = [piece for piece in trace.text.media_tokens if isinstance(piece, Patch)]
    assert len(patches) == PATCHES[name]
    np.testing.assert_allclose(trace.attention.sum("key"), 1, atol=1e-5)
    assert trace.media.images[0].shape == (SIDE, SIDE, 3)
    assert trace.tokens[-3:] in (("\n", "the", " cat"), ("the", " cat", "\n"))
    only = model.trace("the cat", image=picture(), layers=[1])
    assert tuple(only.layers) == (1,)
    np.testing.assert_array_equal(only.attention[0], trace.attention[1])


@pytest.mark.parametrize("name", ["Qwen2.5-VL", "Qwen3-VL"])
def test_the_grid_of_qwen_is_what_its_tokens_read(name: str) -> None:
    """The reference: without attention in the tower, pixels of a patch change its token alone."""
    model = vision_zoo.load(name)
    visual = model.module.model.visual
    for block in visual.blocks:
        torch.nn.init.zeros_(block.attn.proj.weight)
        torch.nn.init.zeros_(block.attn.proj.bias)
    image = picture(SIDE)
    trace = model.trace("the cat", image=image)
    np.testing.assert_allclose(trace.media.images[0], image, atol=1)

    def embedded(pixels: np.ndarray) -> torch.Tensor:
        inputs, _ = prepare(model, "the cat", pixels, None)
        with torch.inference_mode():
            outputs = visual(inputs["pixel_values"], inputs["image_grid_thw"])
        found: torch.Tensor = outputs.pooler_output
        return found

    before = embedded(image)
    patches = [piece for piece in trace.text.media_tokens if isinstance(piece, Patch)]
    for number, patch in enumerate(patches):
        changed = image.copy()
        top, left, bottom, right = (
            round(SIDE * edge) for edge in (patch.top, patch.left, patch.bottom, patch.right)
        )
        changed[top:bottom, left:right] = 255 - changed[top:bottom, left:right]
        moved = (embedded(changed) - before).abs().amax(-1) > 1e-4
        assert moved.tolist() == [i == number for i in range(len(patches))]


def test_a_page_of_a_word_and_its_patches(tmp_path: object) -> None:
    trace = vision_zoo.load("Qwen2.5-VL").trace("the cat", image=picture())
    hs.save_page(trace, f"{tmp_path}/page.html")
