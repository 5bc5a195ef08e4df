"""Images and recordings that a user gives, as pixels and samples."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from headscope.errors import InputError

MOST_CHANNELS = 8
SOUND = "a recording: the name of a WAV file, samples, or (samples, rate)"


def read_image(image: object) -> Image.Image:
    """An image in colors: from a file's name, from Pillow, or from an array of
    `row column [color]`, bytes or shares of 1.
    """
    if isinstance(image, Image.Image):
        return _in_colors(image)
    if isinstance(image, str | os.PathLike):
        path = _file(image, "an image")
        try:
            with Image.open(path) as opened:
                return _in_colors(opened)
        except (UnidentifiedImageError, OSError) as error:
            raise InputError(f"{path.name!r} cannot be read as an image: {error}") from None
    return Image.fromarray(
        _bytes(_array(image, "an image: a file's name, a Pillow image or an array"))
    ).convert("RGB")


def _in_colors(image: Image.Image) -> Image.Image:
    """Upright, as its camera noted, and in bytes of red, green and blue."""
    if not image.width or not image.height:
        raise InputError(f"The image has no pixels: it is {image.width} × {image.height}.")
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        raise InputError(
            f"The image has one channel of numbers (Pillow's mode {image.mode!r}), not of bytes. "
            "Scale it to shares from 0 to 1 and give the array."
        )
    return ImageOps.exif_transpose(image).convert("RGB")


def _bytes(pixels: np.ndarray) -> np.ndarray:
    """`row column [color]` as bytes."""
    if (
        not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4)))
        or not pixels.size
    ):
        raise InputError(
            f"An image as an array should be (row, column), or (row, column, color) with 3 or 4 "
            f"colors, not {pixels.shape}."
        )
    if pixels.dtype == np.uint8:
        return pixels
    low, high = float(pixels.min()), float(pixels.max())
    if not np.issubdtype(pixels.dtype, np.floating) or not 0 <= low <= high <= 1:
        raise InputError(
            f"An image as an array should be bytes, or shares from 0 to 1; this one is "
            f"{pixels.dtype} from {low:.4g} to {high:.4g}."
        )
    shares: np.ndarray = np.rint(pixels * 255).astype(np.uint8)
    return shares


def read_sound(audio: object, rate: int) -> np.ndarray:
    """Samples of one channel at `rate` a second, float32 from -1 to 1.

    Args:
        audio: the name of a WAV file; samples at `rate`; or samples and their rate. Several
            channels (`sample channel`) are averaged.
        rate: what the model was trained on.
    """
    recorded_rate = rate
    if isinstance(audio, str | os.PathLike):
        from scipy.io import wavfile

        path = _file(audio, "a recording")
        try:
            recorded_rate, samples = wavfile.read(path)
        except ValueError as error:
            raise InputError(
                f"{path.name!r} cannot be read as a WAV file: {error} Convert it (ffmpeg -i "
                f"FILE out.wav), or give its samples: audio=(samples, rate)."
            ) from None
    elif isinstance(audio, tuple) and len(audio) == 2:
        samples, recorded_rate = _array(audio[0], SOUND), audio[1]
        if (
            isinstance(recorded_rate, bool)
            or not isinstance(recorded_rate, int | np.integer)
            or recorded_rate <= 0
        ):
            raise InputError(
                f"The rate of a recording should be samples a second, not {recorded_rate!r}."
            )
    else:
        samples = _array(audio, SOUND)
    mono = _one_channel(samples)
    if recorded_rate == rate:
        return mono
    from scipy.signal import resample_poly  # which takes as long to import as torch

    common = math.gcd(int(recorded_rate), rate)
    return np.asarray(
        resample_poly(mono, rate // common, int(recorded_rate) // common), dtype=np.float32
    )


def _one_channel(samples: np.ndarray) -> np.ndarray:
    if samples.ndim == 2 and 1 <= samples.shape[1] <= MOST_CHANNELS:
        samples = _floats(samples).mean(axis=1)
    if samples.ndim != 1 or not samples.size:
        raise InputError(
            f"A recording should be samples, or (sample, channel), not of shape {samples.shape}."
        )
    mono = _floats(samples)
    if not np.isfinite(mono).all() or np.abs(mono).max() > 2:
        raise InputError(
            f"Samples should lie between -1 and 1; these reach {float(np.abs(mono).max()):.4g}."
        )
    return mono


def _floats(samples: np.ndarray) -> np.ndarray:
    """Whole numbers as WAV files hold them, as shares of the largest."""
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    if samples.dtype == np.uint8:  # the one type of WAV files that has no sign
        return ((samples.astype(np.float32)) - 128) / 128
    if samples.dtype.kind != "i":
        raise InputError(f"Samples should be numbers, not {samples.dtype}.")
    return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)


def _file(name: str | os.PathLike[str], what: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r} to read {what} from.")
    return path


def _array(given: object, what: str) -> np.ndarray:
    """An array from whatever holds numbers (a torch tensor too)."""
    for name in ("detach", "cpu"):
        given = getattr(given, name, lambda given=given: given)()
    try:
        array = np.asarray(given)
    except ValueError:  # parts of different shapes
        raise InputError(f"Expected {what}, not parts of different shapes.") from None
    if array.dtype.kind not in "uif":
        raise InputError(f"Expected {what}, not {type(given).__name__}.")
    return array
