"""How figures look: one quiet style, colors that color-blind readers tell apart.

Heat maps use one hue from light to dark, so they also print in gray. Lines and marks use
the palette of Okabe and Ito (2008).

Dozens of small panels on one canvas: heat maps and bars, with their scales.

Each panel as axes of its own, with ticks and a color bar, takes matplotlib longer than a model
takes for hundreds of sentences. Here they are images, bars and words in one coordinate system, in
inches from the upper left corner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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


SMALL = 5.5
"""Points of the numbers beside a panel."""
BAR = 0.06
"""Inches of the width of a color bar."""


class Panel(NamedTuple):
    """Where a panel lies, in inches."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height


class PanelLabels(NamedTuple):
    """What is written around a panel."""

    title: str
    across: list[str]
    """A name for each column, of which some are shown."""
    below: str = ""
    beside: str = ""


def new_canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure, and axes that cover it and are measured in inches."""
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    return figure, axes


def draw_map(
    axes: Axes, at: Panel, values: np.ndarray, labels: PanelLabels, down: list[str]
) -> None:
    """A heat map (`row column`) with a color bar from 0 to its highest value."""
    highest = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
    highest = highest or 1.0
    colors = mpl.colormaps[HEAT].with_extremes(bad=MISSING)
    bar = Panel(at.right + 0.05, at.top + 0.08 * at.height, BAR, 0.84 * at.height)
    for panel, image, most in (
        (at, values, highest),
        (bar, np.linspace(1, 0, 64)[:, None], 1.0),
    ):
        extent = (panel.left, panel.right, panel.bottom, panel.top)
        axes.imshow(image, cmap=colors, vmin=0, vmax=most, aspect="auto", extent=extent)
    n_down, n_across = values.shape
    for n in ticks(n_down, 6):
        y = at.top + (n + 0.5) * at.height / n_down
        _write(axes, at.left - 0.03, y, down[n], ha="right", va="center")
    _write_across(axes, at, labels, ticks(n_across, 6))
    for value in _steps(highest, 4):
        y = bar.bottom - value / highest * bar.height
        _write(axes, bar.right + 0.03, y, f"{value:.4g}", ha="left", va="center")
    if labels.beside:
        middle = at.top + at.height / 2
        _write(axes, at.left - 0.24, middle, labels.beside, va="center", rotation=90, size=8)


def draw_bar_panel(
    axes: Axes, at: Panel, values: np.ndarray, bounds: np.ndarray | None, labels: PanelLabels
) -> None:
    """Bars from 0 on a scale of their own, with whiskers where there are `bounds` (`bound bar`)."""
    highest = np.nanmax(values if bounds is None else np.fmax(values, bounds[1]), initial=0.0)
    highest = float(highest) * 1.05 or 1.0
    x = at.left + (np.arange(len(values)) + 0.5) * at.width / len(values)
    y = at.bottom - values / highest * at.height
    half = 0.4 * at.width / len(values)
    base = np.full_like(y, at.bottom)
    corners = np.stack([(x - half, base), (x - half, y), (x + half, y), (x + half, base)])
    axes.add_collection(
        PolyCollection(list(corners.transpose(2, 0, 1)), facecolor=BLUE), autolim=False
    )
    if bounds is not None:
        ends = at.bottom - np.clip(bounds, 0, None) / highest * at.height
        lines = np.stack([np.stack([x, ends[0]], -1), np.stack([x, ends[1]], -1)], 1)
        axes.add_collection(LineCollection(list(lines), colors=GRAY, linewidths=0.7), autolim=False)
    frame = [[(at.left, at.top), (at.left, at.bottom), (at.right, at.bottom)]]
    axes.add_collection(LineCollection(frame, colors="black", linewidths=0.6), autolim=False)
    for value in _steps(highest, 3):
        level = at.bottom - value / highest * at.height
        _write(axes, at.left - 0.03, level, f"{value:.4g}", ha="right", va="center", size=6)
    _write_across(axes, at, labels, ticks(len(values)) if labels.below else [])


def _write_across(axes: Axes, at: Panel, labels: PanelLabels, shown: list[int]) -> None:
    """The title above a panel, names of columns and of their axis below it."""
    _write(axes, at.left + at.width / 2, at.top - 0.04, labels.title, va="bottom", size=8)
    for n in shown:
        x = at.left + (n + 0.5) * at.width / len(labels.across)
        _write(axes, x, at.bottom + 0.03, labels.across[n], va="top")
    if labels.below:
        _write(axes, at.left + at.width / 2, at.bottom + 0.13, labels.below, va="top", size=8)


def _steps(highest: float, n: int) -> list[float]:
    """Round numbers from 0 to at most the highest value."""
    return [value for value in MaxNLocator(n).tick_values(0, highest) if 0 <= value <= highest]


def _write(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    ha: str = "center",
    va: str,
    rotation: float = 0,
    size: float = SMALL,
) -> None:
    axes.text(x, y, text, ha=ha, va=va, rotation=rotation, fontsize=size)
