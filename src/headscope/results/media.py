"""Images and recording of a trace, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscope.errors import InputError
from headscope.text.tokens import Frame, Patch

MAX_PIXELS = 64_000_000
MAX_SAMPLES = 500_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Media:
    """Images and recording as the processor prepared them: resized, cropped, not normalized."""

    images: tuple[np.ndarray, ...] = ()
    """Each `row column color`, bytes."""
    sound: np.ndarray | None = None
    """Samples from -1 to 1."""
    rate: int = 0

    def __post_init__(self) -> None:
        for image in self.images:
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
                raise InputError(
                    f"An image is {image.dtype} of shape {image.shape}; expected bytes, "
                    "(row, column, 3)."
                )
            if image.size > MAX_PIXELS:
                raise InputError(f"An image of {image.size:,} numbers is too large.")
        if self.sound is None:
            return
        if self.sound.ndim != 1 or self.sound.size > MAX_SAMPLES or self.rate <= 0:
            raise InputError(
                f"A recording has shape {self.sound.shape} at {self.rate} samples a second; "
                "expected one row of samples, and a rate above 0."
            )

    def __bool__(self) -> bool:
        return bool(self.images) or self.sound is not None

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return 0.0 if self.sound is None else len(self.sound) / self.rate

    def thumbnail(self, patch: Patch) -> np.ndarray:
        """Return the pixels of a patch, `row column color`."""
        image = self.images[patch.image]
        height, width = image.shape[:2]
        top, bottom = round(patch.top * height), round(patch.bottom * height)
        left, right = round(patch.left * width), round(patch.right * width)
        return image[top : max(bottom, top + 1), left : max(right, left + 1)]

    def clip(self, frame: Frame) -> np.ndarray:
        """Return the samples of a frame; an empty array after the end of the recording."""
        if self.sound is None:
            raise InputError("This trace has no recording.")
        return self.sound[round(frame.start * self.rate) : round(frame.end * self.rate)]
