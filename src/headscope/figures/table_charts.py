"""Figures of probes, explained scores, maps of heads and checks of importance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from headscope.errors import InputError, UnknownName
from headscope.figures import chart_types
from headscope.figures.chart_data import ValueText, cell, figure_of, numbers, rounded
from headscope.figures.head_charts import map_panel
from headscope.figures.paint import paint
from headscope.heads.head_map import HeadMap
from headscope.probes.tables import BiasTable, ProbeTable
from headscope.results.display import counted, label_of, percent
from headscope.results.effect_data import SIDES, ExplainedScore, Lens
from headscope.results.probe import ProbeExample, ProbeExamples
from headscope.results.result import short_name
from headscope.results.wires import Wires

BASELINES = {
    "offset": ("best fixed offset", "tick"),
    "nearest": ("nearest mention", "triangle"),
    "head_match": ("same head word", "square"),
    "sieves": ("four sieves", "tick"),
}
"""Label and symbol of each baseline."""
ARROWS = {"dependent": " dep→parent", "head": " parent→dep", None: ""}


def probe_figure(table: ProbeTable) -> Figure:
    """See `ProbeTable.figure`."""
    rows = table.rows
    if not rows:
        raise InputError("There is nothing to draw: no relation has enough cases (min_cases).")
    marks = [("cross-fitted", "ring", [row.crossfit_accuracy for row in rows])]
    marks += [
        (*BASELINES[name], [row.baselines[name] for row in rows]) for name in rows[0].baselines
    ]
    values = [cell(ValueText(row.accuracy, *row.interval)) for row in rows]
    column = {
        **_dot_column("accuracy", [values], share=True),
        "marks": [
            {"name": name, "symbol": symbol, "values": numbers(values)}
            for name, symbol, values in marks
        ],
    }
    groups = [f"{row.label} ({row.cases:,})" for row in rows]
    notes = [f"L{row.layer} H{row.head}{ARROWS[row.direction]}" for row in rows]
    names = ["best head, 95 % interval"]
    return _paint_dots("probe", table.title, [column], groups, names, notes=notes)


def bias_figure(table: BiasTable) -> Figure:
    """See `BiasTable.figure`."""
    rows = table.rows
    if not rows:
        raise InputError("There is nothing to draw: the table has no head.")
    column = _dot_column(
        "pronouns that attend more to their antecedent",
        [[rounded(row.pro) for row in rows], [rounded(row.anti) for row in rows]],
        share=True,
        level=0.5,
    )
    caption = f"{table.pairs} pronouns of each kind; right: pro minus anti in points, 95 % interval"
    groups = [f"L{row.layer} H{row.head}" for row in rows]
    notes = [percent(row.gap, row.gap_low, row.gap_high, "+") for row in rows]
    names = [f"{name}-stereotypical" for name in ("pro", "anti")]
    return _paint_dots("bias", table.title, [column], groups, names, caption, notes=notes)


def score_figure(score: ExplainedScore, n: int = 8) -> Figure:
    """See `ExplainedScore.figure`."""
    columns = []
    for side in SIDES:
        rows = score.top(n, side)
        values = [rounded(value) for _, value in rows]
        column = _dot_column(f"by the {side}'s parts", [values], level=0.0)
        column |= {"groups": [name for name, _ in rows], "units": "score above the other keys"}
        columns.append(column)
    return _paint_dots("score", score.title, columns, [], [""])


def lens_figure(lens: Lens) -> Figure:
    """See `Lens.figure`."""
    data = lens.data
    layers = [int(layer) for layer in data["layer"].values]
    columns = [("probability of the target", "target_probability", True)]
    columns += [("logit difference", "difference", False)] if "difference" in data else []
    panels = [
        {"series": [{"name": "", "x": layers, "value": numbers(data[name])}], "baseline": None}
        for _, name, _ in columns
    ]
    chart = figure_of(
        "lens",
        "lines",
        f"{data.attrs['model']}: {data.attrs['number']} by layer",
        "",
        axis="layer",
        columns=[{"title": t, "units": "", "share": share} for t, _, share in columns],
        rows=[{"subject": 0, "panels": panels}],
    )
    return paint(chart, [_subject()])


def wires_figure(wires: Wires, n: int) -> Figure:
    """See `Wires.figure`."""
    rows = wires.table[:n]
    if not rows:
        raise InputError("There is nothing to draw: no wire was run exactly (exact=0).")
    share = _dot_column(
        "share of the gap", [[cell(ValueText(w.share, w.low, w.high)) for w in rows]], level=0.0
    )
    stability = _dot_column("stability", [[rounded(w.stability) for w in rows]], share=True)
    columns = [share, stability] if wires.n_templates > 1 else [share]
    groups = [f"{w.source} → {w.reader}" for w in rows]
    title = f"Wires of {wires.about['model']}: {wires.about['pairs']}"
    return _paint_dots("wires", title, columns, groups, [wires.holds])


def _paint_dots(
    key: str,
    title: str,
    columns: Sequence[Any],
    groups: list[str],
    names: list[str],
    caption: str = "",
    **content: Any,
) -> Figure:
    places = list(range(len(names)))
    content |= {"groups": groups, "subjects": places, "columns": columns}
    chart = figure_of(key, "dots", title, caption, **content)
    return paint(chart, [_subject(name) for name in names])


def _dot_column(
    title: str, values: list[Any], *, share: bool = False, level: float | None = None
) -> chart_types.DotColumn:
    column: chart_types.DotColumn = {
        "title": title,
        "units": "",
        "share": share,
        "values": values,
        "baselines": [[None] * len(row) for row in values],
    }
    if level is not None:
        column["level"] = {"name": "", "value": level}
    return column


def _subject(title: str = "", layers: Sequence[int] = ()) -> chart_types.SubjectEntry:
    return {"title": title, "layers": [*layers], "heads": 0, "causal": False, "page": None}


RELIANCE_TITLES = {
    "dependent": "The word attends to its candidate parent",
    "candidate": "The candidate parent attends to the word",
}


def reliance_figure(reliance: xr.DataArray, *, title: str) -> Figure:
    """Draw a heat map of `Probe.reliance` for each direction of attention, on one scale."""
    variables = [
        _variable(direction, label, "nats", reliance.sel(direction=direction))
        for direction, label in RELIANCE_TITLES.items()
    ]
    total = reliance.sum("direction").transpose("layer", "head")
    order = np.argsort(-np.nan_to_num(total.values).ravel(), kind="stable")[:4]
    rows, columns = np.unravel_index(order, total.shape)
    top = [
        f"L{int(total['layer'][row])} H{int(total['head'][column])}"
        for row, column in zip(rows, columns, strict=True)
    ]
    text = "spread of a head's part of the score over a word's candidates · most: "
    chart = figure_of(
        "reliance",
        "heads",
        title,
        text + ", ".join(top),
        variables=variables,
        roles=[None],
        shared=True,
    )
    return paint(chart, [_subject(layers=reliance["layer"].values.tolist())])


def _variable(key: str, label: str, units: str, values: xr.DataArray) -> chart_types.VariableEntry:
    return {
        "id": key,
        "name": key,
        "group": label,
        "label": label,
        "units": units,
        "share": False,
        "paper": "",
        "meaning": "",
        "values": [{"value": numbers(values.transpose("layer", "head"))}],
    }


def removal_figure(checked: xr.Dataset) -> Figure:
    """Draw the result of `check_importance`: the rise of the loss after removing attention to a
    class of keys, against the gradient's prediction. A point is a head; on the dashed line the
    prediction is exact.
    """
    variables, presets = [], []
    units, levels = "nats per token", checked["level"].values.tolist()
    for name in checked["key_class"].values.tolist():
        for level in levels:
            values = checked.sel(key_class=name, level=level)
            x, y = f"removal_estimate:{name}:{level}", f"rise:{name}:{level}"
            predicted = values["removal_estimate"] * level
            variables.append(
                _variable(x, "Predicted by the gradient (nats per token)", units, predicted)
            )
            variables.append(
                _variable(y, "Rise of the loss (nats per token)", units, values["rise"])
            )
            low, high = (float(values["r_interval"].sel(bound=b)) for b in ("low", "high"))
            note = (
                f"r = {float(values['r']):.2f} ({low:.2f} to {high:.2f})\n"
                f"ρ = {float(values['rho']):.2f}"
            )
            title = f"{label_of('key_class', name)}: {level:.0%} removed"
            presets.append({"title": title, "x": x, "y": y, "notes": [note]})
    attrs = checked.attrs
    counts = f"{attrs['heads']} heads · {counted(attrs['documents'])}"
    about = f"{attrs['model']} · {short_name(str(attrs['corpus']))} · {counts}"
    chart = figure_of(
        "removal",
        "finder",
        "",
        f"{about} · loss {float(checked['loss']):.2f} nats per token",
        presets=presets,
        panels=[{"subject": 0, "roles": None}],
        variables=variables,
    )
    layers = checked["layer"].values.tolist()
    return paint(chart, [_subject(layers=layers)], across=len(levels))


def map_chart(heads: HeadMap, name: str) -> chart_types.Chart:
    """Build the map by role and by layer (section 6), or its clusters."""
    panel, caption = map_panel(heads), heads.title
    if name == "clark-6":
        caption += f" · distances are Jensen-Shannon divergences · stress {heads.stress:.2f}"
        caption += f"\n{heads.size_meaning}" if heads.size_meaning else ""
    elif name == "clusters":
        data = heads.data
        x = [int(n) for n in data["n_clusters"].values]
        panel["silhouette"] = {"name": "", "x": x, "value": numbers(data["silhouette"])}
    else:
        raise UnknownName.of("figure of a map", name, ("clark-6", "clusters"))
    return figure_of("map", "map", "", caption, panels=[panel])


def map_figure(heads: HeadMap, name: str) -> Figure:
    """See `HeadMap.figure`."""
    return paint(map_chart(heads, name))


KEY = "blue: attends most to its target · red: to another word (dashed: the target it missed)"
MIN_DRAWN = 0.03
"""Minimum attention of a drawn line."""


def example_figure(
    examples: ProbeExamples, title: str | None = None, *, columns: int = 3
) -> Figure:
    """See `ProbeExamples.figure`."""
    if not examples:
        raise InputError("There is no example to draw: the relation may not occur in the corpus.")
    chart: chart_types.Chart = {
        "id": "examples",
        "kind": "sentences",
        "title": examples.title if title is None else title,
        "caption": [KEY],
        "equation": None,
        "paper": "Clark et al. 2019, Figure 5",
        "sentences": [_sentence(example) for example in examples],
    }
    return paint(chart, across=columns)


def _sentence(example: ProbeExample) -> chart_types.ExampleSentence:
    kinds = {}
    for arc in example.arcs:
        if arc.is_right:
            kinds[arc.query, arc.target] = "right"
        else:
            kinds[arc.query, arc.target] = "missed"
            if arc.predicted is not None:
                kinds[arc.query, arc.predicted] = "wrong"
    links: list[chart_types.WordLink] = []
    for (query, key), weight in np.ndenumerate(example.weights):
        kind = kinds.get((query, key), "other")
        if weight >= MIN_DRAWN or kind != "other":
            links.append({"query": query, "key": key, "weight": float(weight), "kind": kind})  # type: ignore[typeddict-item]
    right = sum(arc.is_right for arc in example.arcs)
    title = f"{right} of {len(example.arcs)} right"
    return {"title": title, "words": list(example.words), "links": links}
