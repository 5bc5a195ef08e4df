"""Whether to use compiled loops.

numba is optional. It takes half a second to import, and several to compile at the first use
ever: short runs do without.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from headscope.attention import Attention
from headscope.errors import MissingExtra
from headscope.metrics.base import batch_of

__all__ = ["can_compile", "has_numba"]


def has_numba() -> bool:
    """Is it installed? Without importing it."""
    return find_spec("numba") is not None


def can_compile(attention: Attention) -> bool:
    """Are this layer's weights for compiled loops, and does the run want them?

    Raises:
        MissingExtra: it does, but was planned on another machine, which had numba.
    """
    if not batch_of(attention).is_compiled:
        return False
    if not has_numba():
        raise MissingExtra.of("numba", "heads", "This run, planned with compiled loops,")
    weights = attention.weights
    return weights.dtype == torch.float32 and weights.device.type == "cpu"
