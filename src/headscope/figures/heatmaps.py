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
from headscope.figures.style import HEAT, MISSING, hide, new_figure, styled, ticks
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
    values: xr.DataArray,
    *,
    dim: str = "tag",
    labels: Sequence[str] | None = None,
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
    width = max(1.35, cell * n_heads + 0.75)
    height = cell * n_layers + 0.55
    with styled():
        figure = new_figure(columns * width, rows * height + 0.3)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(shown) :]:
            hide(axes)
        for number, (axes, name) in enumerate(zip(grid.flat, shown, strict=False)):
            is_left, is_last = number % columns == 0, number + columns >= len(shown)
            draw_heads(figure, axes, values.sel({dim: by_name[name]}), is_small=True)
            axes.set_title(label_of(dim, name), fontsize=8)
            axes.set_xlabel("head" if is_last else "", labelpad=1)
            axes.set_ylabel("layer" if is_left else "", labelpad=1)
        figure.suptitle(described(values).title, fontsize=9)
    return figure


def draw_heads(
    figure: Figure,
    axes: Axes,
    values: xr.DataArray,
    *,
    label: str = "",
    is_small: bool = False,
) -> None:
    """The heat map itself, with its color bar from 0 to the highest value."""
    array = values.transpose("layer", "head").values
    highest = np.nanmax(array) if np.isfinite(array).any() else 1.0
    colors = mpl.colormaps[HEAT].with_extremes(bad=MISSING)
    image = axes.imshow(array, cmap=colors, vmin=0, vmax=highest or 1.0, aspect="equal")
    n_layers, n_heads = array.shape
    most = 6 if is_small else 16
    axes.set_xticks(
        ticks(n_heads, most), [str(n) for n in values["head"].values[ticks(n_heads, most)]]
    )
    axes.set_yticks(
        ticks(n_layers, most), [str(n) for n in values["layer"].values[ticks(n_layers, most)]]
    )
    axes.tick_params(length=0, labelsize=5.5 if is_small else 7, pad=1.5)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.03, aspect=16 if is_small else 22)
    bar.outline.set_linewidth(0)
    bar.ax.tick_params(length=1.5, labelsize=5.5 if is_small else 7, pad=1.5)
    bar.ax.locator_params(nbins=4 if is_small else 6)
    if label:
        bar.set_label(label)
