"""Charts by layer: lines with intervals and baselines, maps of labels, kinds of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
import xarray as xr

from headscope.errors import UnknownName
from headscope.figures.chart_data import (
    ModelResults,
    ValueText,
    axis_of,
    cell,
    describe,
    figure_of,
    measured,
    measured_elsewhere,
    numbers,
    parent_label,
    rounded,
)
from headscope.figures.chart_types import Axis, DotColumn, Figure, Level, Line, LinePanel, Phrase
from headscope.heads.roles import DEFAULT
from headscope.results.display import counted, display_of, is_shown, label_of
from headscope.results.result import Result
from headscope.results.steps import with_previous

AXES, ROLE_SHARE = {"step", "layer", "head"}, DEFAULT.share
MAX_LABELS = 24
FARTHEST = 20
"""Tokens apart up to which the text's own dependencies are shown."""


def line_along(data: xr.Dataset, name: str, dim: str, title: str = "") -> Line:
    """Return a variable along its only axis, with its interval if it has one."""
    x = [int(n) for n in data[dim].values]
    line: Line = {"name": title, "x": x, "value": numbers(data[name])}
    if f"{name}_interval" in data:
        low, high = data[f"{name}_interval"].transpose("bound", dim).values
        line["low"], line["high"] = numbers(low), numbers(high)
    return line


def by_layer(
    subject: ModelResults, name: str, labels: Mapping[str, object], title: str = ""
) -> Line | None:
    """Return the ratio over all heads of each layer, with its interval."""
    data = subject.data(f"{name}_by_layer")
    if data is None:
        return None
    names = [key for key in (f"{name}_by_layer", f"{name}_by_layer_interval") if key in data]
    return line_along(data[names].sel(labels), names[0], "layer", title)


def head_points(values: xr.DataArray, title: str = "") -> Line:
    """Return the mean over heads of each layer, with the values of single heads."""
    values = values.transpose("layer", "head")
    x = [int(n) for n in values["layer"].values]
    mean = numbers(values.mean("head"))
    return {"name": title, "x": x, "value": mean, "points": numbers(values)}


@dataclass(frozen=True)
class Column:
    """A variable by layer, at one label of each of its other axes."""

    name: str
    title: str = ""
    labels: Mapping[str, object] = field(default_factory=dict)
    baseline: tuple[str, str] | None = None
    """A variable without layers to hold this one against, and what to call it."""

    def panel(self, subject: ModelResults) -> LinePanel | None:
        """Return one subject's panel in this column."""
        line = by_layer(subject, self.name, self.labels)
        if line is None:
            return None
        level: Level | None = None
        if self.baseline is not None:
            shared = {dim: label for dim, label in self.labels.items() if dim == "parent"}
            baseline = subject.measured(self.baseline[0], **shared)
            if baseline.is_known:
                level = {"name": self.baseline[1], "value": rounded(baseline.value)}
        return {"series": [line], "baseline": level}

    def axis(self, subjects: Sequence[ModelResults]) -> Axis:
        """Return the column's heading and units."""
        axis = axis_of(describe(subjects, self.name))
        return {**axis, "title": self.title or axis["title"], "equation": self.name}


LAYERS = (Column("null_share"), Column("distance"), Column("entropy"))
SURFACE = (
    Column("row_entropy", baseline=("uniform_entropy", "attending evenly")),
    Column("offset_share", "To the previous token", {"offset": -1}),
    Column("sink_rate"),
)
ALIGNMENT = tuple(
    Column(
        "dep_alignment",
        label_of("parent", form).capitalize(),
        {"parent": form},
        ("dep_baseline_by_parent", "all token pairs"),
    )
    for form in ("query", "key", "either")
)


def layer_lines(
    subjects: Sequence[ModelResults],
    key: str,
    columns: Sequence[Column],
    title: str,
    caption: Phrase | str,
    **content: Any,
) -> Figure | None:
    """Return variables by layer: a column for each, a row for each subject."""
    columns = [c for c in columns if any(c.panel(subject) for subject in subjects)]
    papers = [describe(subjects, column.name).paper for column in columns]
    return lines_figure(
        subjects,
        key,
        title,
        caption,
        [[column.panel(subject) for column in columns] for subject in subjects],
        paper="; ".join(dict.fromkeys(paper for paper in papers if paper)),
        columns=[column.axis(subjects) for column in columns],
        **content,
    )


