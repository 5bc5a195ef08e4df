"""Style, colors and panels of all figures.

Heat maps use one hue from light to dark, so they also print in gray. Lines and marks use
the color-blind palette of Okabe and Ito (2008). Small panels share one canvas in inches from the
upper left corner: separate axes for each would take longer to draw than a corpus to measure.
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
DASHED, DASHED_SHORT = (0, (4, 3)), (0, (3, 2))

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

    Fonts are named: "sans-serif" would become another font if a figure is saved outside
    `styled`, after its words were measured and placed.
    """
    installed = set(font_manager.get_font_names())
    first = next(name for name in FONTS if name in installed)
    return list(dict.fromkeys((first, FONTS[-1])))


def caption(figure: Figure, text: str) -> None:
    """Add a small gray line below the figure."""
    figure.supxlabel(text, fontsize=6.5, color=GRAY)


def corner_text(
    axes: Axes, text: str, *, y: float, va: str, size: float = 7, color: str = "black"
) -> None:
    """Add a text at the right edge of a panel, at height `y` from 0 to 1."""
    place = {"transform": axes.transAxes, "ha": "right", "va": va}
    axes.text(0.98, y, text, **place, fontsize=size, color=color)  # type: ignore[arg-type]


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


SMALL = 5.5
"""Font size of the numbers beside a panel."""
BAR = 0.06
"""Width of a color bar in inches."""


class Panel(NamedTuple):
    """Place of a panel, in inches."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.top + self.height


class PanelLabels(NamedTuple):
    """Labels around a panel."""

    title: str
    across: list[str]
    """Names of all columns; ticks show some."""
    below: str = ""
    beside: str = ""


def new_canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure, and axes in inches that cover it."""
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    return figure, axes


def draw_map(
    axes: Axes, panel: Panel, values: np.ndarray, labels: PanelLabels, down: list[str]
) -> None:
    """Draw a heat map (`row column`) with a color bar from 0 to its highest value."""
    highest = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
    highest = highest or 1.0
    colors = mpl.colormaps[HEAT].with_extremes(bad=MISSING)
    bar = Panel(panel.right + 0.05, panel.top + 0.08 * panel.height, BAR, 0.84 * panel.height)
    for place, image, most in (
        (panel, values, highest),
        (bar, np.linspace(1, 0, 64)[:, None], 1.0),
    ):
        extent = (place.left, place.right, place.bottom, place.top)
        axes.imshow(image, cmap=colors, vmin=0, vmax=most, aspect="auto", extent=extent)
    n_down, n_across = values.shape
    for n in ticks(n_down, 6):
        y = panel.top + (n + 0.5) * panel.height / n_down
        _write(axes, panel.left - 0.03, y, down[n], ha="right", va="center")
    _write_across(axes, panel, labels, ticks(n_across, 6))
    for value in _steps(highest, 4):
        y = bar.bottom - value / highest * bar.height
        _write(axes, bar.right + 0.03, y, f"{value:.4g}", ha="left", va="center")
    if labels.beside:
        middle = panel.top + panel.height / 2
        _write(axes, panel.left - 0.24, middle, labels.beside, va="center", rotation=90, size=8)


def draw_bar_panel(
    axes: Axes, panel: Panel, values: np.ndarray, bounds: np.ndarray | None, labels: PanelLabels
) -> None:
    """Draw bars from 0 with a separate scale, and whiskers at `bounds` (`bound bar`)."""
    highest = np.nanmax(values if bounds is None else np.fmax(values, bounds[1]), initial=0.0)
    highest = float(highest) * 1.05 or 1.0
    x = panel.left + (np.arange(len(values)) + 0.5) * panel.width / len(values)
    y = panel.bottom - values / highest * panel.height
    half = 0.4 * panel.width / len(values)
    base = np.full_like(y, panel.bottom)
    corners = np.stack([(x - half, base), (x - half, y), (x + half, y), (x + half, base)])
    axes.add_collection(
        PolyCollection(list(corners.transpose(2, 0, 1)), facecolor=BLUE), autolim=False
    )
    if bounds is not None:
        ends = panel.bottom - np.clip(bounds, 0, None) / highest * panel.height
        lines = np.stack([np.stack([x, ends[0]], -1), np.stack([x, ends[1]], -1)], 1)
        axes.add_collection(LineCollection(list(lines), colors=GRAY, linewidths=0.7), autolim=False)
    frame = [[(panel.left, panel.top), (panel.left, panel.bottom), (panel.right, panel.bottom)]]
    axes.add_collection(LineCollection(frame, colors="black", linewidths=0.6), autolim=False)
    for value in _steps(highest, 3):
        level = panel.bottom - value / highest * panel.height
        _write(axes, panel.left - 0.03, level, f"{value:.4g}", ha="right", va="center", size=6)
    _write_across(axes, panel, labels, ticks(len(values)) if labels.below else [])


def _write_across(axes: Axes, panel: Panel, labels: PanelLabels, shown: list[int]) -> None:
    """Write the title above a panel, and the names of columns and of their axis below it."""
    _write(axes, panel.left + panel.width / 2, panel.top - 0.04, labels.title, va="bottom", size=8)
    for n in shown:
        x = panel.left + (n + 0.5) * panel.width / len(labels.across)
        _write(axes, x, panel.bottom + 0.03, labels.across[n], va="top")
    if labels.below:
        _write(
            axes, panel.left + panel.width / 2, panel.bottom + 0.13, labels.below, va="top", size=8
        )


def _steps(highest: float, n: int) -> list[float]:
    """Return round numbers from 0 to at most the highest value."""
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
