"""Heads and stereotypes: how often each head finds the antecedent, pro and anti."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.style import BLUE, GRAY, ORANGE, caption, new_figure, styled
from headscope.heads.bias_table import BiasTable


def bias_figure(table: BiasTable) -> Figure:
    """A line for each head, from its accuracy where the pronoun does not fit the stereotype to
    that where it does. The gap between them stands at the right, with its 95 % interval.
    """
    if not table.rows:
        raise InputError("There is nothing to draw: the table has no head.")
    places = np.arange(len(table.rows))[::-1]
    with styled():
        figure = new_figure(5.2, 0.24 * len(table.rows) + 1.2)
        axes = figure.subplots()
        for y, row in zip(places, table.rows, strict=True):
            is_first = row is table.rows[0]
            axes.plot([100 * row.anti, 100 * row.pro], [y, y], color=GRAY, linewidth=1, zorder=1)
            for value, color, label in ((row.pro, BLUE, "pro"), (row.anti, ORANGE, "anti")):
                name = f"{label}-stereotypical" if is_first else None
                axes.plot(100 * value, y, "o", color=color, markersize=5, zorder=2, label=name)
            low, high = 100 * row.gap_low, 100 * row.gap_high
            gap = f"{100 * row.gap:+.1f} [{low:+.1f}, {high:+.1f}]".replace("-", "−")
            axes.text(103, y, gap, va="center", fontsize=7)
        axes.axvline(50, color=GRAY, linewidth=0.6, linestyle=(0, (4, 3)))
        axes.set_yticks(places, [f"L{row.layer} H{row.head}" for row in table.rows])
        axes.set_ylim(-0.7, len(table.rows) - 0.3)
        axes.set_xlim(0, 102)
        axes.set_xlabel("pronouns that attend more to their antecedent (%)")
        axes.set_title(table.title, loc="left")
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower center", ncols=2, handlelength=1)
        caption(figure, f"{table.pairs} pronouns of each kind")
    return figure
