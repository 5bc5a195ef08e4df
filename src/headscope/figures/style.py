"""How figures look: one quiet style, colors that color-blind readers tell apart.

Heat maps use one hue from light to dark, so they also print in gray. Lines and marks use
the palette of Okabe and Ito (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headscope.atomic import atomic_path

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, GRAY = "#56B4E9", "#D55E00", "#7F7F7F"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GRAY)
HEAT = "Blues"
MISSING = "#EEEEEE"

_STYLE: Any = {
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


FONTS = ("Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")


@contextmanager
def styled() -> Iterator[None]:
    """Within the block, matplotlib draws in our style; outside, as the user likes."""
    with mpl.rc_context({**_STYLE, "font.family": _fonts()}):
        yield


@cache
def _fonts() -> list[str]:
    """The first of our fonts that is installed; then the last, for characters the first lacks.

    By their names: "sans-serif" would become another font where a figure is saved outside
    `styled`, after its words were measured and placed.
    """
    installed = set(font_manager.get_font_names())
    first = next(name for name in FONTS if name in installed)
    return list(dict.fromkeys((first, FONTS[-1])))


def caption(figure: Figure, text: str) -> None:
    """A small gray line below everything, which says what is shown."""
    figure.supxlabel(text, fontsize=6.5, color=GRAY)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of its suffix; the file appears when it is complete."""
    suffix = path.suffix.removeprefix(".")
    with atomic_path(path) as temporary, styled():
        # Without its date an SVG of the same figure is the same file.
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(temporary, format=suffix, metadata=metadata)
    return path


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, not known to pyplot: nothing to close, no windows."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def ticks(n: int, most: int = 12) -> list[int]:
    """Positions to label among n, evenly spaced by 1, 2, 5 or 10."""
    step = next((s for s in (1, 2, 5, 10, 20) if n / s <= most), 50)
    return list(np.arange(0, n, step))
