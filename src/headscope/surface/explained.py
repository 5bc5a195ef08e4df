"""The figure of an explained score, which needs a room above `results`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.results.explained_score import ExplainedScore


def draw_explained_score(score: ExplainedScore, n: int) -> Figure:
    """See `ExplainedScore.figure`."""
    from headscope.figures.score_parts import draw_score_parts

    return draw_score_parts(score, n)
