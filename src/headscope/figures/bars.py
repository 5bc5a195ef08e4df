"""Figures of probe tables, groups of documents and explained scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headscope.errors import InputError
from headscope.figures.style import BLUE, DASHED, GRAY, ORANGE, caption, new_figure, styled
from headscope.probes.tables import BiasTable, ProbeTable
from headscope.results.display import display_of, percent
from headscope.results.effect_data import SIDES, ExplainedScore
from headscope.results.result import Result

MARKS = {"offset": "|", "nearest": "v", "head_match": "s", "sieves": "|"}
BASELINE_LABELS = {
    "offset": "best fixed offset",
    "nearest": "nearest mention",
    "head_match": "same head word",
    "sieves": "four sieves",
}
ARROWS = {"dependent": " dep→parent", "head": " parent→dep", None: ""}


def probe_figure(table: ProbeTable) -> Figure:
    """See `ProbeTable.figure`."""
    rows = table.rows
    if not rows:
        raise InputError("There is nothing to draw: no relation has enough cases (min_cases).")
    with styled():
        figure = new_figure(5.2, 0.2 * len(rows) + 1.15)
        labels = [f"{row.label} ({row.cases:,})" for row in rows]
        axes, places = _percent_axes(figure, table.title, labels, "accuracy (%)")
        for y, row in zip(places, rows, strict=True):
            low, high = (100 * bound for bound in row.interval)
            axes.plot([low, high], [y, y], color=BLUE, linewidth=1, alpha=0.6, zorder=2)
            axes.plot(100 * row.accuracy, y, "o", color=BLUE, markersize=4, zorder=4)
            axes.plot(
                100 * row.crossfit_accuracy, y, "o", color=BLUE, markersize=6.5,
                markerfacecolor="none", zorder=3,
            )  # fmt: skip
            for name, value in row.baselines.items():
                axes.plot(100 * value, y, MARKS[name], color=ORANGE, markersize=6, zorder=3)
            head = f"L{row.layer} H{row.head}{ARROWS[row.direction]}"
            axes.text(103, y, head, va="center", fontsize=7)
        marks = [
            ("o", BLUE, 4.0, BLUE, "best head, 95 % interval"),
            ("o", BLUE, 6.5, "none", "cross-fitted"),
            *(
                (MARKS[name], ORANGE, 6.0, ORANGE, BASELINE_LABELS[name])
                for name in rows[0].baselines
            ),
        ]
        legend = [
            Line2D([], [], marker=mark, color=color, markersize=size, markerfacecolor=face,
                   linestyle="", label=label)
            for mark, color, size, face, label in marks
        ]  # fmt: skip
        figure.legend(
            handles=legend, loc="outside lower center", ncols=min(3, len(legend)), handlelength=1
        )
        axes.grid(axis="both", color=GRAY, alpha=0.15, linewidth=0.5)
        axes.set_axisbelow(True)
    return figure


def bias_figure(table: BiasTable) -> Figure:
    """See `BiasTable.figure`."""
    if not table.rows:
        raise InputError("There is nothing to draw: the table has no head.")
    with styled():
        figure = new_figure(5.2, 0.24 * len(table.rows) + 1.2)
        labels = [f"L{row.layer} H{row.head}" for row in table.rows]
        xlabel = "pronouns that attend more to their antecedent (%)"
        axes, places = _percent_axes(figure, table.title, labels, xlabel)
        for y, row in zip(places, table.rows, strict=True):
            is_first = row is table.rows[0]
            axes.plot([100 * row.anti, 100 * row.pro], [y, y], color=GRAY, linewidth=1, zorder=1)
            for value, color, label in ((row.pro, BLUE, "pro"), (row.anti, ORANGE, "anti")):
                name = f"{label}-stereotypical" if is_first else None
                axes.plot(100 * value, y, "o", color=color, markersize=5, zorder=2, label=name)
            gap = percent(row.gap, row.gap_low, row.gap_high, "+")
            axes.text(103, y, gap, va="center", fontsize=7)
        axes.axvline(50, color=GRAY, linewidth=0.6, linestyle=DASHED)
        figure.legend(loc="outside lower center", ncols=2, handlelength=1)
        caption(figure, f"{table.pairs} pronouns of each kind")
    return figure


def _percent_axes(
    figure: Figure, title: str, labels: Sequence[str], xlabel: str
) -> tuple[Axes, np.ndarray]:
    """Add axes from 0 to 100 % with a row for each label; return them and the rows' places."""
    axes, places = figure.subplots(), np.arange(len(labels))[::-1]
    axes.set_yticks(places, labels)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.set_xlim(0, 102)
    axes.set_xlabel(xlabel)
    axes.set_title(title, loc="left")
    axes.tick_params(axis="y", length=0)
    return axes, places


GROUP_VARIABLES = ("null_share", "distance", "entropy", "dep_alignment")


def genre_figure(result: Result) -> Figure:
    """Draw the mean over heads of each metric for each group, with 95 % intervals.

    Dependency alignment has the baseline of each group (orange), since genres differ in the
    density of dependencies. Variability is omitted: it is smaller for fewer documents.
    """
    if not result.groups:
        raise InputError('This result has no groups. Run analyze(…, by="genre").')
    groups = {name: next(iter(blocks.values())) for name, blocks in result.groups.items()}
    first = next(iter(groups.values()))
    panels = {f"{name}_mean": display_of(first[name]) for name in GROUP_VARIABLES if name in first}
    order = sorted(groups, key=lambda group: float(groups[group]["null_share_mean"]))
    labels = [f"{group} ({int(groups[group]['tokens_per_document_count'])})" for group in order]
    places = np.arange(len(order))[::-1]
    with styled():
        figure = new_figure(1.45 * len(panels) + 1.3, 0.19 * len(order) + 0.9)
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (name, display) in zip(grid, panels.items(), strict=True):
            for y, group in zip(places, order, strict=True):
                data = groups[group]
                either = {"parent": "either"} if "parent" in data[name].dims else {}
                value = float(data[name].sel(either))
                low, high = data[f"{name}_interval"].sel(either).values
                axes.plot([low, high], [y, y], color=GRAY, linewidth=1, zorder=1)
                axes.plot([value], [y], "o", color=BLUE, markersize=3.5, zorder=2)
                if name == "dep_alignment_mean":
                    baseline = float(data["dep_baseline"])
                    axes.plot([baseline], [y], "|", color=ORANGE, markersize=7, zorder=2)
            units = "share" if display.is_share else display.units
            axes.set_title(f"{display.short_title}\n({units})", fontsize=8)
            axes.grid(axis="y", color="#EEEEEE", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.locator_params(axis="x", nbins=4)
            axes.tick_params(axis="y", length=0)
        grid[0].set_yticks(places, labels)
    return figure


def draw_score_parts(score: ExplainedScore, n: int = 8) -> Figure:
    """See `ExplainedScore.figure`."""
    with styled():
        figure = new_figure(9, 0.6 + 0.32 * n)
        for axes, side in zip(figure.subplots(1, 2), SIDES, strict=True):
            rows = score.top(n, side)[::-1]
            values = [value for _, value in rows]
            colors = [BLUE if value >= 0 else ORANGE for value in values]
            axes.barh(range(len(rows)), values, color=colors)
            axes.set_yticks(range(len(rows)), [name for name, _ in rows])
            axes.axvline(0, color=GRAY, linewidth=0.8)
            axes.set_xlabel("score above the other keys")
            axes.set_title(f"by the {side}'s parts")
        figure.suptitle(score.title, fontsize=10)
    return figure