def lines_figure(
    subjects: Sequence[ModelResults],
    key: str,
    title: str,
    caption: Phrase | str,
    panels: Sequence[Sequence[LinePanel | None]],
    **content: Any,
) -> Figure | None:
    """Return the panels of each subject that has any; None if no subject has."""
    rows = [{"subject": n, "panels": shown} for n, shown in enumerate(panels) if any(shown)]
    if not rows:
        return None
    return figure_of(key, "lines", title, caption, **{"axis": "layer", **content, "rows": rows})


def importance_lines(
    subjects: Sequence[ModelResults], without: Sequence[str] = ()
) -> Figure | None:
    """Return mean gradients by layer, a line for each class of keys (Clark et al.'s Figure 3)."""
    panels: list[list[LinePanel | None]] = []
    for subject in subjects:
        data = subject.data("importance_by_layer")
        names = [] if data is None else data["gradient_class"].values.tolist()
        lines = [
            by_layer(subject, "importance", {"gradient_class": name}, label_of("key_class", name))
            for name in names
            if name not in without
        ]
        series = [line for line in lines if line and any(x is not None for x in line["value"])]
        panels.append([] if data is None else [{"series": series, "baseline": None}])
    display = describe(subjects, "importance")
    return lines_figure(
        subjects,
        "importance",
        "How much the loss depends on attention",
        "Mean |∂L/∂a| over all pairs of a query and a key of the class, by layer. A small "
        "gradient means that a little more or less attention changes the loss little."
        + measured_elsewhere(subjects, "importance"),
        panels,
        equation="importance",
        paper=display.paper,
        columns=[{"title": "Mean gradient", "units": display.units, "share": False}],
    )


