"""Figures by layer: lines with intervals and baselines, and maps of tags and relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject, measured_elsewhere
from headscope.reporting.variables import describe, numbers
from headscope.reporting.wording import Sentence
from headscope.results.described import label_of

MOST_LABELS = 24


def by_layer(subject: Subject, name: str, **labels: Any) -> dict[str, Any] | None:
    """A line: the ratio over all heads of each layer, with its interval."""
    data = subject.data(f"{name}_by_layer")
    if data is None:
        return None
    array = data[f"{name}_by_layer"].sel(labels)
    line = {"x": [int(n) for n in array["layer"].values], "value": numbers(array)}
    if f"{name}_by_layer_interval" in data:
        low, high = data[f"{name}_by_layer_interval"].sel(labels).transpose("bound", "layer").values
        line |= {"low": numbers(low), "high": numbers(high)}
    return line


@dataclass(frozen=True)
class Column:
    """A variable by layer: at some labels, or in several series along an axis."""

    name: str
    title: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    baseline: tuple[str, str] | None = None
    """A variable without layers to hold it against, and what to call it."""

    def panel(self, subject: Subject) -> dict[str, Any] | None:
        """What one subject shows in this column."""
        line = by_layer(subject, self.name, **self.labels)
        if line is None:
            return None
        level = None
        if self.baseline is not None:
            baseline = subject.measured(self.baseline[0], **self.baseline_labels)
            if baseline.is_known:
                level = {"name": self.baseline[1], "value": numbers(baseline.value)}
        return {"series": [{"name": "", **line}], "baseline": level}

    @property
    def baseline_labels(self) -> dict[str, Any]:
        """The labels that the baseline has too."""
        return {k: v for k, v in self.labels.items() if k == "parent"}

    def describe(self, subjects: Sequence[Subject]) -> dict[str, Any]:
        """Its heading and units."""
        known = describe(subjects, self.name)
        return {
            "title": self.title or known.title,
            "units": known.units,
            "share": known.is_share,
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
    subjects: Sequence[Subject],
    key: str,
    columns: Sequence[Column],
    title: str,
    caption: Sentence | str,
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


def importance_lines(subjects: Sequence[Subject]) -> Figure | None:
    """Mean gradients by layer, a line for each class of keys (Clark et al.'s Figure 3)."""
    rows = []
    for number, subject in enumerate(subjects):
        data = subject.data("importance_by_layer")
        if data is None:
            continue
        series = []
        for name in data["gradient_class"].values.tolist():
            line = by_layer(subject, "importance", gradient_class=name)
            if line and any(value is not None for value in line["value"]):
                series.append({"name": label_of("key_class", name), **line})
        rows.append({"subject": number, "panels": [{"series": series, "baseline": None}]})
    if not rows:
        return None
    return figure_of(
        "importance",
        "lines",
        "How much the loss depends on attention",
        "Mean |∂L/∂a| over all pairs of a query and a key of the class, by layer. Where much "
        "attention meets small gradients, it changes little."
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


def distances_of_text(subjects: Sequence[Subject]) -> Figure | None:
    """How likely words d tokens apart are related: a property of the text."""
    rows = []
    for number, subject in enumerate(subjects):
        data = subject.data("dep_by_distance")
        if data is None:
            continue
        array = data["dep_by_distance"].isel(distance_between=slice(0, 20))
        line = {"x": [int(n) for n in array["distance_between"].values], "value": numbers(array)}
        if "dep_by_distance_interval" in data:
            bounds = data["dep_by_distance_interval"].isel(distance_between=slice(0, 20))
            low, high = bounds.transpose("bound", "distance_between").values
            line |= {"low": numbers(low), "high": numbers(high)}
        panel = {"series": [{"name": "", **line}], "baseline": None}
        rows.append({"subject": number, "panels": [panel]})
    if not rows:
        return None
    known = describe(subjects, "dep_by_distance")
    return figure_of(
        "text",
        "lines",
        "The text: how far dependencies reach",
        "Share of token pairs d apart that stand in a dependency relation. It is a property of "
        "the corpus and the model's tokens, not of attention.",
        equation="dep_by_distance",
        paper=known.paper,
        axis="distance",
        columns=[{"title": "Related pairs", "units": known.units, "share": known.is_share}],
        rows=rows,
    )


def label_maps(subjects: Sequence[Subject], name: str, dim: str) -> Figure | None:
    """Shares by layer for each tag or relation, most attended first."""
    shown = [s for s in subjects if s.has(f"{name}_by_layer")]
    if not shown:
        return None
    means: dict[str, list[float]] = {}
    for subject in shown:
        array = _by_layer_array(subject, name).mean("layer")
        for label, value in zip(array[dim].values.tolist(), array.values.tolist(), strict=True):
            if np.isfinite(value) and value > 0:
                means.setdefault(str(label), []).append(value)
    labels = sorted(means, key=lambda x: -max(means[x]))[:MOST_LABELS]
    panels = []
    for subject in shown:
        array = _by_layer_array(subject, name)
        known = set(array[dim].values.tolist())
        lines = [by_layer(subject, name, **{dim: x}) if x in known else None for x in labels]
        panels.append(
            {
                "subject": subjects.index(subject),
                "x": [int(n) for n in array["layer"].values],
                **{
                    key: [line.get(key) if line else None for line in lines]
                    for key in ("value", "low", "high")
                },
            }
        )
    known_as = describe(shown, name)
    rest = len(means) - len(labels)
    caption = (
        "Share of each layer's attention, null attention left out; columns are layers. Shades "
        "follow the square root of the share, so that small ones can be told apart."
        + (f" The {len(labels)} most attended of {len(means)}." if rest else "")
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


def _by_layer_array(subject: Subject, name: str) -> xr.DataArray:
    data = subject.data(f"{name}_by_layer")
    assert data is not None
    return data[f"{name}_by_layer"]
