"""Best heads beside their baselines: the tables of probes as a figure."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headscope.errors import InputError
from headscope.figures.style import BLUE, GRAY, ORANGE, new_figure, styled
from headscope.heads.probe_table import ProbeTable

MARKS = {"offset": "|", "nearest": "v", "head_match": "s", "sieves": "|"}
SHOWN = {
    "offset": "best fixed offset",
    "nearest": "nearest mention",
    "head_match": "same head word",
    "sieves": "four sieves",
}


def probe_figure(table: ProbeTable) -> Figure:
    """The best head of each relation or kind of mention (Clark et al. 2019, Tables 1 and 2).

    A dot with its 95 % interval; a ring for the honest accuracy, of heads chosen on the other
    half of the documents; baselines in orange.
    """
    rows = table.rows
    if not rows:
        raise InputError("There is nothing to draw: no relation has enough cases (min_cases).")
    places = np.arange(len(rows))[::-1]
    with styled():
        figure = new_figure(5.2, 0.2 * len(rows) + 1.15)
        axes = figure.subplots()
        for y, row in zip(places, rows, strict=True):
            low, high = (100 * bound for bound in row.interval)
            axes.plot([low, high], [y, y], color=BLUE, linewidth=1, alpha=0.6, zorder=2)
            axes.plot(100 * row.accuracy, y, "o", color=BLUE, markersize=4, zorder=4)
            axes.plot(
                100 * row.honest,
                y,
                "o",
                color=BLUE,
                markersize=6.5,
                markerfacecolor="none",
                zorder=3,
            )
            for name, value in row.baselines.items():
                axes.plot(100 * value, y, MARKS[name], color=ORANGE, markersize=6, zorder=3)
            axes.text(103, y, _where(row.layer, row.head, row.direction), va="center", fontsize=7)
        marks = [
            ("o", BLUE, 4.0, BLUE, "best head, 95 % interval"),
            ("o", BLUE, 6.5, "none", "chosen on the other half"),
            *((MARKS[name], ORANGE, 6.0, ORANGE, SHOWN[name]) for name in rows[0].baselines),
        ]
        legend = [
            Line2D([], [], marker=mark, color=color, markersize=size, markerfacecolor=face,
                   linestyle="", label=label)
            for mark, color, size, face, label in marks
        ]  # fmt: skip
        figure.legend(
            handles=legend, loc="outside lower center", ncols=min(3, len(legend)), handlelength=1
        )
        axes.set_yticks(places, [f"{row.label} ({row.cases:,})" for row in rows])
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_xlim(0, 102)
        axes.set_xlabel("accuracy (%)")
        axes.set_title(table.title, loc="left")
        axes.grid(axis="both", color=GRAY, alpha=0.15, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
    return figure


def _where(layer: int, head: int, direction: str | None) -> str:
    arrow = {"dependent": " dep→parent", "head": " parent→dep"}.get(direction or "", "")
    return f"L{layer} H{head}{arrow}"
