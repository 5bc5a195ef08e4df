"""Confidence intervals: a bootstrap over documents, from the states alone.

A hash of its content deals each document into one of 64 parts. Sentences of one document share
a part, because they are not independent draws. A state keeps the sums of each part. A draw
takes as many parts as there are, with replacement, and adds up their sums: no attention is
computed again. With few documents in each part this is the bootstrap over documents. With many
it is the bootstrap over random sets of documents, whose intervals are the same up to the noise
of having only 64 sets.
"""

from __future__ import annotations

import numpy as np

BOUNDS = ("low", "high")
LEVEL = 0.95


def draw_weights(occupied: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """`draw part`: how often each part is drawn. Parts without documents are never drawn."""
    parts = np.flatnonzero(occupied)
    weights = np.zeros((n_draws, len(occupied)))
    if len(parts) < 2:
        return weights
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(parts), np.full(len(parts), 1 / len(parts)), n_draws)
    weights[:, parts] = drawn
    return weights


def interval(draws: np.ndarray) -> np.ndarray:
    """`bound …`: the middle 95 % of the finite draws; NaN where no draw is finite."""
    ordered = np.sort(draws, axis=0)  # NaN comes last
    n = np.isfinite(draws).sum(axis=0)
    bounds = []
    for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        at = share * np.maximum(n - 1, 0)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(n - 1, 0))
        below, above = (
            np.take_along_axis(ordered, index[None], axis=0)[0] for index in (low, high)
        )
        bounds.append(below + (above - below) * (at - low))
    return np.stack(bounds)
