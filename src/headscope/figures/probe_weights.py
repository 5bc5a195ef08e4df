"""Which heads a trained probe relies on (Clark et al. 2019, section 5)."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headscope.figures.heatmaps import draw_heads
from headscope.figures.style import caption, new_figure, styled

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
