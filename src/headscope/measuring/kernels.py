"""Whether to use compiled loops.

numba is optional. It takes half a second to import, and several to compile at the first use
ever: short runs do without.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
import torch

from headscope.errors import MissingExtra
from headscope.measuring.reading import Reading


@cache
def has_numba() -> bool:
    """Is it installed? Without importing it."""
    return find_spec("numba") is not None


def can_compile(reading: Reading) -> bool:
    """Are this layer's weights for compiled loops, and does the run want them?

    Raises:
        MissingExtra: it does, but was planned on another machine, which had numba.
    """
    if not reading.batch.is_compiled:
        return False
    _need_numba()
    return reading.dtype == torch.float32 and reading.device.type == "cpu"


def load_loops() -> None:
    """Load the compiled loops, or compile them at the first use ever.

    Before the first batch: what numba keeps would lie strewn among the memory of batches
    otherwise, and leave gaps in it.

    Raises:
        MissingExtra: numba is not installed.
    """
    _need_numba()
    from headscope.measuring.compiled import best_words, region_digests

    weights, counted = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1), np.float32)
    region_digests(weights, counted, counted, is_causal=False, with_logs=True, with_peaks=True)
    best_words(weights, np.zeros((1, 1), np.int32), np.array([[0, 1]], np.int32))


def _need_numba() -> None:
    if not has_numba():
        raise MissingExtra.of("numba", "heads", "This run, planned with compiled loops,")
