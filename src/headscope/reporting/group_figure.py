"""Kinds of text side by side: means over heads for each group of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject
from headscope.reporting.table_figures import cell
from headscope.reporting.variables import describe, numbers
from headscope.reporting.wording import Measured, measured

SHOWN = ("null_share", "dep_alignment", "distance", "entropy")
"""Variability is not among them: of few documents it is too small, and groups differ in how
many they have."""


def group_values(subject: Subject, name: str) -> dict[str, tuple[Measured, Measured]]:
    """The mean over heads for each group, and its baseline where it has one."""
    found = {}
    for group, blocks in (subject.results[0].groups or {}).items():
        data = next(iter(blocks.values()))
        mean = f"{name}_mean"
        if mean in data:
            labels: dict[str, Any] = {"parent": "either"} if "parent" in data[mean].dims else {}
            baseline = measured(data, "dep_baseline") if name == "dep_alignment" else None
            value = measured(data, mean, **labels)
            found[group] = (value, baseline or Measured(float("nan")))
    return found


def group_figure(subjects: Sequence[Subject]) -> Figure | None:
    """A dot for each group and subject, a column for each variable."""
    shown = [subject for subject in subjects if subject.results[0].groups]
    groups = list(dict.fromkeys(g for s in shown for g in s.results[0].groups))
    if not groups:
        return None
    columns: list[dict[str, Any]] = []
    for name in SHOWN:
        known = describe(shown, name)
        values = [group_values(subject, name) for subject in shown]
        if not any(values):
            continue
        columns.append(
            {
                "title": known.short_title,
                "units": known.units,
                "share": known.is_share,
                "values": [
                    [cell(of[group][0]) if group in of else None for group in groups]
                    for of in values
                ],
                "baselines": [
                    [numbers(of[group][1].value) if group in of else None for group in groups]
                    for of in values
                ],
            }
        )
    if not columns:
        return None
    first = columns[0]["values"][0]
    order = sorted(range(len(groups)), key=lambda n: _value(first[n]))
    for column in columns:
        for key in ("values", "baselines"):
            column[key] = [[line[n] for n in order] for line in column[key]]
    counts = _counts(shown[0], groups)
    return figure_of(
        "groups",
        "dots",
        "Kinds of text",
        "Means over heads for each group of documents, with 95 % intervals; in brackets the number "
        "of documents. A short bar marks a group's own baseline: texts differ in how dense their "
        "dependencies are.",
        groups=[f"{groups[n]} ({counts[n]})" for n in order],
        subjects=[subjects.index(subject) for subject in shown],
        columns=columns,
    )


def _value(value: Any) -> float:
    found = value["value"] if isinstance(value, dict) else value
    return float("inf") if found is None else float(found)


def _counts(subject: Subject, groups: Sequence[str]) -> list[int]:
    of = subject.results[0].groups
    return [
        int(next(iter(of[group].values()))["tokens_per_document_count"]) if group in of else 0
        for group in groups
    ]
