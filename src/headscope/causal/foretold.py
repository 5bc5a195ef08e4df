"""How well gradients predict what removal does: correlations over heads, with intervals.

Pure statistics on arrays, document by document. The bootstrap draws whole texts, because
pieces of one text are not independent draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from headscope.statistics.bootstrap import draw_weights, interval
from headscope.statistics.correlation import correlation

DRAWS = 500


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


def agreement(paired: Paired, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each name, its values and their interval (`bound …`).

    For each head and class: `rise` (at each level), `removal_estimate` and `importance`. For each
    class and level, over heads: `r` and `rho` (Pearson and Spearman of the signed estimate and the
    signed rise), `r_importance` and `rho_importance` (of mean |∂L/∂a| and |rise|), and `error`,
    Σ |rise − level·estimate| / Σ |rise|.
    """
    values = _numbers(paired, np.ones((1, len(paired.estimates))))
    texts, text_of = np.unique(paired.sources, return_inverse=True)
    weights = draw_weights(np.ones(len(texts), dtype=bool), DRAWS, seed)[:, text_of]
    if len(texts) < 2:
        return {name: (v[0], np.full((2, *v.shape[1:]), np.nan)) for name, v in values.items()}
    # One draw at a time: the ranks of all draws at once would take gigabytes.
    draws = [_numbers(paired, row[None]) for row in weights]
    return {
        name: (value[0], interval(np.concatenate([draw[name] for draw in draws])))
        for name, value in values.items()
    }


def _numbers(paired: Paired, weights: np.ndarray) -> dict[str, np.ndarray]:
    """`draw …`: in each draw, `weights` (`draw document`) say how often a document counts."""
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
        "rho": correlation(_ranks(foretold), _ranks(rises), axis=1),
        "r_importance": correlation(steep, np.abs(rises), axis=1),
        "rho_importance": correlation(_ranks(steep), _ranks(np.abs(rises)), axis=1),
        "error": error,
    }


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.asarray(stats.rankdata(values, axis=1))
