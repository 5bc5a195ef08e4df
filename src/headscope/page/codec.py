"""Encoding of the payload: weights in one or two byte planes, vectors as 16-bit integers, gzipped.

`web/src/data/decode.ts` reads these bytes; `tests/page/golden` holds both sides to them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headscope.page.payload_types import NumbersPart

LAST_CODE = 254
"""The coarse code of weight 1. Code c stands for (c / 254)²: steps are smallest near zero, where
most weights are. Half a step is at most 0.004."""
MISSING_CODE = 255
"""The coarse code of a weight that is NaN."""
FINE_LEVELS = 16
"""The fine plane says where in its coarse step a weight lies, in four bits: two to a byte."""
FIRST_FINE_CODE = 24
"""Below it a coarse step is already finer than 0.0004; the fine plane stays 0 and compresses
to nothing."""
MISSING_VALUE = -32768
"""The 16-bit code of a number that is NaN or infinite (masked scores)."""

SMALLEST = 1e-30
"""Numbers below it are written as 0: their step would not be a normal float32."""


def encode(weights: np.ndarray, *, fine: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Attention weights in [0, 1] (NaN for missing) as a coarse and a fine plane of bytes.

    The second plane takes the error from 0.004 to 0.0003. The coarse codes have the shape of
    `weights`; the fine codes are flat, the first of each pair in the low bits, or None.
    """
    missing = np.isnan(weights)
    known = np.clip(weights, 0.0, 1.0, dtype=np.float32)
    known[missing] = 0.0
    roots = np.sqrt(known)
    roots *= LAST_CODE
    codes = np.rint(roots, out=roots).astype(np.uint8)
    coarse = codes.copy()
    coarse[missing] = MISSING_CODE
    if not fine:
        return coarse, None
    low, high = _edges(codes)
    place = np.rint((known - low) / (high - low) * (FINE_LEVELS - 1))
    levels = np.where(codes < FIRST_FINE_CODE, 0, np.clip(place, 0, FINE_LEVELS - 1))
    flat = levels.astype(np.uint8).ravel()
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return coarse, flat[0::2] | (flat[1::2] << 4)


def _edges(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest weight that a coarse code stands for."""
    low = (np.maximum(codes - np.float32(0.5), 0) / LAST_CODE) ** 2
    high = (np.minimum(codes + np.float32(0.5), LAST_CODE) / LAST_CODE) ** 2
    return low, np.maximum(high, low + 1e-9)


def scale(numbers: np.ndarray, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as 16-bit integers, with one float32 scale for each index of the first `axes`.

    NaN and infinities become `MISSING_VALUE`. The error is at most the largest number that
    shares the scale, divided by 65,534.
    """
    rows = np.asarray(numbers, dtype=np.float32).reshape(*numbers.shape[:axes], -1)
    known = np.isfinite(rows)
    largest = np.max(np.abs(np.where(known, rows, 0.0)), axis=-1, keepdims=True, initial=0.0)
    steps = np.where(largest > SMALLEST, largest / 32767, 1.0).astype(np.float32)
    whole = np.rint(np.where(known, rows, 0.0) / steps)
    codes = np.where(known, whole, MISSING_VALUE).astype("<i2")
    return codes.reshape(numbers.shape), steps.astype("<f4").reshape(-1)


LEVEL = 6
"""Compression level."""
QUICK_LEVEL = 4
"""For arrays of at least `LARGE` bytes: half of the time for few more bytes."""
LARGE = 1 << 19
GZIP = 31
"""`wbits` of zlib for gzip with the largest window; the time stamp is 0."""
THREADS = 4


@dataclass(frozen=True)
class Payload:
    """A header that `json.dumps` takes, and the gzipped buffers it refers to by number."""

    header: Mapping[str, Any]
    buffers: Sequence[bytes] = field(repr=False)


class Buffers:
    """Collects gzipped arrays and hands out their numbers. Threads compress: zlib lets go of the
    interpreter.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS)
        self._jobs: list[Future[bytes]] = []

    def add(self, array: np.ndarray) -> int:
        """Store the bytes of `array` and return their number."""
        self._jobs.append(self._threads.submit(_packed, np.ascontiguousarray(array).tobytes()))
        return len(self._jobs) - 1

    def add_numbers(self, numbers: np.ndarray, axes: int) -> NumbersPart:
        """Store real numbers with two bytes each and a scale per index of the first `axes`."""
        codes, steps = scale(numbers, axes)
        return {
            "shape": list(numbers.shape),
            "axes": axes,
            "data": self.add(codes),
            "steps": self.add(steps),
        }

    @property
    def packed(self) -> list[bytes]:
        """All of them, by number."""
        return [job.result() for job in self._jobs]


def _packed(data: bytes) -> bytes:
    packer = zlib.compressobj(QUICK_LEVEL if len(data) >= LARGE else LEVEL, wbits=GZIP)
    return packer.compress(data) + packer.flush()
