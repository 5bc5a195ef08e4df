"""A sentence as a head sees it: attention between words, and what a probe asks about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ProbeArc", "ProbeExample"]


@dataclass(frozen=True, slots=True)
class ProbeArc:
    """One question of a probe: which word does this one attend to most?"""

    query: int
    """The word that predicts."""
    predicted: int | None
    target: int
    is_right: bool


@dataclass(frozen=True, slots=True, eq=False)
class ProbeExample:
    """One document under one head."""

    id: str
    words: tuple[str, ...]
    weights: np.ndarray
    """`word word`: from the predicting word to the other, whichever attends: in the direction
    `head` the transpose of what the model computes."""
    arcs: tuple[ProbeArc, ...]

    @property
    def is_right(self) -> bool:
        """Are all its arcs?"""
        return all(arc.is_right for arc in self.arcs)
