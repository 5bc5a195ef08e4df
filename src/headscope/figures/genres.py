"""What changes between kinds of text: the papers' open question, from a grouped result."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.style import BLUE, GRAY, ORANGE, new_figure, styled
from headscope.results.described import described
from headscope.results.result import Result

SHOWN = ("null_share", "distance", "entropy", "dep_alignment")


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
    panels = {f"{name}_mean": described(first[name]) for name in SHOWN if name in first}
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
