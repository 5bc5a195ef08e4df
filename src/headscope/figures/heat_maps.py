"""Heat maps over layers × heads: Vig & Belinkov's Figures 5, 6, 7, 10, 11 (left), 12, A.1, A.2.

Values by layer: Vig & Belinkov's Figures 8, 9 and 11.

Which heads a trained probe relies on (Clark et al. 2019, section 5).
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
"""The tags most papers show first; a figure takes those that occur."""


def heat_map(values: xr.DataArray) -> Figure:
    """One value per head. Layers go down, heads across, as in the paper."""
    known = display_of(values)
    n_layers, n_heads = values.sizes["layer"], values.sizes["head"]
    cell = 0.24 if n_layers <= 16 else 0.15
    with styled():
        figure = new_figure(1.5 + cell * n_heads, 0.9 + cell * n_layers)
        axes = figure.add_subplot()
        draw_heads(figure, axes, values, label=known.units)
        axes.set_title(known.title)
    return figure


def tag_maps(
    values: xr.DataArray, *, dim: str = "tag", labels: Sequence[str] | None = None
) -> Figure:
    """A heat map for each label (all of them by default), each with its own scale."""
    by_name = {str(label): label for label in values[dim].values.tolist()}
    known = list(by_name)
    shown = known if labels is None else [x for x in labels if x in known]
    if not shown:
        raise InputError(f"None of {labels} is among the labels of {values.name}: {known}.")
    columns = min(len(shown), 6)
    rows = math.ceil(len(shown) / columns)
    n_layers, n_heads = values.sizes["layer"], values.sizes["head"]
    cell = min(0.105, 1.6 / max(n_layers, n_heads))
    wide, high = cell * n_heads, cell * n_layers
    width, height = max(1.35, wide + 0.75), high + 0.55
    heads = [str(head) for head in values["head"].values]
    layers = [str(layer) for layer in values["layer"].values]
    with styled():
        figure, axes = new_canvas(columns * width + 0.1, rows * height + 0.35)
        for number, name in enumerate(shown):
            row, column = divmod(number, columns)
            at = Panel(0.35 + column * width, 0.45 + row * height, wide, high)
            is_last = number + columns >= len(shown)
            labels_of_panel = PanelLabels(
                label_of(dim, name), heads, "head" * is_last, "layer" * (column == 0)
            )
            array = values.sel({dim: by_name[name]}).transpose("layer", "head").values
            draw_map(axes, at, array, labels_of_panel, layers)
        axes.set_title(display_of(values).title, fontsize=9, y=1 - 0.2 / figure.get_figheight())
    return figure


def draw_heads(figure: Figure, axes: Axes, values: xr.DataArray, *, label: str = "") -> None:
    """The heat map itself, with its color bar from 0 to the highest value."""
    array = values.transpose("layer", "head").values
    highest = np.nanmax(array) if np.isfinite(array).any() else 1.0
    colors = mpl.colormaps[HEAT].with_extremes(bad=MISSING)
    image = axes.imshow(array, cmap=colors, vmin=0, vmax=highest or 1.0, aspect="equal")
    n_layers, n_heads = array.shape
    axes.set_xticks(ticks(n_heads, 16), [str(n) for n in values["head"].values[ticks(n_heads, 16)]])
    axes.set_yticks(
        ticks(n_layers, 16), [str(n) for n in values["layer"].values[ticks(n_layers, 16)]]
    )
    axes.tick_params(length=0, labelsize=7, pad=1.5)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.03, aspect=22)
    bar.outline.set_linewidth(0)
    bar.ax.tick_params(length=1.5, labelsize=7, pad=1.5)
    bar.ax.locator_params(nbins=6)
    if label:
        bar.set_label(label)


MAX_TYPES = 24


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
        panels[0].set_ylabel(display_of(data["dep_alignment"]).units)
        panels[0].legend(loc="upper right", handlelength=1.2)
    return figure


def types_by_layer(data: xr.Dataset) -> Figure:
    """Share of attention to each dependency relation by layer, most frequent first (Figure 9)."""
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
            at = Panel(0.6 + 1.25 * column, 0.25 + 1.05 * row, 0.9, 0.75)
            is_last = number + columns >= len(names)
            labels = PanelLabels(name, layers, "layer" * is_last)
            bounds = None
            if "dep_type_to_by_layer_interval" in data:
                bounds = data["dep_type_to_by_layer_interval"].sel(relation=name).values
            draw_bar_panel(axes, at, values.sel(relation=name).values, bounds, labels)
        middle = figure.get_figheight() / 2
        units = display_of(data["dep_type_to"]).units
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
        known = display_of(data["distance"])
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


DIRECTIONS = {
    "dependent": "The word attends to its candidate parent",
    "candidate": "The candidate parent attends to the word",
}


def reliance_figure(reliance: xr.DataArray, *, title: str) -> Figure:
    """A heat map of layers × heads for each direction of attention, on one scale.

    Args:
        reliance: `Probe.reliance`: over direction, layer and head.
        title: the model and the kind of probe.
    """
    n_layers, n_heads = reliance.sizes["layer"], reliance.sizes["head"]
    cell = 0.24 if n_layers <= 16 else 0.15
    highest = float(np.nanmax(reliance.values))
    with styled():
        width = max(2.6, cell * n_heads + 0.9)
        figure = new_figure(2 * width + 0.4, 1.15 + max(cell * n_layers, 1.2))
        panels = figure.subplots(1, 2)
        for axes, (direction, label) in zip(panels, DIRECTIONS.items(), strict=True):
            values = reliance.sel(direction=direction)
            draw_heads(figure, axes, values, label="nats" if direction == "candidate" else "")
            axes.images[0].set_clim(0, highest or 1.0)
            axes.set_title(label, fontsize=7.5)
        figure.suptitle(title, fontsize=9)
        caption(
            figure,
            "spread of a head's part of the score over a word's candidates · most: "
            + ", ".join(_most(reliance)),
        )
    return figure


def _most(reliance: xr.DataArray, n: int = 4) -> list[str]:
    """The heads with the highest values of both directions together."""
    total = reliance.sum("direction")
    order = np.argsort(-np.nan_to_num(total.values).ravel(), kind="stable")[:n]
    rows, columns = np.unravel_index(order, total.shape)
    return [
        f"L{int(total['layer'][row])} H{int(total['head'][column])}"
        for row, column in zip(rows, columns, strict=True)
    ]
