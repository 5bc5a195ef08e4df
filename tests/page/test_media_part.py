"""Images and sound in the payload: bytes the front end paints, nothing it loads."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np

from headscope.page.codec import Buffers
from headscope.page.payload import LONGEST_SIDE, MAX_PEAKS, add_media, make_payload
from headscope.results.media import Media
from tests.model import media_zoo as zoo


def unpacked(packed: bytes) -> np.ndarray:
    return np.frombuffer(gzip.decompress(packed), np.uint8)


def test_an_image_and_its_patches() -> None:
    trace = zoo.llava().trace("the cat", image=zoo.picture())
    payload = make_payload([trace])
    part = payload.header["traces"][0]
    (image,) = part["images"]
    pixels = unpacked(payload.buffers[image["pixels"]])
    shape = (image["height"], image["width"], 3)
    np.testing.assert_array_equal(pixels.reshape(shape), trace.media.images[0])
    assert part["stacks"]["self"]["pieces"][5] == ["patch", 0, 1, 1, 0.25, 0.25, 0.5, 0.5]
    assert part["stacks"]["self"]["pieces"][16] is None
    assert "sound" not in part
    json.dumps(payload.header)


def test_sound_and_its_frames() -> None:
    trace = zoo.whisper().trace(audio=zoo.tone(0.7), target="the cat")
    payload = make_payload([trace])
    part = payload.header["traces"][0]
    assert part["sound"]["seconds"] == 0.7
    peaks = unpacked(payload.buffers[part["sound"]["peaks"]])
    assert len(peaks) == part["sound"]["count"] == MAX_PEAKS
    assert peaks.max() == 255
    assert part["stacks"]["encoder"]["pieces"][1] == ["frame", 0.02, 0.04]
    assert "pieces" not in part["stacks"]["decoder"]
    assert "images" not in part


def test_large_images_are_thinned_and_short_sounds_kept() -> None:
    buffers = Buffers()
    media = Media((np.zeros((2000, 1000, 3), np.uint8),), np.array([0.5, -1.0]), 2)
    part: dict[str, Any] = {}
    add_media(part, media, buffers)  # type: ignore[arg-type]
    assert part["images"][0]["height"] == 500 <= LONGEST_SIDE
    assert unpacked(buffers.packed[part["sound"]["peaks"]]).tolist() == [128, 255]
    empty: dict[str, Any] = {}
    add_media(empty, Media(), buffers)  # type: ignore[arg-type]
    assert empty == {}
