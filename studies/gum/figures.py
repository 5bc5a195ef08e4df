"""The figures of the study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import headscope as hs
from headscope.figures.style import BLUE, GRAY, ORANGE, new_figure, styled
from studies.gum.measure import Runs

__all__ = ["save_study_figures"]

PANELS = {
    "null_share": "null attention (share)",
    "dep_alignment": "dependency alignment (share)",
    "distance": "distance (tokens)",
    "entropy": "entropy (nats)",
}


def save_study_figures(runs: Mapping[str, Runs], folder: Path) -> None:
    """By layer, by genre, and the map of heads."""
    folder.mkdir(parents=True, exist_ok=True)
    with styled():
        _by_layer(runs).savefig(folder / "layers.png", dpi=170)
        for name, run in runs.items():
            run.structure.figure("genres").savefig(folder / f"genres-{name}.png", dpi=170)
            figure = hs.map_heads(run.surface).figure()
            figure.savefig(folder / f"map-{name}.png", dpi=150)


def _by_layer(runs: Mapping[str, Runs]):  # type: ignore[no-untyped-def]
    """Values by depth with intervals, both models in one panel."""
    figure = new_figure(7.6, 2.1)
    grid = figure.subplots(1, len(PANELS))
    for axes, (name, title) in zip(grid, PANELS.items(), strict=True):
        for color, (model, run) in zip((BLUE, ORANGE), runs.items(), strict=True):
            data = run.structure.dataset
            labels = {"parent": "either"} if name == "dep_alignment" else {}
            values = data[f"{name}_by_layer"].sel(labels)
            low, high = data[f"{name}_by_layer_interval"].sel(labels).values
            depth = values["layer"].values / (values.sizes["layer"] - 1)
            axes.fill_between(depth, low, high, color=color, alpha=0.25, linewidth=0)
            axes.plot(depth, values.values, ".-", color=color, markersize=3, linewidth=1)
            axes.plot([], [], ".-", color=color, label=model)
            if name == "dep_alignment":
                axes.axhline(
                    float(data["dep_baseline"]), color=color, linewidth=0.8, ls=(0, (3, 2))
                )
        axes.set_title(title, fontsize=8)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("depth", color=GRAY)
    grid[0].legend(loc="best")
    return figure
