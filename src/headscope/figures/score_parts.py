"""The parts of an attention score as bars: through the key's side and the query's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt

from headscope.results.explained_score import SIDES, ExplainedScore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POSITIVE, NEGATIVE = "#3366cc", "#dd7711"


def draw_score_parts(score: ExplainedScore, n: int = 8) -> Figure:
    """The largest contributions of both sides, the largest on top."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 0.6 + 0.32 * n), layout="constrained")
    for ax, side in zip(axes, SIDES, strict=True):
        rows = score.top(n, side)[::-1]
        values = [value for _, value in rows]
        ax.barh(range(len(rows)), values, color=[POSITIVE if v >= 0 else NEGATIVE for v in values])
        ax.set_yticks(range(len(rows)), [name for name, _ in rows])
        ax.axvline(0, color="0.5", linewidth=0.8)
        ax.set_xlabel("score above the other keys")
        ax.set_title(f"by the {side}'s parts", fontsize=10)
    figure.suptitle(score.title, fontsize=10)
    return figure
