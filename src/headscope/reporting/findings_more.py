"""Findings from probes and gradients, and differences between models and kinds of text."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from headscope.heads.probe_table import ProbeRow
from headscope.reporting.group_figure import SHOWN as GROUPED
from headscope.reporting.group_figure import group_values
from headscope.reporting.subjects import Subject
from headscope.reporting.table_figures import (
    COMPARED,
    RULES,
    accuracy_of,
    best_rows,
    probe_name,
    probe_scores,
)
from headscope.reporting.variables import describe, parent_label
from headscope.reporting.wording import (
    Measured,
    Sentence,
    count_of,
    figure,
    head,
    listed,
    measured,
    with_interval,
)
from headscope.results.described import label_of


def relations(subject: Subject, number: int) -> Sentence | None:
    """Whether single heads find relations better than a fixed offset."""
    rows = [row for row in best_rows(subject, "accuracy") if row.label != "all"]
    if not rows:
        return None
    noun = count_of(len(rows), "relation") + subject.elsewhere("accuracy")
    better = [row for row in rows if _is_better(row, row.baselines["offset"])]
    if not better:
        return [
            f"For none of {noun} does a single head find the related word clearly more often than "
            "the best fixed offset does",
            figure("relations"),
            ".",
        ]
    best = max(better, key=lambda row: row.gain)
    return [
        f"As classifiers, single heads beat the best fixed offset for {len(better)} of {noun}, "
        f"by the widest margin for {best.label}, where ",
        head(number, best.layer, best.head),
        f" ({label_of('direction', best.direction)}) is right in "
        f"{with_interval(accuracy_of(best), 'accuracy')} of {count_of(best.cases, 'case')} "
        f"({with_interval(Measured(best.honest), 'accuracy')} where heads are chosen on one half "
        "of the documents and scored on the other), "
        f"against {with_interval(Measured(best.baselines['offset']), 'accuracy')}",
        figure("relations"),
        ".",
    ]


def coreference(subject: Subject, number: int) -> Sentence | None:
    """Which baselines the best head for antecedents beats."""
    rows = best_rows(subject, "coref_accuracy")
    best = next((row for row in rows if row.label == "all"), None)
    if best is None:
        return None
    said = {
        name: f"{RULES.get(name, name).lower()} ({100 * value:.1f}\u00a0%)"
        for name, value in best.baselines.items()
    }
    beaten = [said[name] for name, value in best.baselines.items() if _is_better(best, value)]
    missed = [text for text in said.values() if text not in beaten]
    parts: Sentence = [
        "The best single head for coreference is ",
        head(number, best.layer, best.head),
        f": it finds an antecedent for {with_interval(accuracy_of(best), 'accuracy')} of "
        f"{count_of(best.cases, 'mention')}{subject.elsewhere('coref_accuracy')}",
    ]
    if beaten:
        parts += [", more than the rules ", *listed(beaten)]
    if missed:
        parts += ["; it does not clearly beat ", *listed(missed)]
    return [*parts, figure("coreference"), "."]


def trained(subject: Subject, number: int) -> Sentence | None:
    """How often trained probes over all heads find a word's parent."""
    if not subject.probes:
        return None
    items = []
    for probe in subject.probes:
        uas, chain = probe_scores(probe)
        against = ""
        if chain.is_known and uas.is_apart(chain):
            against = f", right-branching {with_interval(Measured(chain.value), 'UAS')}"
        items.append(f"{with_interval(uas, 'UAS')} ({probe_name(probe)}{against})")
    return [
        "Probes trained on all heads together find the parent of ",
        *listed(items),
        " of the words",
        figure("probes"),
        ".",
    ]


def _is_better(row: ProbeRow, baseline: float) -> bool:
    """Is a head's whole interval above a baseline, and its accuracy on other documents too?"""
    return accuracy_of(row).is_above(baseline) and row.honest > baseline


def importance(subject: Subject, number: int) -> Sentence | None:
    """At which keys gradients are larger or smaller than on average."""
    data = subject.data("importance_mean")
    if data is None or "importance_mean_interval" not in data:
        return None
    names = [str(name) for name in data["gradient_class"].values]
    if "all" not in names:
        return None
    overall = subject.measured("importance_mean", gradient_class="all")
    said = []
    for name in names:
        gradient = subject.measured("importance_mean", gradient_class=name)
        if name in ("all", "rest") or not gradient.is_apart(overall) or gradient.value <= 0:
            continue
        ratio = gradient.value / overall.value
        said.append(f"{100 * ratio:.0f}\u00a0% at {_quoted(name)}")
    if not said:
        return None
    return [
        f"The loss{subject.elsewhere('importance_mean')} does not depend on attention to all keys "
        "alike: in percent of its mean over all keys, the gradient |∂L/∂a| is ",
        *listed(said),
        figure("importance"),
        ".",
    ]


def about_differences(
    subjects: Sequence[Subject], differences: Sequence[tuple[int, int, xr.Dataset]]
) -> list[Sentence]:
    """Where two subjects clearly differ: the interval of the difference leaves out 0."""
    sentences: list[Sentence] = []
    for left, right, data in differences:
        said = []
        for name in COMPARED:
            units = describe(subjects, name).units
            key = f"{name}_mean"
            if key not in data:
                continue
            difference = measured(data, key, **parent_label(data[key]))
            if difference.is_above(0) or difference.is_below(0):
                way = "higher" if difference.value > 0 else "lower"
                bounds = sorted((abs(difference.low), abs(difference.high)))
                size = Measured(abs(difference.value), *bounds)
                shown = with_interval(size, units).replace("\u00a0%", "\u00a0points")
                said.append(f"{_spoken(name, subjects)} {way} by {shown}")
        if said:
            sentences.append(
                [
                    f"Compared with {subjects[right].title}, {subjects[left].title} has ",
                    *listed(said),
                    " (means over heads)",
                    figure("differences"),
                    ".",
                ]
            )
    return sentences


def about_groups(subjects: Sequence[Subject]) -> list[Sentence]:
    """Where kinds of text differ: lowest and highest, if their intervals do not overlap."""
    sentences: list[Sentence] = []
    for subject in subjects:
        said = []
        for name in GROUPED:
            units = describe([subject], name).units
            values = {g: v for g, (v, _) in group_values(subject, name).items() if v.is_known}
            if len(values) < 2:
                continue
            low = min(values, key=lambda g: values[g].value)
            high = max(values, key=lambda g: values[g].value)
            if values[high].is_apart(values[low]):
                said.append(
                    f"{_spoken(name, [subject])} from {with_interval(values[low], units)} in {low} "
                    f"to {with_interval(values[high], units)} in {high}"
                )
        if said:
            sentences.append(
                [
                    f"In {subject.title}, kinds of text differ: ",
                    *listed(said),
                    figure("groups"),
                    ".",
                ]
            )
    return sentences


def _quoted(name: str) -> str:
    shown = label_of("key_class", name)
    return f"“{shown}”" if not shown[0].isalpha() and not shown.startswith("[") else shown


def _spoken(name: str, subjects: Sequence[Subject]) -> str:
    if name == "sink_rate":
        return "documents whose first token is a sink"
    title = describe(subjects, name).title
    return title[:1].lower() + title[1:]
