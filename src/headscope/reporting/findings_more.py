"""Findings from probes and gradients, and between models and kinds of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from headscope.reporting.groups import group_values
from headscope.reporting.subjects import Subject
from headscope.reporting.tables import COMPARED, best_heads, probe_name, probe_uas
from headscope.reporting.variables import label_of, name_of
from headscope.reporting.wording import (
    Measured,
    Sentence,
    figure,
    head,
    listed,
    measured,
    with_interval,
)

__all__ = ["about_differences", "about_groups", "about_probes"]


def about_probes(subject: Subject, number: int) -> list[Sentence]:
    """What probes and gradients say about one model."""
    rules = (_relations, _coreference, _trained, _importance)
    found = (rule(subject, number) for rule in rules)
    return [text for text in found if text]


def _relations(subject: Subject, number: int) -> Sentence | None:
    data = subject.data("accuracy")
    if data is None or not {"relation", "direction"} <= set(data["accuracy"].dims):
        return None
    better, total = [], 0
    for relation in data["relation"].values.tolist():
        if str(relation).lower() == "all":
            continue
        found = [
            (best, direction)
            for direction in data["direction"].values.tolist()
            if (best := best_heads(data, "accuracy", relation=relation, direction=direction))
        ]
        baseline = measured(data, "baseline", relation=relation).value
        if not found or not np.isfinite(baseline):
            continue
        total += 1
        (layer, at, accuracy), direction = max(found, key=lambda item: item[0][2].value)
        if accuracy.is_above(baseline):
            better.append((accuracy.value - baseline, relation, layer, at, accuracy, direction))
    if not total:
        return None
    if not better:
        return [
            f"For none of {total} relations does a single head find the other word clearly more "
            "often than the best fixed offset",
            figure("relations"),
            ".",
        ]
    _, relation, layer, at, accuracy, direction = max(better, key=lambda item: item[0])
    offset = Measured(measured(data, "baseline", relation=relation).value)
    return [
        f"As classifiers, single heads beat the best fixed offset for {len(better)} of {total} "
        f"relations; most of all for {relation}, where ",
        head(number, layer, at),
        f" ({label_of('direction', direction)}) is right in {with_interval(accuracy, 'accuracy')} "
        f"of the cases, against {with_interval(offset, 'accuracy')}",
        figure("relations"),
        ".",
    ]


def _coreference(subject: Subject, number: int) -> Sentence | None:
    data = subject.data("coref_accuracy")
    if data is None or "coref_baseline" not in data:
        return None
    kinds = [str(kind) for kind in data["mention_kind"].values]
    kind = next((k for k in kinds if k.lower() == "all"), kinds[0])
    best = best_heads(data, "coref_accuracy", mention_kind=kind)
    if best is None:
        return None
    layer, at, accuracy = best
    baselines = {
        str(name): measured(data, "coref_baseline", mention_kind=kind, baseline=name).value
        for name in data["baseline"].values.tolist()
    }
    beaten = [name for name, value in baselines.items() if accuracy.is_above(value)]
    not_beaten = [name for name in baselines if name not in beaten]
    said = [f"{name.replace('_', ' ')} ({100 * baselines[name]:.1f}\u00a0%)" for name in beaten]
    missed = [f"{n.replace('_', ' ')} ({100 * baselines[n]:.1f}\u00a0%)" for n in not_beaten]
    parts: Sentence = [
        "The best single head for coreference is ",
        head(number, layer, at),
        f": it finds an antecedent for {with_interval(accuracy, 'accuracy')} of the mentions",
    ]
    if said:
        parts += [", more than ", *listed(said)]
    if missed:
        parts += ["; it does not clearly beat ", *listed(missed)]
    return [*parts, figure("coreference"), "."]


def _trained(subject: Subject, number: int) -> Sentence | None:
    if not subject.probes:
        return None
    items = [
        f"{with_interval(probe_uas(probe), 'UAS')} ({probe_name(probe)})"
        for probe in subject.probes
    ]
    return [
        "Trained on all heads together, probes attach ",
        *listed(items),
        " of the words to their right head",
        figure("probes"),
        ".",
    ]


def _importance(subject: Subject, number: int) -> Sentence | None:
    data = subject.data("importance_mean")
    if data is None or "importance_mean_interval" not in data:
        return None
    names = [str(name) for name in data["gradient_class"].values]
    if "all" not in names:
        return None
    everything = subject.measured("importance_mean", gradient_class="all")
    said = []
    for name in names:
        found = subject.measured("importance_mean", gradient_class=name)
        if name in ("all", "rest") or not found.is_apart(everything) or found.value <= 0:
            continue
        ratio = found.value / everything.value
        said.append(f"at {_quoted(name)} {100 * ratio:.0f}\u00a0%")
    if not said:
        return None
    return [
        "The loss does not depend on attention to all keys alike: the mean gradient |∂L/∂a| is ",
        *listed(said),
        " of that at all keys",
        figure("importance"),
        ".",
    ]


def about_differences(
    subjects: Sequence[Subject], differences: Sequence[tuple[int, int, xr.Dataset]]
) -> list[Sentence]:
    """Where two subjects differ beyond their intervals."""
    found: list[Sentence] = []
    for left, right, data in differences:
        said = []
        for name, units in COMPARED.items():
            key = f"{name}_mean"
            if key not in data:
                continue
            labels = {"parent": "either"} if "parent" in data[key].dims else {}
            apart = measured(data, key, **labels)
            if apart.is_above(0) or apart.is_below(0):
                way = "higher" if apart.value > 0 else "lower"
                size = Measured(abs(apart.value), *sorted((abs(apart.low), abs(apart.high))))
                shown = with_interval(size, units).replace("\u00a0%", "\u00a0points")
                said.append(f"{_spoken(name)} {way} by {shown}")
        if said:
            found.append(
                [
                    f"Against {subjects[right].title}, {subjects[left].title} has ",
                    *listed(said),
                    " (means over heads)",
                    figure("differences"),
                    ".",
                ]
            )
    return found


def about_groups(subjects: Sequence[Subject]) -> list[Sentence]:
    """Where kinds of text differ: the extremes, if their intervals do not overlap."""
    found: list[Sentence] = []
    for subject in subjects:
        said = []
        for name, units in COMPARED.items():
            values = {g: v for g, (v, _) in group_values(subject, name).items() if v.is_known}
            if len(values) < 2:
                continue
            low = min(values, key=lambda g: values[g].value)
            high = max(values, key=lambda g: values[g].value)
            if values[high].is_apart(values[low]):
                said.append(
                    f"{_spoken(name)} from {with_interval(values[low], units)} in {low} to "
                    f"{with_interval(values[high], units)} in {high}"
                )
        if said:
            found.append(
                [f"In {subject.title}, kinds of text differ: ", *listed(said), "",
                 figure("groups"), "."]
            )  # fmt: skip
    return found


def _quoted(name: str) -> str:
    shown = label_of("key_class", name)
    return f"“{shown}”" if not shown[0].isalpha() and not shown.startswith("[") else shown


def _spoken(name: str) -> str:
    if name == "sink_rate":
        return "documents whose first token is a sink"
    text = name_of(name)
    return text[:1].lower() + text[1:]
