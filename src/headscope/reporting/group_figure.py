"""Kinds of text side by side: means over heads for each group of documents."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

from headscope.reporting.figure import Axis, Figure, axis_of, figure_of
from headscope.reporting.subjects import Subject
from headscope.reporting.table_figures import Interval, cell
from headscope.reporting.variables import Number, describe, parent_label, rounded
from headscope.reporting.wording import Measured, measured

SHOWN = ("null_share", "dep_alignment", "distance", "entropy")
"""Variability is not shown: it is too small where documents are few, and groups differ in how
many they have."""


class Column(Axis):
    """A variable: `subject group` values, and the baselines they are held against."""

    values: list[list[Number | Interval]]
    baselines: list[list[Number]]


def group_values(subject: Subject, name: str) -> dict[str, tuple[Measured, Measured]]:
    """The mean over heads for each group, and its baseline where it has one."""
    values = {}
    for group, blocks in (subject.results[0].groups or {}).items():
        data = next(iter(blocks.values()))
        mean = f"{name}_mean"
        if mean in data:
            baseline = measured(data, "dep_baseline") if name == "dep_alignment" else Measured(nan)
            values[group] = (measured(data, mean, **parent_label(data[mean])), baseline)
    return values


def group_figure(subjects: Sequence[Subject]) -> Figure | None:
    """A dot for each group and subject, a column for each variable."""
    shown = [subject for subject in subjects if subject.results[0].groups]
    groups = list(dict.fromkeys(g for s in shown for g in s.results[0].groups))
    if not groups:
        return None
    columns: list[Column] = []
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


def _value(shown: Number | Interval) -> float:
    """What to sort by; groups without a value come last."""
    value = shown["value"] if isinstance(shown, dict) else shown
    return inf if value is None else value


def _counts(subject: Subject, groups: Sequence[str]) -> list[int]:
    """The number of documents of each group."""
    known = subject.results[0].groups
    return [
        int(next(iter(known[group].values()))["tokens_per_document_count"]) if group in known else 0
        for group in groups
    ]
