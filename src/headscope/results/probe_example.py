"""Sentences as a head sees them: attention between words, and what a probe asks about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class ProbeArc:
    """One question of a probe: which word does this one attend to most?"""

    query: int
    """The word that predicts."""
    predicted: int | None
    """The word it attends to most; None where it attends to no other word."""
    target: int
    """The word it should attend to."""
    is_right: bool


@dataclass(frozen=True, slots=True, eq=False)
class ProbeExample:
    """One sentence under one head."""

    id: str
    words: tuple[str, ...]
    weights: np.ndarray
    """`word word`: from the predicting word to the other. Where the parent attends to its
    dependent (direction `head`), this is the transpose of what the model computes."""
    arcs: tuple[ProbeArc, ...]

    @property
    def is_right(self) -> bool:
        """Are all its arcs right?"""
        return all(arc.is_right for arc in self.arcs)


@dataclass(frozen=True, eq=False)
class ProbeExamples(Sequence[ProbeExample]):
    """Sentences of one relation under one head; those it gets right come first."""

    title: str
    """The model, the head and the relation."""
    sentences: tuple[ProbeExample, ...]

    @overload
    def __getitem__(self, index: int) -> ProbeExample: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ProbeExample, ...]: ...

    def __getitem__(self, index: int | slice) -> ProbeExample | tuple[ProbeExample, ...]:
        return self.sentences[index]

    def __len__(self) -> int:
        return len(self.sentences)

    def __repr__(self) -> str:
        right = sum(sentence.is_right for sentence in self.sentences)
        return f"<ProbeExamples of {self.title}: {right} right, {len(self) - right} wrong>"

    def figure(self, title: str | None = None, *, columns: int = 3) -> Figure:
        """Attention between words, a panel for each sentence (Clark et al. 2019, Figure 5).

        The word that predicts is on the left, what it attends to on the right; a line is
        darker the more attention it stands for. Words of the relation are colored: blue where
        the word attends most to its target, red where it does not, with the target it missed
        as a dashed line.

        Args:
            title: over all panels; the head and the relation by default.
            columns: panels in a row.
        """
        from headscope.figures.probe_sentences import example_figure

        return example_figure(self, title, columns=columns)
