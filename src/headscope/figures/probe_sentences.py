"""What a head does with sentences: Clark et al.'s Figure 5, right and wrong side by side."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.style import BLUE, VERMILION, new_figure, styled
from headscope.results.probe_example import ProbeExample, ProbeExamples

LINE = 0.17
"""Inches of a word."""
KEY = "blue: attends most to its target · red: to another word (dashed: the target it missed)"
FAINT = 0.03
"""Attention below this is not drawn."""


def example_figure(
    examples: ProbeExamples, title: str | None = None, *, columns: int = 3
) -> Figure:
    """A panel for each sentence; `ProbeExamples.figure` says more."""
    title = examples.title if title is None else title
    if not examples:
        raise InputError("There is no example to draw: the relation may not occur in the corpus.")
    rows = [examples[start : start + columns] for start in range(0, len(examples), columns)]
    heights = [max(len(example.words) for example in row) for row in rows]
    with styled():
        height = LINE * sum(heights) + 0.45 * len(rows) + (0.5 if title else 0.2)
        figure = new_figure(2.35 * columns, height)
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for axes_row, row, most in zip(grid, rows, heights, strict=True):
            for number, axes in enumerate(axes_row):
                axes.set_axis_off()
                if number < len(row):
                    _draw(axes, row[number], most)
        figure.supxlabel(KEY, fontsize=7, color="#555555")
        if title:
            figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    return figure


def _draw(axes: Axes, example: ProbeExample, most: int) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(most - 0.4, -0.6)
    left, right = 0.36, 0.64
    asked = {arc.query: arc for arc in example.arcs}
    for query, row in enumerate(example.weights):
        arc = asked.get(query)
        color = "#555555" if arc is None else BLUE if arc.is_right else VERMILION
        for key, weight in enumerate(row):
            if weight >= FAINT:
                strength = min(1.0, float(weight))
                axes.plot(
                    [left, right],
                    [query, key],
                    color=color,
                    alpha=strength * (0.55 if arc is None else 1.0),
                    linewidth=0.5 + 1.3 * strength if arc is None else 0.9 + 1.6 * strength,
                    zorder=1 if arc is None else 3,
                )
        if arc is not None and not arc.is_right:
            axes.plot(
                [left, right], [query, arc.target], color=VERMILION, linestyle=(0, (3, 2)),
                linewidth=0.9, zorder=2,
            )  # fmt: skip
    targets = {arc.target: arc for arc in example.arcs}
    for number, word in enumerate(example.words):
        for x, side, arcs in ((left - 0.02, "right", asked), (right + 0.02, "left", targets)):
            arc = arcs.get(number)
            color = "#333333" if arc is None else BLUE if arc.is_right else VERMILION
            weight = "normal" if arc is None else "bold"
            shown = word if len(word) <= 14 else f"{word[:13]}…"
            axes.text(
                x, number, shown, ha=side, va="center", fontsize=7, color=color, weight=weight,
                parse_math=False,
            )  # fmt: skip
    right_arcs = sum(arc.is_right for arc in example.arcs)
    axes.set_title(
        f"{right_arcs} of {len(example.arcs)} right", fontsize=7.5, color="#555555", pad=3
    )
