"""Reference for the decoder of the front end (`web/src/data/decode.ts`)."""

from __future__ import annotations

import numpy as np

from headscope.page.codec import FINE_LEVELS, FIRST_FINE_CODE, LAST_CODE, MISSING_CODE, _edges


def decode(coarse: np.ndarray, fine: np.ndarray | None) -> np.ndarray:
    """The weights that `encode` wrote."""
    weights = (coarse.astype(np.float32) / LAST_CODE) ** 2
    if fine is not None:
        levels = np.stack([fine & 15, fine >> 4], axis=-1).reshape(-1)[: coarse.size]
        low, high = _edges(coarse)
        to_device = low + (high - low) * levels.reshape(coarse.shape) / (FINE_LEVELS - 1)
        weights = np.where(coarse < FIRST_FINE_CODE, weights, to_device)
    return np.where(coarse == MISSING_CODE, np.nan, weights).astype(np.float32)
