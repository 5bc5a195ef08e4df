"""Heat maps over layers × heads: Vig & Belinkov's Figures 5, 6, 7, 10, 11 (left), 12, A.1, A.2."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headscope.errors import InputError
from headscope.figures.panels import Labels, Panel, draw_map, new_canvas
from headscope.figures.style import HEAT, MISSING, new_figure, styled, ticks
from headscope.results.described import described, label_of

MAIN_TAGS = ("NOUN", "PROPN", "PUNCT", "DET")
"""The tags most papers show first; a figure takes those that occur."""


def heat_map(values: xr.DataArray) -> Figure:
    """One value per head. Layers go down, heads across, as in the paper."""
    known = described(values)
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
            labels_of_panel = Labels(
                label_of(dim, name), heads, "head" * is_last, "layer" * (column == 0)
            )
            array = values.sel({dim: by_name[name]}).transpose("layer", "head").values
            draw_map(axes, at, array, labels_of_panel, layers)
        axes.set_title(described(values).title, fontsize=9, y=1 - 0.2 / figure.get_figheight())
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
