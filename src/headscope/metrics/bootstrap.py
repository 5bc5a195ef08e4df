"""Confidence intervals: a bootstrap over documents, from the states alone.

Documents were dealt into parts by a hash of their content, and a state keeps the sums of
each part. A draw takes as many parts as there are, with replacement, and adds up their
sums: no attention is computed again. With few documents per part this is the bootstrap
over documents; with many it is the bootstrap over random groups of them, whose intervals
are the same up to the noise of having 64 groups.
"""

from __future__ import annotations

import warnings

import numpy as np

__all__ = ["BOUNDS", "draw_weights", "interval"]

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
    """`bound …`: the middle 95 % of the draws; NaN where there is nothing to draw from."""
    tail = (1 - LEVEL) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN slices are expected
        found: np.ndarray = np.nanquantile(draws, (tail, 1 - tail), axis=0)
    return found
