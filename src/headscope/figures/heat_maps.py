"""Heat maps and bars by layer: Vig & Belinkov's Figures 5 to 12, A.1, A.2, and reliance.

Reliance is that of a trained probe on heads (Clark et al. 2019, section 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.style import (
    BLUE,
    GRAY,
    HEAT,
    MISSING,
    ORANGE,
    Panel,
    PanelLabels,
    caption,
    draw_bar_panel,
    draw_map,
    new_canvas,
    new_figure,
    styled,
    ticks,
)
from headscope.results.display import display_of, label_of

MAIN_TAGS = ("NOUN", "PROPN", "PUNCT", "DET")
"""Tags that most papers show first; a figure has those that occur."""


def heat_map(values: xr.DataArray) -> Figure:
    """Draw one value per head. Layers go down, heads across, as in the paper."""
    display = display_of(values)
    cell = _cell_size(values)
    with styled():
        figure = new_figure(1.5 + cell * values.sizes["head"], 0.9 + cell * values.sizes["layer"])
        axes = figure.add_subplot()
        draw_heads(figure, axes, values, label=display.units)
        axes.set_title(display.title)
    return figure


def _cell_size(values: xr.DataArray) -> float:
    return 0.24 if values.sizes["layer"] <= 16 else 0.15


def tag_maps(
    values: xr.DataArray, *, dim: str = "tag", labels: Sequence[str] | None = None
) -> Figure:
    """Draw a heat map for each label (all by default), each with its own scale."""
    by_name = {str(label): label for label in values[dim].values.tolist()}
    names = list(by_name)
    drawn = names if labels is None else [x for x in labels if x in names]
    if not drawn:
        raise InputError(f"None of {labels} is among the labels of {values.name}: {names}.")
    columns = min(len(drawn), 6)
    rows = math.ceil(len(drawn) / columns)
    n_layers, n_heads = values.sizes["layer"], values.sizes["head"]
    cell = min(0.105, 1.6 / max(n_layers, n_heads))
    wide, high = cell * n_heads, cell * n_layers
    width, height = max(1.35, wide + 0.75), high + 0.55
    heads = [str(head) for head in values["head"].values]
    layers = [str(layer) for layer in values["layer"].values]
    with styled():
        figure, axes = new_canvas(columns * width + 0.1, rows * height + 0.35)
        for number, name in enumerate(drawn):
            row, column = divmod(number, columns)
            panel = Panel(0.35 + column * width, 0.45 + row * height, wide, high)
            is_last = number + columns >= len(drawn)
            panel_labels = PanelLabels(
                label_of(dim, name), heads, "head" * is_last, "layer" * (column == 0)
            )
            array = values.sel({dim: by_name[name]}).transpose("layer", "head").values
            draw_map(axes, panel, array, panel_labels, layers)
        axes.set_title(display_of(values).title, fontsize=9, y=1 - 0.2 / figure.get_figheight())
    return figure


def draw_heads(figure: Figure, axes: Axes, values: xr.DataArray, *, label: str = "") -> None:
    """Draw the heat map with its color bar from 0 to the highest value."""
    array = values.transpose("layer", "head").values
    highest = np.nanmax(array) if np.isfinite(array).any() else 1.0
    colors = mpl.colormaps[HEAT].with_extremes(bad=MISSING)
    image = axes.imshow(array, cmap=colors, vmin=0, vmax=highest or 1.0, aspect="equal")
    for set_ticks, dim in ((axes.set_xticks, "head"), (axes.set_yticks, "layer")):
        places = ticks(values.sizes[dim], 16)
        set_ticks(places, [str(n) for n in values[dim].values[places]])
    axes.tick_params(length=0, labelsize=7, pad=1.5)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.03, aspect=22)
    bar.outline.set_linewidth(0)
    bar.ax.tick_params(length=1.5, labelsize=7, pad=1.5)
    bar.ax.locator_params(nbins=6)
    if label:
        bar.set_label(label)


MAX_TYPES = 24


def alignment_by_layer(data: xr.Dataset) -> Figure:
    """Draw the share of attention along dependency arcs by layer, with the baseline (Figure 8)."""
    with styled():
        figure = new_figure(7.0, 2.2)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, form in zip(panels, data["parent"].values.tolist(), strict=True):
            draw_bars(axes, data, "dep_alignment", parent=form)
            baseline = float(data["dep_baseline_by_parent"].sel(parent=form))
            axes.axhline(baseline, color=ORANGE, linewidth=1.5, label="all token pairs")
            axes.set_title(label_of("parent", form))
        panels[0].set_ylabel(display_of(data["dep_alignment"]).units)
        panels[0].legend(loc="upper right", handlelength=1.2)
    return figure


def types_by_layer(data: xr.Dataset) -> Figure:
    """Draw the share of attention to each relation by layer, most frequent first (Figure 9)."""
    values = data["dep_type_to_by_layer"]
    mean = values.mean("layer").values
    order = np.argsort(-mean, kind="stable")[:MAX_TYPES]
    names = [str(values["relation"].values[n]) for n in order if mean[n] > 0]
    columns = min(6, max(len(names), 1))
    rows = max(1, math.ceil(len(names) / columns))
    with styled():
        figure, axes = new_canvas(1.25 * columns + 0.35, 1.05 * rows + 0.4)
        layers = [str(layer) for layer in values["layer"].values]
        for number, name in enumerate(names):
            row, column = divmod(number, columns)
            panel = Panel(0.6 + 1.25 * column, 0.25 + 1.05 * row, 0.9, 0.75)
            is_last = number + columns >= len(names)
            labels = PanelLabels(name, layers, "layer" * is_last)
            bounds = None
            if "dep_type_to_by_layer_interval" in data:
                bounds = data["dep_type_to_by_layer_interval"].sel(relation=name).values
            draw_bar_panel(axes, panel, values.sel(relation=name).values, bounds, labels)
        middle = figure.get_figheight() / 2
        units = display_of(data["dep_type_to"]).units
        axes.text(0.12, middle, units, rotation=90, ha="center", va="center", fontsize=8)
    return figure


def distance_figure(data: xr.Dataset) -> Figure:
    """Draw the mean distance by head and by layer (Figure 11)."""
    n_layers, n_heads = data["distance"].sizes["layer"], data["distance"].sizes["head"]
    cell = _cell_size(data["distance"])
    with styled():
        figure = new_figure(1.6 + cell * n_heads + 2.4, max(2.2, 0.8 + cell * n_layers))
        left, right = figure.subplots(
            1, 2, gridspec_kw={"width_ratios": [cell * n_heads + 0.9, 2.4]}
        )
        display = display_of(data["distance"])
        label = f"{display.title.lower()} ({display.units})"
        draw_heads(figure, left, data["distance"], label=label)
        draw_bars(right, data, "distance", is_horizontal=True)
        right.set_xlabel(label)
        right.set_ylabel("layer")
    return figure


def draw_bars(
    axes: Axes, data: xr.Dataset, name: str, *, is_horizontal: bool = False, **labels: str
) -> None:
    """Draw bars by layer, with 95 % intervals if there are any."""
    values = data[f"{name}_by_layer"].sel(labels)
    layers = values["layer"].values
    places = np.arange(len(layers))
    whiskers = None
    if f"{name}_by_layer_interval" in data:
        low, high = data[f"{name}_by_layer_interval"].sel(labels).values
        whiskers = np.abs(np.stack((values.values - low, high - values.values)))
    options = {"color": BLUE, "error_kw": {"elinewidth": 0.7, "ecolor": GRAY}}
    tick_places = ticks(len(layers))
    names = [str(layers[n]) for n in tick_places]
    if is_horizontal:
        axes.barh(places, values.values, 0.8, xerr=whiskers, **options)  # type: ignore[arg-type]
        axes.set_yticks(tick_places, names)
        axes.invert_yaxis()
    else:
        axes.bar(places, values.values, 0.8, yerr=whiskers, **options)  # type: ignore[arg-type]
        axes.set_xticks(tick_places, names)
        axes.set_xlabel("layer")


RELIANCE_TITLES = {
    "dependent": "The word attends to its candidate parent",
    "candidate": "The candidate parent attends to the word",
}


def reliance_figure(reliance: xr.DataArray, *, title: str) -> Figure:
    """Draw a heat map for each direction of attention, on one scale.

    Args:
        reliance: `Probe.reliance`, over direction, layer and head.
        title: model and kind of probe.
    """
    n_layers, n_heads = reliance.sizes["layer"], reliance.sizes["head"]
    cell = _cell_size(reliance)
    highest = float(np.nanmax(reliance.values))
    with styled():
        width = max(2.6, cell * n_heads + 0.9)
        figure = new_figure(2 * width + 0.4, 1.15 + max(cell * n_layers, 1.2))
        panels = figure.subplots(1, 2)
        for axes, (direction, label) in zip(panels, RELIANCE_TITLES.items(), strict=True):
            values = reliance.sel(direction=direction)
            draw_heads(figure, axes, values, label="nats" if direction == "candidate" else "")
            axes.images[0].set_clim(0, highest or 1.0)
            axes.set_title(label, fontsize=7.5)
        figure.suptitle(title, fontsize=9)
        caption(
            figure,
            "spread of a head's part of the score over a word's candidates · most: "
            + ", ".join(_top_heads(reliance)),
        )
    return figure


def _top_heads(reliance: xr.DataArray, n: int = 4) -> list[str]:
    """Return the heads with the highest sums over both directions."""
    total = reliance.sum("direction")
    order = np.argsort(-np.nan_to_num(total.values).ravel(), kind="stable")[:n]
    rows, columns = np.unravel_index(order, total.shape)
    return [
        f"L{int(total['layer'][row])} H{int(total['head'][column])}"
        for row, column in zip(rows, columns, strict=True)
    ]
