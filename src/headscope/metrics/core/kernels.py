"""Choice between compiled loops and NumPy.

numba is optional. Its import takes half a second, the first compilation several, so short runs skip
it.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np

from headscope.errors import MissingExtra
from headscope.lazy import torch
from headscope.metrics.core.layer_data import LayerData


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without importing it."""
    return find_spec("numba") is not None


def can_compile(layer_data: LayerData) -> bool:
    """Return whether the run uses compiled loops and they can read this layer's weights.

    Raises:
        MissingExtra: the run was planned with numba, which is not installed here.
    """
    if not layer_data.batch.is_compiled:
        return False
    _need_numba()
    return layer_data.dtype == torch.float32 and layer_data.device.type == "cpu"


def load_loops() -> None:
    """Load the compiled loops, or compile them at the first use.

    Call this before the first batch. Memory that numba allocates later fragments the memory of
    batches.

    Raises:
        MissingExtra: numba is not installed.
    """
    _need_numba()
    from headscope.metrics.core.compiled import best_words, region_sums

    weights, counted = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1), np.float32)
    region_sums(weights, counted, counted, is_causal=False, with_logs=True, with_peaks=True)
    best_words(weights, np.zeros((1, 1), np.int32), np.array([[0, 1]], np.int32))


def _need_numba() -> None:
    if not has_numba():
        raise MissingExtra.of("numba", "heads", "This run, planned with compiled loops,")
