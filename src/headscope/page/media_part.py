"""Images, sound and what tokens are of them, as parts of the payload.

Pixels go along as bytes that the front end paints itself, so a page loads no image. In a stack,
`pieces` has for each token null (text), `["patch", image, row, column, top, left, bottom, right]`
or `["frame", start, end]` in seconds; it is missing where all of it is text.
`web/src/data/media.ts` reads this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.results.media import Media
from headscope.text.pieces import Frame, Patch, Piece
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from headscope.page.buffers import Buffers

LONGEST_SIDE = 640
"""Pixels of an image's longer side, at most: no screen shows it larger."""
MOST_PEAKS = 1200
"""Columns of a drawn wave."""


def media_part(media: Media, buffers: Buffers) -> dict[str, object]:
    """`images` and `sound` of a trace, where it has them."""
    part: dict[str, object] = {}
    if media.images:
        part["images"] = [_image_part(image, buffers) for image in media.images]
    if media.sound is not None and media.sound.size:
        peaks = _peaks(media.sound)
        part["sound"] = {
            "seconds": media.seconds,
            "count": len(peaks),
            "peaks": buffers.add(peaks),
        }
    return part


def pieces_part(tokens: Tokens) -> dict[str, list[list[object] | None]]:
    """`pieces` of a stack, where it has any."""
    return {"pieces": [_piece_part(piece) for piece in tokens.pieces]} if any(tokens.pieces) else {}


def _piece_part(piece: Piece | None) -> list[object] | None:
    if isinstance(piece, Patch):
        edges = [piece.top, piece.left, piece.bottom, piece.right]
        return ["patch", piece.image, piece.row, piece.column, *edges]
    return ["frame", piece.start, piece.end] if isinstance(piece, Frame) else None


def _image_part(image: np.ndarray, buffers: Buffers) -> dict[str, int]:
    """An image, with every n-th pixel of one that is larger than any screen."""
    step = -(-max(image.shape[:2]) // LONGEST_SIDE)
    shown = image[::step, ::step]
    return {"width": shown.shape[1], "height": shown.shape[0], "pixels": buffers.add(shown)}


def _peaks(sound: np.ndarray) -> np.ndarray:
    """The loudest sample of each stretch, as bytes: 255 is the loudest of all."""
    count = min(MOST_PEAKS, len(sound))
    edges = np.linspace(0, len(sound), count + 1).astype(np.int64)[:-1]
    loudest = np.maximum.reduceat(np.abs(sound), edges)
    peaks: np.ndarray = np.rint(255 * loudest / max(float(loudest.max()), 1e-9)).astype(np.uint8)
    return peaks
