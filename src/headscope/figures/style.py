"""How figures look: one quiet style, colors that color-blind readers tell apart.

Heat maps use one hue from light to dark, so they also print in gray. Lines and marks use
the palette of Okabe and Ito (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["BLUE", "GRAY", "GREEN", "HEAT", "ORANGE", "PALETTE", "new_figure", "styled", "ticks"]

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, GRAY = "#56B4E9", "#D55E00", "#7F7F7F"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GRAY)
HEAT = "Blues"
MISSING = "#EEEEEE"

_STYLE: Any = {
    "font.family": ["sans-serif", "DejaVu Sans"],  # the second for what the first lacks
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.fonttype": "none",
    "svg.hashsalt": "headscope",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "figure.dpi": 100,
}


@contextmanager
def styled() -> Iterator[None]:
    """Within the block, matplotlib draws in our style; outside, as the user likes."""
    with mpl.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, not known to pyplot: nothing to close, no windows."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def ticks(n: int, most: int = 12) -> list[int]:
    """Positions to label among n, evenly spaced by 1, 2, 5 or 10."""
    step = next((s for s in (1, 2, 5, 10, 20) if n / s <= most), 50)
    return list(np.arange(0, n, step))


def hide(axes: Axes) -> None:
    """A panel that is not used."""
    axes.set_axis_off()
