"""Figures by layer: lines with intervals and baselines, maps of labels, kinds of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan

import numpy as np
import xarray as xr

from headscope.reporting.figure_data import (
    axis_of,
    describe,
    figure_of,
    numbers,
    parent_label,
    rounded,
)
from headscope.reporting.model_results import ModelResults, measured_elsewhere
from headscope.reporting.report_tables import cell
from headscope.reporting.report_types import (
    Axis,
    DotColumn,
    Figure,
    IntervalCell,
    Level,
    Line,
    LinePanel,
    MaybeNumber,
    Phrase,
)
from headscope.reporting.wording import ValueText, measured
from headscope.results.display import label_of

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

    def describe(self, subjects: Sequence[ModelResults]) -> Axis:
        """The column's heading and units."""
        known = describe(subjects, self.name)
        return {
            **axis_of(known),
            "title": self.title or known.title,
            "equation": self.name,
        }


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
    equation: str | None = None,
) -> Figure | None:
    """Variables by layer: a column for each, a row for each subject."""
    rows = []
    columns = [c for c in columns if any(c.panel(subject) for subject in subjects)]
    for number, subject in enumerate(subjects):
        panels = [column.panel(subject) for column in columns]
        if any(panels):
            rows.append({"subject": number, "panels": panels})
    if not rows:
        return None
    papers = [describe(subjects, column.name).paper for column in columns]
    return figure_of(
        key,
        "lines",
        title,
        caption,
        equation=equation,
        paper="; ".join(dict.fromkeys(paper for paper in papers if paper)),
        axis="layer",
        columns=[column.describe(subjects) for column in columns],
        rows=rows,
    )


def importance_lines(subjects: Sequence[ModelResults]) -> Figure | None:
    """Mean gradients by layer, a line for each class of keys (Clark et al.'s Figure 3)."""
    rows = []
    for number, subject in enumerate(subjects):
        data = subject.data("importance_by_layer")
        if data is None:
            continue
        series: list[Line] = []
        for name in data["gradient_class"].values.tolist():
            title = label_of("key_class", name)
            line = by_layer(subject, "importance", {"gradient_class": name}, title)
            if line and any(value is not None for value in line["value"]):
                series.append(line)
        rows.append({"subject": number, "panels": [{"series": series, "baseline": None}]})
    if not rows:
        return None
    return figure_of(
        "importance",
        "lines",
        "How much the loss depends on attention",
        "Mean |∂L/∂a| over all pairs of a query and a key of the class, by layer. A small "
        "gradient means that a little more or less attention changes the loss little."
        + measured_elsewhere(subjects, "importance"),
        equation="importance",
        paper=describe(subjects, "importance").paper,
        axis="layer",
        columns=[
            {
                "title": "Mean gradient",
                "units": describe(subjects, "importance").units,
                "share": False,
            }
        ],
        rows=rows,
    )


