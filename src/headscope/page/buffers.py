"""The payload as it travels: a JSON header, and the gzipped arrays that it names by number."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headscope.page.codes import scale

LEVEL = 6
"""Of the compression."""
QUICK_LEVEL = 4
"""For arrays of at least `LARGE` bytes: half of the time for few more bytes."""
LARGE = 1 << 19
GZIP = 31
"""What zlib calls the gzip format with the largest window; its time stamp is 0."""
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

    def add_numbers(self, numbers: np.ndarray, axes: int) -> dict[str, object]:
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
