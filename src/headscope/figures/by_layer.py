"""Values by layer: Vig & Belinkov's Figures 8, 9 and 11."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headscope.figures.heatmaps import draw_heads
from headscope.figures.panels import Labels, Panel, draw_bar_panel, new_canvas
from headscope.figures.style import BLUE, GRAY, ORANGE, new_figure, styled, ticks
from headscope.results.described import described, label_of

MOST_TYPES = 24


def alignment_by_layer(data: xr.Dataset) -> Figure:
    """Share of attention along dependency arcs by layer, with the baseline (Figure 8)."""
    with styled():
        figure = new_figure(7.0, 2.2)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, form in zip(panels, data["parent"].values.tolist(), strict=True):
            draw_bars(axes, data, "dep_alignment", parent=form)
            baseline = float(data["dep_baseline_by_parent"].sel(parent=form))
            axes.axhline(baseline, color=ORANGE, linewidth=1.5, label="all token pairs")
            axes.set_title(label_of("parent", form))
        panels[0].set_ylabel(described(data["dep_alignment"]).units)
        panels[0].legend(loc="upper right", handlelength=1.2)
    return figure


def types_by_layer(data: xr.Dataset) -> Figure:
    """Share of attention to each dependency relation by layer, most frequent first (Figure 9)."""
    values = data["dep_type_to_by_layer"]
    mean = values.mean("layer").values
    order = np.argsort(-mean, kind="stable")[:MOST_TYPES]
    names = [str(values["relation"].values[n]) for n in order if mean[n] > 0]
    columns = min(6, max(len(names), 1))
    rows = max(1, math.ceil(len(names) / columns))
    with styled():
        figure, axes = new_canvas(1.25 * columns + 0.35, 1.05 * rows + 0.4)
        layers = [str(layer) for layer in values["layer"].values]
        for number, name in enumerate(names):
            row, column = divmod(number, columns)
            at = Panel(0.6 + 1.25 * column, 0.25 + 1.05 * row, 0.9, 0.75)
            is_last = number + columns >= len(names)
            labels = Labels(name, layers, "layer" * is_last)
            bounds = None
            if "dep_type_to_by_layer_interval" in data:
                bounds = data["dep_type_to_by_layer_interval"].sel(relation=name).values
            draw_bar_panel(axes, at, values.sel(relation=name).values, bounds, labels)
        middle = figure.get_figheight() / 2
        units = described(data["dep_type_to"]).units
        axes.text(0.12, middle, units, rotation=90, ha="center", va="center", fontsize=8)
    return figure


def distance_figure(data: xr.Dataset) -> Figure:
    """Mean distance by head and by layer (Figure 11)."""
    n_layers, n_heads = data["distance"].sizes["layer"], data["distance"].sizes["head"]
    cell = 0.24 if n_layers <= 16 else 0.15
    with styled():
        figure = new_figure(1.6 + cell * n_heads + 2.4, max(2.2, 0.8 + cell * n_layers))
        left, right = figure.subplots(
            1, 2, gridspec_kw={"width_ratios": [cell * n_heads + 0.9, 2.4]}
        )
        known = described(data["distance"])
        label = f"{known.title.lower()} ({known.units})"
        draw_heads(figure, left, data["distance"], label=label)
        draw_bars(right, data, "distance", is_horizontal=True)
        right.set_xlabel(label)
        right.set_ylabel("layer")
    return figure


def draw_bars(
    axes: Axes, data: xr.Dataset, name: str, *, is_horizontal: bool = False, **labels: str
) -> None:
    """Bars by layer, with 95 % intervals where there are any."""
    values = data[f"{name}_by_layer"].sel(labels)
    layers = values["layer"].values
    at = np.arange(len(layers))
    whiskers = None
    if f"{name}_by_layer_interval" in data:
        low, high = data[f"{name}_by_layer_interval"].sel(labels).values
        whiskers = np.abs(np.stack((values.values - low, high - values.values)))
    options = {"color": BLUE, "error_kw": {"elinewidth": 0.7, "ecolor": GRAY}}
    shown = ticks(len(layers))
    if is_horizontal:
        axes.barh(at, values.values, 0.8, xerr=whiskers, **options)  # type: ignore[arg-type]
        axes.set_yticks(shown, [str(layers[n]) for n in shown])
        axes.invert_yaxis()
    else:
        axes.bar(at, values.values, 0.8, yerr=whiskers, **options)  # type: ignore[arg-type]
        axes.set_xticks(shown, [str(layers[n]) for n in shown])
        axes.set_xlabel("layer")
