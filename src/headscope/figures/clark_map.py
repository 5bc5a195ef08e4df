"""Clark et al.'s Figure 6: all heads in the plane, by behavior and by layer; and clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headscope.errors import UnknownName
from headscope.figures.style import GRAY, PALETTE, caption, new_figure, styled

if TYPE_CHECKING:
    from headscope.heads.head_map import HeadMap

OTHER = "other"
LIGHT = "#C4C4C4"
MORE = ("#882255", "#44AA99", "#999933", "#332288", "#AA4499", "#661100", "#88CCEE", "#117733")
"""Colors of Tol (2021), for maps with many behaviors."""
MOST_NAMED = 4
"""Heads of a behavior are named on the map if there are no more of them."""
AREA = 16
"""Of a point, in square points."""
AREAS = 8, 96
"""Of the point without an effect, and of the one with the largest."""


def draw_map(heads: HeadMap, name: str) -> Figure:
    """A figure of the map by its name."""
    figures = {"clark-6": clark_figure_6, "clusters": cluster_figure}
    if name not in figures:
        raise UnknownName.of("figure of a map", name, figures)
    return figures[name](heads)


def clark_figure_6(heads: HeadMap) -> Figure:
    """The map twice: colored by behavior, and by layer (section 6); by their effects, heads are
    larger.
    """
    data = heads.data
    areas = _areas(heads)
    order = np.argsort(-areas, kind="stable")  # small points lie on large ones
    with styled():
        figure = new_figure(7.2, 3.6)
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        colors = behavior_colors(heads)
        for name, color in colors.items():
            at = order[data["behavior"].values[order] == name]
            left.scatter(
                data["x"].values[at],
                data["y"].values[at],
                s=areas[at],
                color=color,
                linewidths=0,
                alpha=0.9,
                label=f"{name} ({len(at)})",
                zorder=1 if name == OTHER else 2,
            )
        _size_legend(left, heads)
        figure.legend(loc="outside left center", handletextpad=0.1)
        left.set_title("By behavior")
        _name_heads(left, heads)
        drawn = right.scatter(
            data["x"].values[order],
            data["y"].values[order],
            s=areas[order],
            c=data["layer"].values[order],
            cmap="viridis",
            linewidths=0,
            alpha=0.9,
        )
        figure.colorbar(drawn, ax=right, label="Layer", shrink=0.8)
        right.set_title("By layer")
        for axes in (left, right):
            axes.set_aspect("equal")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
        said = f"distances are Jensen-Shannon divergences · stress {heads.stress:.2f}"
        sizes = f"\n{heads.size_meaning}" if heads.size_meaning else ""
        caption(figure, f"{heads.title} · {said}{sizes}")
    return figure


def _areas(heads: HeadMap) -> np.ndarray:
    """`at`: how large each point is drawn, in square points."""
    sizes = heads.effect_sizes()
    if sizes is None:
        return np.full(heads.data.sizes["at"], float(AREA))
    return AREAS[0] + (AREAS[1] - AREAS[0]) * sizes


def _size_legend(axes: Axes, heads: HeadMap) -> None:
    """Entries of the legend for the smallest and the largest point."""
    largest = heads.largest_effect
    if largest is not None:
        for value, area in zip((0.0, largest), AREAS, strict=True):
            axes.scatter([], [], s=area, color=GRAY, linewidths=0, label=f"effect {value:.2g}")


def _name_heads(axes: Axes, heads: HeadMap) -> None:
    """Names beside the heads of rare behaviors, away from the nearest other one."""
    data = heads.data
    names, counts = np.unique(data["behavior"].values, return_counts=True)
    rare = {str(n) for n, count in zip(names, counts, strict=True) if count <= MOST_NAMED}
    named = [i for i, name in enumerate(data["behavior"].values) if str(name) in rare - {OTHER}]
    places = np.stack([data["x"].values, data["y"].values], axis=1)
    for i in named:
        others = [j for j in named if j != i]
        near = min(others, key=lambda j: float(((places[i] - places[j]) ** 2).sum()), default=i)
        is_left = places[near, 0] > places[i, 0]
        axes.annotate(
            f"L{int(data['layer'][i])} H{int(data['head'][i])}",
            tuple(places[i]),
            xytext=(-4 if is_left else 4, -5 if places[near, 1] > places[i, 1] else 2),
            textcoords="offset points",
            ha="right" if is_left else "left",
            fontsize=6,
        )


def cluster_figure(heads: HeadMap) -> Figure:
    """Into how many groups the heads fall (silhouette), and the map colored by them."""
    data = heads.data
    with styled():
        figure = new_figure(6.4, 2.8)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
        left.plot(data["n_clusters"], data["silhouette"], marker="o", markersize=3, color=GRAY)
        best = int(np.nan_to_num(data["silhouette"].values, nan=-1).argmax())
        left.scatter(
            data["n_clusters"][best], data["silhouette"][best], color=PALETTE[0], zorder=3, s=26
        )
        left.set_xlabel("Clusters (Ward's linkage)")
        left.set_ylabel("Silhouette")
        left.set_xticks(data["n_clusters"].values[::2])
        left.set_ylim(0, max(0.05, 1.15 * float(data["silhouette"].max())))
        colors = np.array([PALETTE[i % len(PALETTE)] for i in data["cluster"].values])
        right.scatter(data["x"], data["y"], s=14, c=colors, linewidths=0)
        right.set_aspect("equal")
        right.set_xticks([])
        right.set_yticks([])
        right.spines[:].set_visible(False)
        n = len(np.unique(data["cluster"]))
        right.set_title(f"{n} clusters")
        caption(figure, heads.title)
    return figure


def behavior_colors(heads: HeadMap) -> dict[str, str]:
    """A color for each behavior on the map, most frequent first, `other` in gray and last."""
    names, counts = np.unique(heads.data["behavior"].values, return_counts=True)
    order = [str(names[i]) for i in np.argsort(-counts, kind="stable")]
    named = [name for name in order if name != OTHER]
    cycle = [*(color for color in PALETTE if color != GRAY), *MORE]
    colors = {name: cycle[i % len(cycle)] for i, name in enumerate(named)}
    return {**colors, **({OTHER: LIGHT} if OTHER in order else {})}


def layer_colors(n_layers: int) -> list[str]:
    """A color for each layer, dark to light; none as dark as a dark page."""
    scale = mpl.colormaps["viridis"]
    places = np.linspace(0.22, 1, n_layers)
    return [str(mpl.colors.to_hex(scale(place))) for place in places]
