"""Gives freed memory back to the system."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

MOST_KEPT = 192 << 20
"""How many freed bytes are kept before they are given back: getting them again takes time."""


class FreedMemory:
    """Gives back what the C library keeps of freed memory (with glibc; elsewhere nothing).

    Batches of many shapes leave gaps that no later batch quite fits into: without this a
    long run grows to several times what it uses. A process has one, `FREED`.
    """

    def __init__(self) -> None:
        self._least = 0

    def give_back(self) -> None:
        """Give all of it back."""
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)
        self._least = _resident()

    def check(self) -> None:
        """Give freed memory back if there is much of it, or it is not known how much."""
        resident = _resident()
        if not resident or resident > self._least + MOST_KEPT:
            self.give_back()


FREED = FreedMemory()


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return pages * mmap.PAGESIZE
