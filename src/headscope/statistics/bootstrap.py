"""Confidence intervals: a bootstrap over documents, from the states alone.

Documents were dealt into parts by a hash of their content, sentences of one document
together (they are no independent draws), and a state keeps the sums of each part. A draw
takes as many parts as there are, with replacement, and adds up their sums: no attention is
computed again. With few documents per part this is the bootstrap over documents; with many
it is the bootstrap over random groups of them, whose intervals are the same up to the noise
of having 64 groups.
"""

from __future__ import annotations

import numpy as np

BOUNDS = ("low", "high")
LEVEL = 0.95


def draw_weights(occupied: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """`draw part`: how often each part is drawn. Parts without documents never are."""
    parts = np.flatnonzero(occupied)
    weights = np.zeros((n_draws, len(occupied)))
    if len(parts) < 2:
        return weights
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(parts), np.full(len(parts), 1 / len(parts)), n_draws)
    weights[:, parts] = drawn
    return weights


def interval(draws: np.ndarray) -> np.ndarray:
    """`bound …`: the middle 95 % of the draws that are numbers; NaN where none is."""
    ordered = np.sort(draws, axis=0)  # NaN last
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
