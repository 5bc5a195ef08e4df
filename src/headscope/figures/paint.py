"""Charts in matplotlib: one painter for every kind of chart that a paper shows.

`chart_types` describes the charts; the browser draws the same ones (`web/src/report`). Heat maps
use one hue from light to dark, so they also print in gray.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as PlotAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator, NullLocator

from headscope.figures import chart_types
from headscope.figures.style import (
    BLUE,
    DASHED,
    GRAY,
    LIGHT,
    MORE,
    ORANGE,
    PALETTE,
    VERMILION,
    caption,
    new_figure,
    styled,
    ticks,
)
from headscope.heads.roles import NO_ROLE, ROLES

MAX_ACROSS = 6
"""Panels in a row."""
FEW = 3
"""Number of panels up to which panels are large."""
_Grid = tuple[Figure, list[Axes]]


def paint(
    chart: chart_types.Chart,
    subjects: Sequence[chart_types.SubjectEntry] = (),
    *,
    across: int = MAX_ACROSS,
) -> Figure:
    """Draw a chart; it refers to `subjects` by number, and has `across` panels in a row."""
    with styled():
        match chart["kind"]:
            case "heads":
                figure = _paint_heads(chart, subjects, across)
            case "lines":
                figure = _paint_lines(chart, across)
            case "dots":
                figure = _paint_dots(chart, subjects)
            case "map":
                figure = _paint_map(chart)
            case "finder":
                figure = _paint_finder(chart, subjects, across)
            case "exemplars":
                figure = _paint_exemplars(chart)
            case "sentences":
                figure = _paint_sentences(chart, across)
            case kind:
                raise NotImplementedError(f"matplotlib does not draw charts of kind {kind}.")
        text = "".join(part for part in chart["caption"] if isinstance(part, str))
        if text:
            lines = text.split("\n")
            width = int(22 * figure.get_figwidth())
            caption(figure, "\n".join(textwrap.fill(line, width) for line in lines))
    return figure


def _grid(n: int, across: int, width: float, height: float, **options: Any) -> _Grid:
    """Return a figure and n panels of a size in inches, with space for a title and a caption."""
    columns = max(1, min(n, across))
    rows = math.ceil(n / columns)
    figure = new_figure(width * columns, height * rows + 0.4)
    grid = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for axes in grid[n:]:
        axes.set_axis_off()
    return figure, list(grid[:n])


def _array(values: object) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def _scale(axis: PlotAxis, *, share: bool, n: int = 5) -> None:
    axis.set_major_locator(MaxNLocator(n))
    if share:
        axis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def _paint_heads(
    chart: chart_types.HeadsFigure, subjects: Sequence[chart_types.SubjectEntry], across: int
) -> Figure:
    shown = [
        (variable, number, _array(values["value"]))
        for variable in chart["variables"]
        for number, values in enumerate(variable["values"])
        if values is not None
    ]
    is_small = len(shown) > FEW
    rows, columns = np.max([values.shape for _, _, values in shown], axis=0)
    cell = min(0.12, 1.6 / max(rows, columns)) if is_small else 3.8 / max(16, rows)
    size = max(1.35, cell * columns + (0.3 if is_small else 1.3)), max(0.9, cell * rows + 0.5)
    has_layers = "layers" in shown[0][0]
    ratios: dict[str, Any] = {"width_ratios": (size[0], 2.6)} if has_layers else {}
    figure, grid = _grid(len(shown) + has_layers, across, *size, **ratios)
    highest = max(_highest(values) for _, _, values in shown) if chart.get("shared") else None
    colors = mpl.colormaps["Blues"].with_extremes(bad="#EEEEEE")
    for axes, (variable, number, values) in zip(grid, shown, strict=False):
        most, title = highest or _highest(values), variable["label"] or variable["group"]
        image = axes.imshow(values, cmap=colors, vmin=0, vmax=most, aspect="equal")
        down, right = (ticks(n, 6 if is_small else 16) for n in values.shape)
        axes.set_yticks(down, [str(subjects[number]["layers"][n]) for n in down])
        axes.set_xticks(right)
        axes.tick_params(length=0, labelsize=5.5 if is_small else 7, pad=1.5)
        axes.spines[:].set_visible(False)
        _label_edges(axes, "head", "layer")
        if is_small:
            limit = f"{100 * most:.2g} %" if variable["share"] else f"{most:.2g}"
            axes.set_title(f"{title} ({limit})", fontsize=7)
            continue
        axes.set_title(title)
        bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.03, aspect=22)
        bar.outline.set_linewidth(0)
        bar.set_label(variable["units"])
        _scale(bar.ax.yaxis, share=variable["share"])
        if has_layers:
            figure.set_figwidth(size[0] + 2.6)
            _draw_layers(grid[-1], variable["layers"][number], variable["units"])
    if len(shown) > 1:
        scale = " (in brackets the value of the darkest cell; white is 0)" if is_small else ""
        figure.suptitle(chart["title"] + scale, fontsize=9)
    return figure


def _highest(values: np.ndarray) -> float:
    return float(np.nanmax(values, initial=0.0)) or 1.0


def _label_edges(axes: Axes, below: str, beside: str) -> None:
    place = axes.get_subplotspec()
    if place is None or place.is_last_row():
        axes.set_xlabel(below)
    if place is None or place.is_first_col():
        axes.set_ylabel(beside)


def _draw_layers(axes: Axes, line: chart_types.Line | None, units: str) -> None:
    if line is not None:
        axes.barh(line["x"], _array(line["value"]), color=BLUE, **_whiskers(line, "xerr"))
        axes.set_yticks([line["x"][n] for n in ticks(len(line["x"]))])
        axes.set_ylim(max(line["x"]) + 0.5, min(line["x"]) - 0.5)
    axes.set_ylabel("layer")
    axes.set_xlabel(f"mean of the layer ({units})")


def _whiskers(line: chart_types.Line, name: str) -> dict[str, Any]:
    if "low" not in line:
        return {}
    value, low, high = (_array(line.get(key)) for key in ("value", "low", "high"))
    bounds = np.abs(np.stack((value - low, high - value)))
    return {name: bounds, "error_kw": {"elinewidth": 0.7, "ecolor": GRAY}}


def _paint_lines(chart: chart_types.LinesFigure, across: int) -> Figure:
    shown = [
        (axis, panel)
        for row in chart["rows"]
        for axis, panel in zip(chart["columns"], row["panels"], strict=True)
        if panel is not None
    ]
    is_small, is_shared = len(shown) > FEW, chart.get("shared", False)
    size = (1.25, 1.05) if is_small else (5.0, 2.5) if len(shown) == 1 else (6.8 / len(shown), 2.1)
    figure, grid = _grid(len(shown), across, *size, sharey=is_shared)
    for axes, (axis, panel) in zip(grid, shown, strict=True):
        _draw_panel(axes, panel, is_bars=chart.get("bars", False), is_first=axes is grid[0])
        axes.set_title(axis["title"], fontsize=8 if is_small else 9)
        if axis.get("log"):
            axes.set_yscale("log")
        else:
            _scale(axes.yaxis, share=axis["share"], n=3 if is_small else 5)
        _label_edges(axes, chart["axis"].capitalize(), "" if is_small else axis["units"])
        if not (is_small or is_shared):
            axes.set_ylabel(axis["units"])
        if is_small:
            axes.tick_params(labelsize=5.5)
    for axes, (axis, _) in zip(grid, shown, strict=True):  # a shared scale must know all panels
        if not axis.get("log"):
            axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        if is_shared:
            break
    if is_small:
        figure.supylabel(shown[0][0]["units"], fontsize=8)
    return figure


def _draw_panel(axes: Axes, panel: chart_types.LinePanel, *, is_bars: bool, is_first: bool) -> None:
    lines = panel["series"]
    for number, line in enumerate(lines):
        color, x, values = PALETTE[number], _array(line["x"]), _array(line["value"])
        label = line["name"] or None
        if is_bars:
            axes.bar(x, values, 0.8, color=color, label=label, **_whiskers(line, "yerr"))
            continue
        axes.plot(x, values, color=color, linewidth=1.3, marker=".", markersize=4, label=label)
        if "low" in line:
            axes.fill_between(
                x, _array(line["low"]), _array(line["high"]), color=color, alpha=0.18, linewidth=0
            )
        if "points" in line:
            points = _array(line["points"])
            places = np.repeat(x + 0.12 * (number - (len(lines) - 1) / 2), points.shape[1])
            axes.scatter(places, points.ravel(), s=6, color=color, alpha=0.45, linewidths=0)
    layers = lines[0]["x"] if lines else []
    if layers and layers[-1] - layers[0] < len(layers):
        axes.set_xticks([layers[n] for n in ticks(len(layers))])
    else:  # steps of a training, far apart
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if panel["baseline"] is not None and panel["baseline"]["value"] is not None:
        axes.axhline(
            panel["baseline"]["value"], color=ORANGE if is_bars else GRAY, linewidth=1.2,
            linestyle=DASHED, label=(panel["baseline"]["name"] or None) if is_first else None,
        )  # fmt: skip
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best", handlelength=2)
    if note := panel.get("note"):
        axes.text(0.98, 0.97, note, transform=axes.transAxes, ha="right", va="top", fontsize=7)


SYMBOLS: dict[str, dict[str, Any]] = {
    "ring": {"marker": "o", "markersize": 6.5, "markerfacecolor": "none", "color": BLUE},
    "tick": {"marker": "|", "markersize": 7, "color": ORANGE},
    "triangle": {"marker": "v", "markersize": 5, "color": ORANGE},
    "square": {"marker": "s", "markersize": 5, "color": ORANGE},
}


def _paint_dots(
    chart: chart_types.DotsFigure, subjects: Sequence[chart_types.SubjectEntry]
) -> Figure:
    """Draw a row for each group: dots with intervals, and marks to compare them with."""
    columns = chart["columns"]
    n = max(len(column.get("groups", chart["groups"])) for column in columns)
    are_equal = not any("groups" in column for column in columns)
    width = 5.2 if len(columns) == 1 else (1.45 if are_equal else 3.6) * len(columns) + 1.3
    figure = new_figure(width, 0.2 * n + 1.15)
    grid = figure.subplots(1, len(columns), sharey=are_equal, squeeze=False)[0]
    dodge = 0.0 if "notes" in chart else 0.26
    for axes, column in zip(grid, columns, strict=True):
        groups = column.get("groups", chart["groups"])
        places = np.arange(len(groups))[::-1]
        for number, row in enumerate(column["values"]):
            shift = dodge * ((len(column["values"]) - 1) / 2 - number)
            _draw_dots(axes, row, places + shift, PALETTE[number])
            axes.plot(_array(column["baselines"][number]), places + shift, ls="", **SYMBOLS["tick"])
        for mark in column.get("marks", ()):
            axes.plot(_array(mark["values"]), places, ls="", zorder=3, **SYMBOLS[mark["symbol"]])
        if "level" in column and column["level"]["value"] is not None:
            axes.axvline(column["level"]["value"], color=GRAY, linewidth=0.7, linestyle=DASHED)
        axes.set_yticks(places, groups)
        axes.set_ylim(-0.7, len(groups) - 0.3)
        _scale(axes.xaxis, share=column["share"], n=4 if len(columns) > 2 else 6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="both", color="#EEEEEE", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        if column["share"] and "notes" in chart:
            axes.set_xlim(-0.02, 1.02)
        units = "" if column["share"] or not column["units"] else f"\n({column['units']})"
        if len(columns) > 1:
            axes.set_title(column["title"] + units, fontsize=8)
        else:
            axes.set_xlabel(column["title"])
            axes.set_title(chart["title"], loc="left")
        for y, note in zip(places, chart.get("notes", ()), strict=False):
            axes.annotate(
                note, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=7
            )
    if not are_equal:
        figure.suptitle(chart["title"], fontsize=10)
    _draw_dot_legend(figure, columns[0], [subjects[n]["title"] for n in chart["subjects"]])
    return figure


def _draw_dots(axes: Axes, row: Sequence[Any], places: np.ndarray, color: str) -> None:
    for y, value in zip(places, row, strict=True):
        if isinstance(value, dict):
            bounds = _array([value["low"], value["high"]])
            axes.plot(bounds, [y, y], color=color, linewidth=1, alpha=0.6, zorder=2)
    values = [value["value"] if isinstance(value, dict) else value for value in row]
    axes.plot(_array(values), places, "o", color=color, markersize=4, zorder=4)


def _draw_dot_legend(figure: Figure, column: chart_types.DotColumn, names: Sequence[str]) -> None:
    marks = column.get("marks", [])
    if len(names) + len(marks) < 2:
        return
    handles = [
        Line2D([], [], marker="o", markersize=4, linestyle="", color=color, label=name)
        for name, color in zip(names, PALETTE, strict=False)
    ]
    handles += [
        Line2D([], [], linestyle="", label=mark["name"], **SYMBOLS[mark["symbol"]])
        for mark in marks
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(3, len(handles)), handlelength=1
    )


MAX_LABELED = 4
"""Maximum heads of a role whose heads are labeled on the map."""
AREA = 16
"""Area of a point, in square points."""
AREAS = 8, 96
"""Areas of the points with no effect and with the largest effect."""


def _paint_map(chart: chart_types.MapFigure) -> Figure:
    """Draw a map by role and by layer, or its clusters beside their silhouette."""
    (panel,) = chart["panels"]
    has_clusters = "silhouette" in panel
    figure = new_figure(6.4 if has_clusters else 7.2, 2.8 if has_clusters else 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3 if has_clusters else 1))
    x, y = _array(panel["x"]), _array(panel["y"])
    if has_clusters:
        line = panel["silhouette"]
        values = _array(line["value"])
        best = int(np.nan_to_num(values, nan=-1).argmax())
        left.plot(line["x"], values, marker="o", markersize=3, color=GRAY)
        left.scatter(line["x"][best], values[best], color=BLUE, zorder=3, s=26)
        left.set(xlabel="Clusters (Ward's linkage)", ylabel="Silhouette", xticks=line["x"][::2])
        left.set_ylim(0, max(0.05, 1.15 * float(np.nanmax(values))))
        colors = [PALETTE[n % len(PALETTE)] for n in panel["cluster"]]
        right.scatter(x, y, s=14, c=colors, linewidths=0)
        right.set_title(f"{len(set(panel['cluster']))} clusters")
        _hide_axes(right)
        return figure
    sizes = np.nan_to_num(np.abs(_array(panel.get("effect", []))))
    largest = float(sizes.max(initial=0.0))
    areas = np.full(len(x), float(AREA))
    if largest:
        areas = AREAS[0] + (AREAS[1] - AREAS[0]) * sizes / largest
    order = np.argsort(-areas, kind="stable")  # small points are drawn on large ones
    roles = np.array(panel["role"])
    for name, color in role_colors(panel["role"]).items():
        members = order[roles[order] == name]
        left.scatter(
            x[members], y[members], s=areas[members], color=color, linewidths=0, alpha=0.9,
            label=f"{name} ({len(members)})", zorder=1 if name == NO_ROLE else 2,
        )  # fmt: skip
    for value, area in zip((0.0, largest), AREAS, strict=True) if largest else ():
        left.scatter([], [], s=area, color=GRAY, linewidths=0, label=f"effect {value:.2g}")
    figure.legend(loc="outside left center", handletextpad=0.1)
    _label_rare(left, panel)
    layers = np.array(panel["layer"])[order]
    drawn = right.scatter(
        x[order], y[order], s=areas[order], c=layers, cmap="viridis", linewidths=0, alpha=0.9
    )
    figure.colorbar(drawn, ax=right, label="Layer", shrink=0.8)
    for axes, title in ((left, "By role"), (right, "By layer")):
        axes.set_title(title)
        _hide_axes(axes)
    return figure


def _hide_axes(axes: Axes) -> None:
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def role_colors(roles: Sequence[str]) -> dict[str, str]:
    """Return a color for each name on a map, most frequent first, heads without a role last. Roles
    have their color (`heads.roles`); names that probes give have others.
    """
    names, counts = np.unique(roles, return_counts=True)
    order = [str(names[i]) for i in np.argsort(-counts, kind="stable")]
    of_roles = {role.name: role.color for role in ROLES.values()}
    others = [name for name in order if name not in of_roles and name != NO_ROLE]
    of_others = {name: MORE[i % len(MORE)] for i, name in enumerate(others)}
    colors = {**of_roles, **of_others, NO_ROLE: LIGHT}
    return {name: colors[name] for name in sorted(order, key=lambda name: name == NO_ROLE)}


def _label_rare(axes: Axes, panel: chart_types.MapPanel) -> None:
    names = panel["role"]
    named = [i for i, n in enumerate(names) if n != NO_ROLE and names.count(n) <= MAX_LABELED]
    places = np.stack([panel["x"], panel["y"]], axis=1)
    for i in named:
        others = [j for j in named if j != i]
        near = min(others, key=lambda j: float(((places[i] - places[j]) ** 2).sum()), default=i)
        is_left = places[near, 0] > places[i, 0]
        axes.annotate(
            f"L{panel['layer'][i]} H{panel['head'][i]}",
            tuple(places[i]),
            xytext=(-4 if is_left else 4, -5 if places[near, 1] > places[i, 1] else 2),
            textcoords="offset points",
            ha="right" if is_left else "left",
            fontsize=6,
        )


def _paint_finder(
    chart: chart_types.FinderFigure, subjects: Sequence[chart_types.SubjectEntry], across: int
) -> Figure:
    """Draw heads between two variables for each preset; both have the same scale."""
    variables = {variable["id"]: variable for variable in chart.get("variables", ())}
    presets, layers = chart["presets"], subjects[0]["layers"]
    figure, grid = _grid(len(presets), across, 2.3, 2.1)
    for axes, preset in zip(grid, presets, strict=True):
        of_x, of_y = variables[preset["x"]], variables[preset["y"]]
        x, y = (_array((v["values"][0] or {"value": []})["value"]) for v in (of_x, of_y))
        colors = np.repeat(layers, x.shape[1])
        drawn = axes.scatter(x, y, c=colors, cmap="viridis", s=8, linewidths=0)
        _symmetric(axes, float(np.nanmedian(np.abs(y))))
        axes.axline((0, 0), (1, 1), color=GRAY, linewidth=0.6, linestyle=DASHED)
        note = preset["notes"][0]
        axes.text(0.98, 0.03, note, transform=axes.transAxes, ha="right", fontsize=6.5)
        axes.set_title(preset["title"], fontsize=8)
        _label_edges(axes, of_x["label"], of_y["label"])
    figure.colorbar(drawn, ax=grid, label="Layer", shrink=0.6)
    return figure


def _symmetric(axes: Axes, middle: float) -> None:
    """Scale both axes alike: linear near 0 and logarithmic beyond, since few heads matter."""
    near = 10.0 ** np.floor(np.log10(max(middle, 1e-9)))
    most = np.abs([*axes.get_xlim(), *axes.get_ylim()]).max()
    top = 10.0 ** np.floor(np.log10(most))
    for name in ("x", "y"):
        getattr(axes, f"set_{name}scale")("symlog", linthresh=near, linscale=0.5)
        getattr(axes, f"set_{name}lim")(-most, most)
        axis = getattr(axes, f"{name}axis")
        axis.set_ticks([-top, 0, top])
        axis.set_minor_locator(NullLocator())


WIDTH, LEFT_EDGE, LINE_HEIGHT = 6.8, 0.55, 0.19
"""Of a text with exemplars, in inches."""
FONT, WORD_SPACE = 8, 0.045
KEY_COLOR = "#8A5F00"


def _paint_exemplars(chart: chart_types.ExemplarsFigure) -> Figure:
    heads = [head for panel in chart["panels"] for head in panel["heads"]]
    documents = chart.get("documents", [])
    figure = new_figure(WIDTH, 1)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, WIDTH), autoscale_on=False)
    top = 0.18
    for head in heads:
        style: dict[str, Any] = {"va": "center", "fontsize": FONT}
        axes.text(0.1, top, f"L{head['layer']} H{head['head']}", weight="bold", va="center")
        axes.text(0.75, top, "query", color=BLUE, weight="bold", **style)
        axes.text(1.15, top, "→ key", color=KEY_COLOR, style="italic", **style)
        axes.text(1.7, top, head["why"], color=GRAY, **style)
        top += 0.27
        for arc in head["exemplars"]:
            axes.text(0.1, top, f"{arc['weight']:.2f}", color=GRAY, **style)
            top = _draw_document(axes, documents[arc["document"]], arc, top) + 0.2 + LINE_HEIGHT
    figure.set_figheight(top)
    axes.set_ylim(top, 0)
    return figure


def _draw_document(axes: Axes, tokens: Sequence[str], arc: chart_types.Arc, top: float) -> float:
    """Draw tokens in lines, and the arrow; return the place of the last line."""
    has_spaces = any(token.startswith(" ") for token in tokens)
    x, y, places = LEFT_EDGE, top, {}
    for words in _words(tokens, has_spaces=has_spaces):
        texts = []
        for position in words:
            token = tokens[position].replace("\n", "⏎")
            text = (token.strip() if has_spaces else token.removeprefix("##")) or "·"
            style: dict[str, Any] = {"color": "#333333"}
            if position in (arc["query"], arc["key"]):
                color = BLUE if position == arc["query"] else KEY_COLOR
                italic = "italic" if position == arc["key"] else "normal"
                style = {"color": color, "weight": "bold", "style": italic}
            label = axes.text(0, y, text, fontsize=FONT, va="center", parse_math=False, **style)
            texts.append((position, label, label.get_window_extent().width / axes.figure.dpi))
        width = sum(size for _, _, size in texts)
        if x + width > WIDTH - 0.1 and x > LEFT_EDGE:
            x, y = LEFT_EDGE, y + LINE_HEIGHT
        for position, label, size in texts:
            label.set_position((x, y))
            places[position] = (x + size / 2, y)
            x += size
        x += WORD_SPACE
    (from_x, from_y), (to_x, to_y) = places[arc["query"]], places[arc["key"]]
    if arc["query"] != arc["key"]:
        bend = min(0.35, 0.12 / max(abs(from_x - to_x), 0.12)) * (1 if to_x < from_x else -1)
        lift = 0.36 * LINE_HEIGHT
        axes.add_patch(
            FancyArrowPatch(
                (from_x, from_y - lift), (to_x, to_y - lift),
                connectionstyle=f"arc3,rad={bend:.3f}", arrowstyle="-|>", mutation_scale=6,
                linewidth=0.8, color=GRAY, alpha=0.8 if from_y == to_y else 0.45,
                shrinkA=0, shrinkB=0, zorder=0,
            )
        )  # fmt: skip
    return y


def _words(tokens: Sequence[str], *, has_spaces: bool) -> list[list[int]]:
    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        is_new = token.startswith(" ") if has_spaces else not token.startswith("##")
        if is_new or not words:
            words.append([])
        words[-1].append(position)
    return words


COLORS = {"other": "#555555", "right": BLUE, "wrong": VERMILION, "missed": VERMILION}


def _paint_sentences(chart: chart_types.SentencesFigure, across: int) -> Figure:
    sentences = chart["sentences"]
    rows = [sentences[start : start + across] for start in range(0, len(sentences), across)]
    heights = [max(len(sentence["words"]) for sentence in row) for row in rows]
    figure = new_figure(2.35 * across, 0.17 * sum(heights) + 0.45 * len(rows) + 0.5)
    grid = figure.subplots(len(rows), across, squeeze=False, height_ratios=heights)
    for axes_row, row, most in zip(grid, rows, heights, strict=True):
        for axes in axes_row:
            axes.set_axis_off()
        for axes, sentence in zip(axes_row, row, strict=False):
            axes.set(xlim=(0, 1), ylim=(most - 0.4, -0.6))
            _draw_sentence(axes, sentence)
    if chart["title"]:
        figure.suptitle(chart["title"], fontsize=9, x=0.01, ha="left")
    return figure


def _draw_sentence(axes: Axes, sentence: chart_types.ExampleSentence) -> None:
    left, right = 0.36, 0.64
    of_query, of_key = {}, {}
    for link in sentence["links"]:
        color, strength = COLORS[link["kind"]], min(1.0, link["weight"])
        place = [left, right], [link["query"], link["key"]]
        if link["kind"] == "missed":
            axes.plot(*place, color=color, linestyle=DASHED, linewidth=0.9, zorder=2)
            of_key[link["key"]] = color
        elif link["kind"] == "other":
            axes.plot(*place, color=color, alpha=0.55 * strength, linewidth=0.5 + 1.3 * strength)
        else:
            axes.plot(*place, color=color, alpha=strength, linewidth=0.9 + 1.6 * strength, zorder=3)
            of_query[link["query"]] = color
            if link["kind"] == "right":
                of_key.setdefault(link["key"], color)
    for number, word in enumerate(sentence["words"]):
        text = word if len(word) <= 14 else f"{word[:13]}…"
        for x, side, colors in ((left - 0.02, "right", of_query), (right + 0.02, "left", of_key)):
            axes.text(
                x, number, text, ha=side, va="center", fontsize=7, parse_math=False,
                color=colors.get(number, "#333333"),
                weight="bold" if number in colors else "normal",
            )  # fmt: skip
    axes.set_title(sentence["title"], fontsize=7.5, color="#555555", pad=3)
