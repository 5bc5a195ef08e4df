"""Which part of an image each token is of: found by changing the image, not by the model's name.

A strip of pixels is changed, and the keys of a first layer are compared: tokens that change read
from the strip. Rows and columns of strips give each token its rectangle. In the tower that reads
the image, the first layer's keys come before anything mixes tokens. In the language model behind
it they come after, so all heads of the tower are silenced for the comparison: what is left of it
treats each token alone. Class tokens, registers and tokens that read the whole image (those of a
resampler) have no rectangle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention, Block
from headscope.model.edit import Edit, ablate
from headscope.model.tap.attachment import Attachment
from headscope.text.pieces import Patch

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from headscope.model.model import Model

N_STRIPS = 16
"""Of an image whose model does not say how large its patches are."""
WHOLE = (0.0, 1.0)
NOISE = 0.5
"""How far pixels are moved: normalized pixels are of size 1."""


class _Read(Exception):
    """The layer that was asked for has been read; the rest of the model need not run."""


def find_patches(
    model: Model, inputs: Mapping[str, Tensor], block: Block, tower: Block
) -> list[Patch | None] | None:
    """The rectangle of the image that each token of a stack is of, None for those without.

    Args:
        model: the model.
        inputs: with `pixel_values`, `… color row column`.
        block: whose tokens.
        tower: the block that reads the image; may be the same.

    Returns:
        None where the tap sees no keys, or pixels do not come as images.
    """
    pixels = inputs["pixel_values"]
    if pixels.ndim < 4:
        return None
    wiring = model.wiring_for(inputs)
    layer = wiring.of_block(block)[0].layer
    silenced: tuple[Edit, ...] = ()
    if block != tower:
        silenced = tuple(
            ablate(site.layer, head, block=tower)
            for site in wiring.of_block(tower)
            for head in range(site.n_heads)
        )

    def keys(values: Tensor) -> Tensor | None:
        return _first_keys(model, {**inputs, "pixel_values": values}, block, layer, silenced)

    original = keys(pixels)
    if original is None:
        return None
    noise = NOISE * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(0))
    noise = noise.to(pixels)

    def changed(mask: Tensor) -> np.ndarray:
        """Which tokens change with the pixels of a mask."""
        other = keys(pixels + noise * mask)
        assert other is not None
        size = original.abs().amax(-1)
        moved: np.ndarray = ((other - original).abs().amax(-1) > 1e-5 * size).cpu().numpy()
        return moved

    height, width = pixels.shape[-2:]
    strips = [
        _strips(size, step)
        for size, step in zip((height, width), _steps(model, height, width), strict=True)
    ]
    by_axis = []
    for axis, edges in zip((-2, -1), strips, strict=True):
        rows = []
        for start, end in edges:
            mask = torch.zeros_like(pixels)
            mask.narrow(axis, start, end - start).fill_(1)
            rows.append(changed(mask))
        by_axis.append(np.array(rows))
    images = _images(pixels, changed)
    return _rectangles(by_axis[0], by_axis[1], images, strips, (height, width))


def _images(pixels: Tensor, changed: Callable[[Tensor], np.ndarray]) -> np.ndarray:
    """`image token`: which tokens change with a whole image."""
    n_images = int(np.prod(pixels.shape[:-3]))
    rows = []
    for number in range(n_images):
        mask = torch.zeros_like(pixels).reshape(n_images, -1)
        mask[number] = 1
        rows.append(changed(mask.reshape(pixels.shape)))
    return np.array(rows)


def _first_keys(
    model: Model, inputs: Mapping[str, Tensor], block: Block, layer: int, edits: tuple[Edit, ...]
) -> Tensor | None:
    """`token feature` of one layer's keys; the model stops there."""
    kept: list[Tensor] = []

    def read(attention: Attention) -> None:
        if attention.block == block and attention.layer == layer:
            if attention.keys is not None:
                by_token = attention.keys.transpose(1, 2).flatten(2)
                kept.append(by_token.flatten(0, 1).float())
            raise _Read

    attachment = Attachment(reader=read, edits=edits, returns_weights=False)
    with torch.inference_mode(), model.attached(attachment, inputs), suppress(_Read):
        model.module(**model.placed(inputs))
    return kept[0] if kept else None


def _steps(model: Model, height: int, width: int) -> tuple[int, int]:
    """Height and width of the model's patches, where it says."""
    size = _setting(model.module.config, "patch_size")
    if isinstance(size, int) and size > 0:
        return size, size
    if isinstance(size, list | tuple) and len(size) >= 2:
        return int(size[-2]), int(size[-1])
    return max(1, height // N_STRIPS), max(1, width // N_STRIPS)


def _setting(config: PretrainedConfig, name: str) -> object:
    """A setting of the configuration's vision part, or of the configuration."""
    for part in (getattr(config, "vision_config", None), config):
        if (value := getattr(part, name, None)) is not None:
            return value
    return None


def _strips(size: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def _rectangles(
    rows: np.ndarray,
    columns: np.ndarray,
    images: np.ndarray,
    strips: list[list[tuple[int, int]]],
    size: tuple[int, int],
) -> list[Patch | None]:
    """Patches from which strips (`strip token`) and images (`image token`) move a token."""
    edges: list[tuple[int, tuple[float, float], tuple[float, float]] | None] = []
    for token in range(rows.shape[1]):
        down = _run(rows[:, token], strips[0], size[0])
        across = _run(columns[:, token], strips[1], size[1])
        (read,) = np.nonzero(images[:, token])
        is_all = len(rows) * len(columns) > 1 and down == across == WHOLE
        if down is None or across is None or len(read) != 1 or is_all:
            edges.append(None)
        else:
            edges.append((int(read[0]), down, across))
    placed = [edge for edge in edges if edge is not None]
    tops = sorted({down for _, down, _ in placed})
    lefts = sorted({across for _, _, across in placed})
    return [
        None
        if edge is None
        else Patch(
            tops.index(edge[1]),
            lefts.index(edge[2]),
            top=edge[1][0],
            left=edge[2][0],
            bottom=edge[1][1],
            right=edge[2][1],
            image=edge[0],
        )
        for edge in edges
    ]


def _run(moved: np.ndarray, strips: list[tuple[int, int]], size: int) -> tuple[float, float] | None:
    """The shares of the image between which strips move a token, if they are neighbors."""
    (numbers,) = np.nonzero(moved)
    if len(numbers) == 0 or numbers[-1] - numbers[0] + 1 != len(numbers):
        return None
    return strips[numbers[0]][0] / size, strips[numbers[-1]][1] / size
