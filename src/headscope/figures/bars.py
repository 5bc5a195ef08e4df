"""Best heads beside their baselines: the tables of probes as a figure.

Heads and stereotypes: how often each head finds the antecedent, pro and anti.

What changes between kinds of text: the papers' open question, from a grouped result.

The parts of an attention score as bars: through the key's side and the query's.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headscope.errors import InputError
from headscope.figures.style import BLUE, GRAY, ORANGE, caption, new_figure, styled
from headscope.probes.tables import BiasTable, ProbeTable
from headscope.results.display import display_of
from headscope.results.effect_data import SIDES, ExplainedScore
from headscope.results.result import Result

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
                100 * row.crossfit_accuracy,
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


SHOWN_GROUPS = ("null_share", "distance", "entropy", "dep_alignment")


def genre_figure(result: Result) -> Figure:
    """Mean over heads of each metric for each group of documents, with 95 % intervals.

    Dependency alignment has each group's own baseline beside it (orange): genres differ in
    how dense their dependencies are. Variability is not shown: it comes out smaller for fewer
    documents, and groups differ in how many they have.
    """
    if not result.groups:
        raise InputError('This result has no groups. Run analyze(…, by="genre").')
    groups = {name: next(iter(blocks.values())) for name, blocks in result.groups.items()}
    first = next(iter(groups.values()))
    panels = {f"{name}_mean": display_of(first[name]) for name in SHOWN_GROUPS if name in first}
    order = sorted(groups, key=lambda group: float(groups[group]["null_share_mean"]))
    labels = [f"{group} ({int(groups[group]['tokens_per_document_count'])})" for group in order]
    at = np.arange(len(order))[::-1]
    with styled():
        figure = new_figure(1.45 * len(panels) + 1.3, 0.19 * len(order) + 0.9)
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (name, known) in zip(grid, panels.items(), strict=True):
            for y, group in zip(at, order, strict=True):
                data = groups[group]
                either = {"parent": "either"} if "parent" in data[name].dims else {}
                value = float(data[name].sel(either))
                low, high = data[f"{name}_interval"].sel(either).values
                axes.plot([low, high], [y, y], color=GRAY, linewidth=1, zorder=1)
                axes.plot([value], [y], "o", color=BLUE, markersize=3.5, zorder=2)
                if name == "dep_alignment_mean":
                    baseline = float(data["dep_baseline"])
                    axes.plot([baseline], [y], "|", color=ORANGE, markersize=7, zorder=2)
            units = "share" if known.is_share else known.units
            axes.set_title(f"{known.short_title}\n({units})", fontsize=8)
            axes.grid(axis="y", color="#EEEEEE", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.locator_params(axis="x", nbins=4)
            axes.tick_params(axis="y", length=0)
        grid[0].set_yticks(at, labels)
    return figure


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
