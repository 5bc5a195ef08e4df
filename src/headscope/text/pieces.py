"""What a token is where it is no text: a patch of an image, or a frame of a recording."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headscope.errors import InputError


@dataclass(frozen=True, slots=True)
class Patch:
    """A rectangle of an image.

    `row` and `column` count the patches of the sequence; `top`, `left`, `bottom` and `right` are
    shares of the image's height and width.
    """

    row: int
    column: int
    top: float
    left: float
    bottom: float
    right: float
    image: int = 0
    """Which image, where there are several."""

    def __post_init__(self) -> None:
        is_inside = 0 <= self.top < self.bottom <= 1 and 0 <= self.left < self.right <= 1
        if not is_inside or min(self.row, self.column, self.image) < 0:
            raise InputError(f"A patch lies within its image: {self}.")

    @property
    def label(self) -> str:
        """As people read it: row and column from 0."""
        return f"{self.row},{self.column}"


@dataclass(frozen=True, slots=True)
class Frame:
    """A stretch of a recording, in seconds."""

    start: float
    end: float

    def __post_init__(self) -> None:
        if not (0 <= self.start < self.end and math.isfinite(self.end)):
            raise InputError(f"A frame starts before it ends: {self}.")

    @property
    def label(self) -> str:
        """As people read it: when it starts."""
        return f"{self.start:.2f} s"


Piece = Patch | Frame


def joined_piece(pieces: list[Piece | None]) -> Piece | None:
    """One piece for several that follow one another: the stretch from the first frame to the
    last. Patches have no common rectangle.
    """
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return first
    if isinstance(first, Frame) and isinstance(last, Frame):
        return Frame(first.start, last.end)
    return None
