"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["release_memory"]


def release_memory() -> None:
    """Give back what the C library keeps of freed memory (with glibc; elsewhere nothing).

    Batches of many shapes leave gaps that no later batch quite fits into: without this a
    long run grows to several times what it uses.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
