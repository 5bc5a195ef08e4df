"""Style and files of all figures. Colors are the palette of Okabe and Ito (2008)."""

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
MORE = ("#882255", "#44AA99", "#999933", "#332288", "#AA4499", "#661100", "#88CCEE", "#117733")
"""Colors of Tol (2021), for maps with many roles."""
LIGHT = "#C4C4C4"
DASHED = (0, (4, 3))

_RC_PARAMS: Any = {
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
    """Apply headscope's matplotlib style within the block."""
    with mpl.rc_context({**_RC_PARAMS, "font.family": _fonts()}):
        yield


@cache
def _fonts() -> list[str]:
    """Return the first installed font, and the last as a fallback for missing characters.
    "sans-serif" would become another font if a figure is saved outside `styled`.
    """
    installed = set(font_manager.get_font_names())
    first = next(name for name in FONTS if name in installed)
    return list(dict.fromkeys((first, FONTS[-1])))


def caption(figure: Figure, text: str) -> None:
    """Add a small gray line below the figure."""
    figure.supxlabel(text, fontsize=6.5, color=GRAY)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of its suffix; the file appears when complete."""
    suffix = path.suffix.removeprefix(".")
    with atomic_path(path) as temporary, styled():
        # Without a date, equal figures give equal SVG files.
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(temporary, format=suffix, metadata=metadata)
    return path


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure in inches, unknown to pyplot: it needs no closing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def ticks(n: int, most: int = 12) -> list[int]:
    """Return positions to label among n, evenly spaced by 1, 2, 5 or 10."""
    step = next((s for s in (1, 2, 5, 10, 20) if n / s <= most), 50)
    return list(np.arange(0, n, step))