def distances_of_text(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return the share of related tokens by distance: a property of the text."""
    rows = []
    for number, subject in enumerate(subjects):
        data = subject.data("dep_by_distance")
        if data is None:
            continue
        near = data.isel(distance_between=slice(0, FARTHEST))
        line = line_along(near, "dep_by_distance", "distance_between")
        panel: LinePanel = {"series": [line], "baseline": None}
        rows.append({"subject": number, "panels": [panel]})
    if not rows:
        return None
    known = describe(subjects, "dep_by_distance")
    return figure_of(
        "text",
        "lines",
        "The text: how far dependencies reach",
        "Of all pairs of tokens that are d apart, the share that stands in a dependency relation. "
        "It is a property of the corpus and of the model's tokens, not of attention.",
        equation="dep_by_distance",
        paper=known.paper,
        axis="distance",
        columns=[{**axis_of(known), "title": "Related pairs"}],
        rows=rows,
    )


def label_maps(subjects: Sequence[ModelResults], name: str, dim: str) -> Figure | None:
    """Shares by layer for each tag or relation, the most attended first."""
    shown = [s for s in subjects if s.has(f"{name}_by_layer")]
    if not shown:
        return None
    means: dict[str, list[float]] = {}
    for subject in shown:
        array = _by_layer_array(subject, name).mean("layer")
        for label, value in zip(array[dim].values.tolist(), array.values.tolist(), strict=True):
            if np.isfinite(value) and value > 0:
                means.setdefault(str(label), []).append(value)
    labels = sorted(means, key=lambda x: -max(means[x]))[:MAX_LABELS]
    panels = []
    for subject in shown:
        array = _by_layer_array(subject, name)
        known = set(array[dim].values.tolist())
        lines = [by_layer(subject, name, {dim: x}) if x in known else None for x in labels]
        panels.append(
            {
                "subject": subjects.index(subject),
                "x": [int(n) for n in array["layer"].values],
                **{
                    key: [None if line is None else line.get(key) for line in lines]
                    for key in ("value", "low", "high")
                },
            }
        )
    known_as = describe(shown, name)
    rest = len(means) - len(labels)
    caption = (
        "Share of each layer's attention, without null attention; columns are layers. Shades "
        "follow the square root of the share, so that small shares can be told apart."
        + (f" Shown are the {len(labels)} most attended of {len(means)}." if rest else "")
    )
    return figure_of(
        name,
        "matrix",
        known_as.title,
        caption,
        equation=name,
        paper=known_as.paper,
        labels=[label_of(dim, label) for label in labels],
        units=known_as.units,
        share=known_as.is_share,
        panels=panels,
    )


def _by_layer_array(subject: ModelResults, name: str) -> xr.DataArray:
    data = subject.data(f"{name}_by_layer")
    assert data is not None
    return data[f"{name}_by_layer"]


SHOWN = ("null_share", "dep_alignment", "distance", "entropy")
"""Variability is not shown: it is too small where documents are few, and groups differ in how
many they have."""


def group_values(subject: ModelResults, name: str) -> dict[str, tuple[ValueText, ValueText]]:
    """The mean over heads for each group, and its baseline where it has one."""
    values = {}
    for group, blocks in (subject.results[0].groups or {}).items():
        data = next(iter(blocks.values()))
        mean = f"{name}_mean"
        if mean in data:
            baseline = measured(data, "dep_baseline") if name == "dep_alignment" else ValueText(nan)
            values[group] = (measured(data, mean, **parent_label(data[mean])), baseline)
    return values


def group_figure(subjects: Sequence[ModelResults]) -> Figure | None:
    """A dot for each group and subject, a column for each variable."""
    shown = [subject for subject in subjects if subject.results[0].groups]
    groups = list(dict.fromkeys(g for s in shown for g in s.results[0].groups))
    if not groups:
        return None
    columns: list[DotColumn] = []
    for name in SHOWN:
        by_subject = [group_values(subject, name) for subject in shown]
        if not any(by_subject):
            continue
        known = describe(shown, name)
        columns.append(
            {
                **axis_of(known),
                "title": known.short_title,
                "values": [
                    [cell(values[group][0]) if group in values else None for group in groups]
                    for values in by_subject
                ],
                "baselines": [
                    [
                        rounded(values[group][1].value) if group in values else None
                        for group in groups
                    ]
                    for values in by_subject
                ],
            }
        )
    if not columns:
        return None
    first = columns[0]["values"][0]
    order = sorted(range(len(groups)), key=lambda n: _value(first[n]))
    for column in columns:
        column["values"] = [[values[n] for n in order] for values in column["values"]]
        column["baselines"] = [[values[n] for n in order] for values in column["baselines"]]
    counts = _counts(shown[0], groups)
    return figure_of(
        "groups",
        "dots",
        "Kinds of text",
        "Means over heads for each group of documents, with 95 % intervals; the number of "
        "documents is in brackets. A short bar marks the baseline of a group: kinds of text differ "
        "in how dense their dependencies are.",
        groups=[f"{groups[n]} ({counts[n]})" for n in order],
        subjects=[subjects.index(subject) for subject in shown],
        columns=columns,
    )


def _value(shown: MaybeNumber | IntervalCell) -> float:
    """Return the sort key; groups without a value come last."""
    value = shown["value"] if isinstance(shown, dict) else shown
    return inf if value is None else value


def _counts(subject: ModelResults, groups: Sequence[str]) -> list[int]:
    known = subject.results[0].groups
    return [
        int(next(iter(known[group].values()))["tokens_per_document_count"]) if group in known else 0
        for group in groups
    ]
