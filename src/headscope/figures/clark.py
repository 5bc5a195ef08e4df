"""Clark et al.'s Figures 1, 2, 3, 4 and 6, and the figure of `check_importance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from headscope.errors import InputError, UnknownName
from headscope.figures.style import (
    DASHED,
    GRAY,
    PALETTE,
    caption,
    corner_text,
    new_figure,
    styled,
    ticks,
)
from headscope.heads.roles import NO_ROLE, ROLES
from headscope.results.result import Result, short_name
from headscope.text.tokens import FIRST, PUNCTUATION, REST, is_repeated

if TYPE_CHECKING:
    from headscope.heads.head_map import HeadMap

LAYER = "Layer"


def clark_figure_1(result: Result) -> Figure:
    """Draw attention to the previous, current and next token by head (section 3.1).

    Clark et al.'s Figure 1 shows four heads as examples. This is the plot of all heads from their
    notebook, with next and previous corrected. Causal attention has no panel for the next token.
    """
    shares = _variable(result, "offset_share")
    titles = {-1: "previous token", 0: "current token", 1: "next token"}
    if not (shares.sel(offset=1) > 0).any():
        del titles[1]
    with styled():
        figure = new_figure(2.2 * len(titles), 2.4)
        panels = figure.subplots(1, len(titles), sharey=True)
        for axes, color, (offset, title) in zip(panels, PALETTE, titles.items(), strict=False):
            values = shares.sel(offset=offset)
            _points(axes, values, color)
            above = int((values > 0.5).sum())
            axes.axhline(0.5, color=GRAY, linewidth=0.6, linestyle=DASHED)
            noun = "head" if above == 1 else "heads"
            axes.set_title(title.capitalize())
            corner_text(axes, f"{above} {noun} above 0.5", y=0.97, va="top", color=GRAY)
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel(LAYER)
        panels[0].set_ylabel("Share of attention")
        _caption(figure, result)
    return figure


def clark_figure_2(result: Result) -> Figure:
    """Draw attention to special tokens and punctuation, and to separators (section 3.2).

    Models without separators have only the first panel.
    """
    shares = _variable(result, "class_share")
    names = _class_names(shares, "key_class")
    has_separators = bool(np.isfinite(result["sep_from_sep"]).any())
    with styled():
        figure = new_figure(6.6 if has_separators else 4.8, 2.6)
        panels = np.atleast_1d(figure.subplots(1, 1 + has_separators, sharey=True))
        for number, name in enumerate(names):
            label = CLASS_LABELS.get(name, name)
            _points(panels[0], shares.sel(key_class=name), PALETTE[number], label, _shift(number))
        panels[0].set_title("Attention to …")
        if has_separators:
            for number, (name, label) in enumerate(
                (
                    ("sep_from_sep", "separators → separators"),
                    ("sep_from_other", "other → separators"),
                )
            ):
                _points(panels[1], result[name], PALETTE[number + 3], label, _shift(number))
            panels[1].set_title("Attention to separators from …")
        for axes in panels:
            axes.set_ylim(-0.02, 1.02)
            axes.set_xlabel(LAYER)
            axes.legend(loc="best")
        panels[0].set_ylabel("Share of attention")
        _caption(figure, result)
    return figure


def clark_figure_4(result: Result) -> Figure:
    """Draw the entropy of every head's rows, from all tokens and from the first (section 3.3).

    In causal attention the first token attends only to itself, so its panel is omitted.
    """
    entropy = _variable(result, "row_entropy")
    uniform = float(result["uniform_entropy"])
    with styled():
        has_first = bool((result["first_entropy"] > 0).any())
        figure = new_figure(6.6 if has_first else 4.8, 2.5)
        panels = np.atleast_1d(figure.subplots(1, 1 + has_first, sharey=True))
        _points(panels[0], entropy, PALETTE[0])
        panels[0].set_title("From all tokens")
        if has_first:
            _points(panels[1], result["first_entropy"], PALETTE[1])
            panels[1].set_title("From the first token alone")
        for axes in panels:
            axes.set_xlabel(LAYER)
            axes.set_ylim(-0.05, 1.1 * max(uniform, float(entropy.max())))
        panels[0].axhline(uniform, color=GRAY, linewidth=0.8, linestyle=DASHED)
        panels[0].annotate(
            "uniform attention",
            (1, uniform),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            fontsize=7,
            color=GRAY,
        )
        panels[0].set_ylabel("Entropy (nats)")
        _caption(figure, result)
    return figure


def _points(
    axes: Axes, values: xr.DataArray, color: str, label: str | None = None, shift: float = 0.0
) -> None:
    """Draw a point for each head, and a line of layer means."""
    layers = values["layer"].values.astype(float)
    x = np.repeat(layers + shift, values.sizes["head"])
    y = values.transpose("layer", "head").values.ravel()
    axes.scatter(x, y, s=6, color=color, alpha=0.45, linewidths=0)
    axes.plot(layers, values.mean("head"), color=color, linewidth=1.3, label=label)
    axes.set_xticks([layers[i] for i in ticks(len(layers))])


def _shift(number: int) -> float:
    return 0.12 * (number - 1)


CLASS_LABELS = {"first": "first token", "all": "all keys"}


def _class_names(values: xr.DataArray, dim: str) -> list[str]:
    """Return the classes of keys to draw; `first` only if the first token is not special."""
    names = [str(name) for name in values[dim].values if name not in (REST, PUNCTUATION)]
    if is_repeated(values):
        names.remove(FIRST)
    return names


def _variable(result: Result, name: str) -> xr.DataArray:
    if name not in result:
        raise InputError(
            f"This figure shows {name}, which the result does not have. Run headscope.analyze "
            'with it (it is among "all").'
        )
    return result[name]


def _caption(figure: Figure, result: Result) -> None:
    caption(figure, f"{result.title} · {result.n_documents:,} documents")


def clark_figure_3(result: Result) -> Figure:
    """Draw mean |∂L/∂a| by layer, for each class of keys and for all keys (section 3.2)."""
    if "importance_by_layer" not in result:
        raise InputError("This figure shows gradients: make the result with headscope.importance.")
    values = result["importance_by_layer"]
    names = _class_names(values, "gradient_class")
    with styled():
        figure = new_figure(5.0, 2.9)
        axes = figure.subplots()
        layers = values["layer"].values
        for number, name in enumerate(names):
            is_all = name == "all"
            axes.plot(
                layers,
                values.sel(gradient_class=name),
                color=GRAY if is_all else PALETTE[number],
                linestyle=DASHED if is_all else "-",
                marker="o",
                markersize=2.5,
                linewidth=1.2,
                label=CLASS_LABELS.get(name, name),
            )
        axes.set_yscale("log")
        axes.set_xticks([layers[i] for i in ticks(len(layers))])
        axes.set_xlabel(LAYER)
        axes.set_ylabel("Mean |∂L/∂a|  (nats)")
        axes.set_title("Dependence of the loss on attention to …")
        axes.legend()
        caption(figure, f"{result.title} · loss {float(result['loss']):.2f} nats per token")
    return figure


def removal_figure(checked: xr.Dataset) -> Figure:
    """Draw the result of `check_importance`: the rise of the loss after removing attention to a
    class of keys, against the gradient's prediction. A point is a head; on the dashed line the
    prediction is exact.
    """
    names = [str(n) for n in checked["key_class"].values]
    levels = [float(level) for level in checked["level"].values]
    layers = checked["layer"].broadcast_like(checked["removal_estimate"].isel(key_class=0))
    with styled():
        figure = new_figure(2.1 * len(levels) + 0.9, 2.0 * len(names) + 0.5)
        panels = figure.subplots(len(names), len(levels), squeeze=False)
        for row, name in zip(panels, names, strict=True):
            for axes, level in zip(row, levels, strict=True):
                values = checked.sel(key_class=name, level=level)
                predicted = values["removal_estimate"] * level
                drawn = axes.scatter(
                    predicted, values["rise"], c=layers, cmap="viridis", s=8, linewidths=0
                )
                _symmetric(axes, float(np.nanmedian(np.abs(values["rise"]))))
                axes.axline((0, 0), (1, 1), color=GRAY, linewidth=0.6, linestyle=DASHED)
                low, high = (float(values["r_interval"].sel(bound=b)) for b in ("low", "high"))
                text = (
                    f"r = {float(values['r']):.2f} ({low:.2f} to {high:.2f})\n"
                    f"ρ = {float(values['rho']):.2f}"
                )
                corner_text(axes, text, y=0.03, va="bottom", size=6.5)
            row[0].set_ylabel(f"{CLASS_LABELS.get(name, name)}\nRise of the loss")
        for axes, level in zip(panels[0], levels, strict=True):
            axes.set_title(f"{level:.0%} removed")
        for axes in panels[-1]:
            axes.set_xlabel("Predicted by the gradient (nats)")
        figure.colorbar(drawn, ax=panels, label=LAYER, shrink=0.6)
        attrs = checked.attrs
        corpus = short_name(str(attrs["corpus"]))
        counts = f"{attrs['heads']} heads · {attrs['documents']} documents"
        loss = f"loss {float(checked['loss']):.2f} nats"
        caption(figure, f"{attrs['model']} · {corpus} · {counts} · {loss}")
    return figure


def _symmetric(axes: Axes, middle: float) -> None:
    """Scale both axes alike: linear near 0 and logarithmic beyond, since few heads matter."""
    near = 10.0 ** np.floor(np.log10(max(middle, 1e-9)))
    values = np.abs([*axes.get_xlim(), *axes.get_ylim()]).max()
    for name in ("x", "y"):
        getattr(axes, f"set_{name}scale")("symlog", linthresh=near, linscale=0.5)
        getattr(axes, f"set_{name}lim")(-values, values)
        axis = getattr(axes, f"{name}axis")
        top = 10.0 ** np.floor(np.log10(values))
        axis.set_ticks([-top, 0, top])
        axis.set_minor_locator(NullLocator())


LIGHT = "#C4C4C4"
MORE = ("#882255", "#44AA99", "#999933", "#332288", "#AA4499", "#661100", "#88CCEE", "#117733")
"""Colors of Tol (2021), for maps with many roles."""
MAX_LABELED = 4
"""Maximum heads of a role whose heads are labeled on the map."""
AREA = 16
"""Area of a point, in square points."""
AREAS = 8, 96
"""Areas of the points with no effect and with the largest effect."""


def draw_map(heads: HeadMap, name: str) -> Figure:
    """Draw a figure of the map by name."""
    figures = {"clark-6": clark_figure_6, "clusters": cluster_figure}
    if name not in figures:
        raise UnknownName.of("figure of a map", name, figures)
    return figures[name](heads)


def clark_figure_6(heads: HeadMap) -> Figure:
    """Draw the map twice: colored by role, and by layer (section 6). Effects set the sizes."""
    data = heads.data
    areas = _areas(heads)
    order = np.argsort(-areas, kind="stable")  # small points are drawn on large ones
    with styled():
        figure = new_figure(7.2, 3.6)
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        colors = role_colors(heads)
        for name, color in colors.items():
            members = order[data["role"].values[order] == name]
            left.scatter(
                data["x"].values[members],
                data["y"].values[members],
                s=areas[members],
                color=color,
                linewidths=0,
                alpha=0.9,
                label=f"{name} ({len(members)})",
                zorder=1 if name == NO_ROLE else 2,
            )
        _size_legend(left, heads)
        figure.legend(loc="outside left center", handletextpad=0.1)
        left.set_title("By role")
        _label_heads(left, heads)
        drawn = right.scatter(
            data["x"].values[order],
            data["y"].values[order],
            s=areas[order],
            c=data["layer"].values[order],
            cmap="viridis",
            linewidths=0,
            alpha=0.9,
        )
        figure.colorbar(drawn, ax=right, label=LAYER, shrink=0.8)
        right.set_title("By layer")
        for axes in (left, right):
            _hide_axes(axes)
        method = f"distances are Jensen-Shannon divergences · stress {heads.stress:.2f}"
        sizes = f"\n{heads.size_meaning}" if heads.size_meaning else ""
        caption(figure, f"{heads.title} · {method}{sizes}")
    return figure


def _hide_axes(axes: Axes) -> None:
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _areas(heads: HeadMap) -> np.ndarray:
    sizes = heads.effect_sizes()
    if sizes is None:
        return np.full(heads.data.sizes["at"], float(AREA))
    return AREAS[0] + (AREAS[1] - AREAS[0]) * sizes


def _size_legend(axes: Axes, heads: HeadMap) -> None:
    largest = heads.largest_effect
    if largest is not None:
        for value, area in zip((0.0, largest), AREAS, strict=True):
            axes.scatter([], [], s=area, color=GRAY, linewidths=0, label=f"effect {value:.2g}")


def _label_heads(axes: Axes, heads: HeadMap) -> None:
    """Label heads of rare roles, away from the nearest other label."""
    data = heads.data
    names, counts = np.unique(data["role"].values, return_counts=True)
    rare = {str(n) for n, count in zip(names, counts, strict=True) if count <= MAX_LABELED}
    named = [i for i, name in enumerate(data["role"].values) if str(name) in rare - {NO_ROLE}]
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
    """Draw the silhouette by number of clusters, and the map colored by cluster."""
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
        _hide_axes(right)
        n = len(np.unique(data["cluster"]))
        right.set_title(f"{n} clusters")
        caption(figure, heads.title)
    return figure


def role_colors(heads: HeadMap) -> dict[str, str]:
    """Return a color for each name on the map, most frequent first, heads without a role last.

    Roles have their color (`heads.roles`); names that probes give have others.
    """
    names, counts = np.unique(heads.data["role"].values, return_counts=True)
    order = [str(names[i]) for i in np.argsort(-counts, kind="stable")]
    of_roles = {role.name: role.color for role in ROLES.values()}
    others = [name for name in order if name not in of_roles and name != NO_ROLE]
    of_others = {name: MORE[i % len(MORE)] for i, name in enumerate(others)}
    colors = {**of_roles, **of_others, NO_ROLE: LIGHT}
    return {name: colors[name] for name in sorted(order, key=lambda name: name == NO_ROLE)}