def distances_of_text(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return the share of related tokens by distance: a property of the text."""
    panels: list[list[LinePanel | None]] = []
    for subject in subjects:
        data = subject.data("dep_by_distance")
        if data is None:
            panels.append([])
        else:
            near = data.isel(distance_between=slice(0, FARTHEST))
            line = line_along(near, "dep_by_distance", "distance_between")
            panels.append([{"series": [line], "baseline": None}])
    display = describe(subjects, "dep_by_distance")
    return lines_figure(
        subjects,
        "text",
        "The text: how far dependencies reach",
        "Of all pairs of tokens that are d apart, the share that stands in a dependency relation. "
        "It is a property of the corpus and of the model's tokens, not of attention.",
        panels,
        equation="dep_by_distance",
        paper=display.paper,
        axis="distance",
        columns=[{**axis_of(display), "title": "Related pairs"}],
    )


def top_labels(subjects: Sequence[ModelResults], name: str, dim: str) -> list[str]:
    """Return the labels that get attention in any layer, the most attended first."""
    means: dict[str, float] = {}
    for subject in subjects:
        data = subject.data(f"{name}_by_layer")
        if data is not None:
            array = data[f"{name}_by_layer"].mean("layer")
            for label, value in zip(array[dim].values.tolist(), array.values.tolist(), strict=True):
                if np.isfinite(value) and value > 0:
                    means[str(label)] = max(value, means.get(str(label), 0.0))
    return sorted(means, key=lambda label: -means[label])


def label_maps(subjects: Sequence[ModelResults], name: str, dim: str) -> Figure | None:
    """Return shares by layer for each tag or relation, the most attended first."""
    shown = [s for s in subjects if s.has(f"{name}_by_layer")]
    if not shown:
        return None
    every = top_labels(shown, name, dim)
    labels = every[:MAX_LABELS]
    panels = []
    for subject in shown:
        data = subject.data(f"{name}_by_layer")
        assert data is not None
        known = set(data[dim].values.tolist())
        lines = [by_layer(subject, name, {dim: x}) if x in known else None for x in labels]
        panels.append(
            {
                "subject": subjects.index(subject),
                "x": [int(n) for n in data["layer"].values],
                **{
                    key: [None if line is None else line.get(key) for line in lines]
                    for key in ("value", "low", "high")
                },
            }
        )
    display = describe(shown, name)
    caption = (
        "Share of each layer's attention, without null attention; columns are layers. Shades "
        "follow the square root of the share, so that small shares can be told apart."
    )
    if len(every) > len(labels):
        caption += f" Shown are the {len(labels)} most attended of {len(every)}."
    return figure_of(
        name,
        "matrix",
        display.title,
        caption,
        equation=name,
        paper=display.paper,
        labels=[label_of(dim, label) for label in labels],
        units=display.units,
        share=display.is_share,
        panels=panels,
    )


SCORES = ("previous_token", "induction", "duplicate_token")
"""Scores that heads acquire in training; each is also the name of a role."""
MAX_LINES = 5


def training_lines(
    result: Result, subject: int = 0, names: Sequence[str] = (), n: int = MAX_LINES
) -> Figure | None:
    """Return scores by training step, of the heads that reach the highest; a column for each."""
    data = with_previous(result).dataset
    known = [str(name) for name in data if is_shown(data[name]) and {*data[name].dims} == AXES]
    for name in names:
        UnknownName.check("variable over step, layer and head", name, known)
    chosen = list(names) or [name for name in SCORES if name in known] or known[:3]
    panels: list[LinePanel | None] = []
    for name in chosen:
        flat = data[name].stack(at=("layer", "head"))
        order = np.argsort(-np.nan_to_num(flat.max("step").values, nan=-inf), kind="stable")
        lines = []
        for layer, head in (flat["at"].values[i] for i in order[:n]):
            one = data[[k for k in (name, f"{name}_interval") if k in data]]
            one = one.sel(layer=layer, head=head)
            lines.append(line_along(one, name, "step", f"L{layer} H{head}"))
        level: Level = {"name": "a role", "value": ROLE_SHARE if name in SCORES else None}
        panels.append({"series": lines, "baseline": level})
    if not panels:
        return None
    return figure_of(
        "through-training",
        "lines",
        f"Through training, on {result.corpus_name}",
        f"The {n} heads that reach the highest values, with 95 % intervals over documents. All "
        f"steps read the same {counted(result.n_documents)}.",
        axis="step",
        columns=[axis_of(display_of(data[name])) for name in chosen],
        rows=[{"subject": subject, "panels": panels}],
    )


GROUPED = ("null_share", "dep_alignment", "distance", "entropy")
"""Variability is not shown: it is too small where documents are few, and groups differ in how
many they have."""


def group_values(subject: ModelResults, name: str) -> dict[str, tuple[ValueText, ValueText]]:
    """Return the mean over heads for each group, and its baseline where it has one."""
    values = {}
    for group, blocks in (subject.results[0].groups or {}).items():
        data = next(iter(blocks.values()))
        mean = f"{name}_mean"
        if mean in data:
            baseline = measured(data, "dep_baseline") if name == "dep_alignment" else ValueText(nan)
            values[group] = (measured(data, mean, **parent_label(data[mean])), baseline)
    return values


def group_figure(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return a dot for each group and subject, a column for each variable."""
    shown = [subject for subject in subjects if subject.results[0].groups]
    groups = list(dict.fromkeys(g for s in shown for g in s.results[0].groups))
    by_name = {name: [group_values(subject, name) for subject in shown] for name in GROUPED}
    by_name = {name: values for name, values in by_name.items() if any(values)}
    if not groups or not by_name:
        return None
    missing = ValueText(nan), ValueText(nan)
    first = next(iter(by_name.values()))[0]
    found = {group: first.get(group, missing)[0] for group in groups}
    groups.sort(key=lambda group: found[group].value if found[group].is_known else inf)
    columns: list[DotColumn] = []
    for name, by_subject in by_name.items():
        pairs = [[values.get(group, missing) for group in groups] for values in by_subject]
        display = describe(shown, name)
        columns.append(
            {
                "title": display.short_title,
                "units": display.units,
                "share": display.is_share,
                "values": [[cell(value) for value, _ in row] for row in pairs],
                "baselines": [[rounded(baseline.value) for _, baseline in row] for row in pairs],
            }
        )
    counts = [_n_documents(shown[0], group) for group in groups]
    return figure_of(
        "groups",
        "dots",
        "Kinds of text",
        "Means over heads for each group of documents, with 95 % intervals; the number of "
        "documents is in brackets. A short bar marks the baseline of a group: kinds of text differ "
        "in how dense their dependencies are.",
        groups=[f"{group} ({count})" for group, count in zip(groups, counts, strict=True)],
        subjects=[subjects.index(subject) for subject in shown],
        columns=columns,
    )


def _n_documents(subject: ModelResults, group: str) -> int:
    blocks = subject.results[0].groups.get(group)
    return int(next(iter(blocks.values()))["tokens_per_document_count"]) if blocks else 0
