"""How well gradients predict what removal does: correlations over heads, with intervals.

Pure statistics on arrays, document by document. Intervals leave out one whole text at a time
(the delete-one jackknife), because pieces of one text are not independent draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscope.statistics.correlation import correlation, ranks
from headscope.statistics.intervals import interval
from headscope.statistics.pulls import recomputed_pulls

CORRELATIONS = ("r", "rho", "r_importance", "rho_importance")
LIMIT = 1 - 1e-15
"""The largest r that has a z."""


@dataclass(frozen=True, eq=False)
class Paired:
    """What gradients predict and what removal does, for the same documents and heads.

    Attributes:
        estimates: `document head class`, −Σ a·∂L/∂a.
        gradients: `document head class`, sums of |∂L/∂a|.
        pairs: `document head class`, how many pairs of query and key those sums are over.
        rises: `document head class level`, by how much the loss rises.
        levels: `level`, the share of the attention that was removed.
        sources: `document`, equal for pieces of the same text.
    """

    estimates: np.ndarray
    gradients: np.ndarray
    pairs: np.ndarray
    rises: np.ndarray
    levels: np.ndarray
    sources: np.ndarray


def agreement(paired: Paired) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each name, its values and their interval (`bound …`).

    For each head and class: `rise` (at each level), `removal_estimate` and `importance`. For each
    class and level, over heads: `r` and `rho` (Pearson and Spearman of the signed estimate and the
    signed rise), `r_importance` and `rho_importance` (of mean |∂L/∂a| and |rise|), and `error`,
    Σ |rise − level·estimate| / Σ |rise|.
    """
    values = _numbers(paired, np.ones((1, len(paired.estimates))))
    texts, text_of = np.unique(paired.sources, return_inverse=True)
    if len(texts) < 2:
        return {name: (v[0], np.full((2, *v.shape[1:]), np.nan)) for name, v in values.items()}
    # One text at a time: the ranks of all at once would take gigabytes.
    rests = [
        _numbers(paired, (text_of != text).astype(np.float64)[None]) for text in range(len(texts))
    ]
    sizes = np.bincount(text_of)
    intervals = {}
    for name, value in values.items():
        without = np.concatenate([rest[name] for rest in rests])
        intervals[name] = (value[0], _bounds(value[0], without, sizes, is_r=name in CORRELATIONS))
    return intervals


def _bounds(value: np.ndarray, without: np.ndarray, sizes: np.ndarray, *, is_r: bool) -> np.ndarray:
    """`bound …`; correlations on Fisher's z, where they are about normal."""
    if not is_r:
        return interval(recomputed_pulls(value, without, sizes)).bounds
    of_z, without_z = (np.arctanh(np.clip(x, -LIMIT, LIMIT)) for x in (value, without))
    bounds: np.ndarray = np.tanh(interval(recomputed_pulls(of_z, without_z, sizes)).bounds)
    return bounds


def _numbers(paired: Paired, weights: np.ndarray) -> dict[str, np.ndarray]:
    """`row …`: in each row, `weights` (`row document`) say how much each document counts."""
    share = weights / weights.sum(1, keepdims=True)
    rises = np.tensordot(share, paired.rises, 1)
    estimates = np.tensordot(share, paired.estimates, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gradients = np.tensordot(share, paired.gradients, 1) / np.tensordot(share, paired.pairs, 1)
        foretold = estimates[..., None] * paired.levels
        error = np.abs(rises - foretold).sum(1) / np.abs(rises).sum(1)
    steep = np.broadcast_to(gradients[..., None], rises.shape)
    return {
        "rise": rises,
        "removal_estimate": estimates,
        "importance": gradients,
        "r": correlation(foretold, rises, axis=1),
        "rho": correlation(ranks(foretold, axis=1), ranks(rises, axis=1), axis=1),
        "r_importance": correlation(steep, np.abs(rises), axis=1),
        "rho_importance": correlation(ranks(steep, axis=1), ranks(np.abs(rises), axis=1), axis=1),
        "error": error,
    }
