"""What a lab lets a reader ask for, checked before any model runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request may ask for, and how much the lab keeps.

    Attributes:
        tokens: of one input, with what the model may add.
        seconds: that one request may take, waiting not counted; effects may take five times that.
        waiting: requests that may wait for the model at a time.
        kept: texts that are kept for each reader, so that the page can ask about them.
        bytes_kept: of all readers' traces.
        body: bytes of a request.
    """

    tokens: int = 512
    seconds: float = 60.0
    waiting: int = 32
    kept: int = 6
    bytes_kept: int = 1 << 30
    body: int = 1 << 18


MOST_GENERATED = 200
EFFECTS_TIMES = 5
"""Effects may take so many times as long as other requests."""
