"""Findings and tables about two models, or about kinds of text: changes and differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.figures.chart_data import (
    ModelResults,
    ValueText,
    cell,
    describe,
    measured,
    parent_label,
)
from headscope.figures.chart_types import Cell, Figure, Phrase
from headscope.figures.layer_charts import GROUPED, group_values
from headscope.metrics.core.finalize import block_jackknives, state_of
from headscope.reporting.hypothesis_tests import ALPHA
from headscope.reporting.report_tables import COMPARED, measure_title, p_shown, table_of
from headscope.reporting.wording import (
    SPACE,
    aside,
    count_of,
    figure,
    head,
    listed,
    points,
    sentence,
    with_interval,
)
from headscope.results.result import Result
from headscope.run.compare import SAME
from headscope.run.merge import axes_of, registered_metrics_of
from headscope.statistics.differences import GroupTest, permutation_test
from headscope.statistics.jackknife import Jackknife, is_driven_by_one, largest_influence
from headscope.statistics.multiple_testing import benjamini_hochberg, holm

Differences = Sequence[tuple[int, int, xr.Dataset]]
"""Numbers of two subjects, and the first minus the second."""


@dataclass(frozen=True)
class Change:
    """A head that is not what it was: the second subject minus the first."""

    name: str
    layer: int
    head: int
    before: float
    after: float
    by: ValueText
    p_adjusted: float
    driven_share: float = 0.0
    """Share of the variance that is due to one document, if that drives the value; else 0."""


@dataclass(frozen=True)
class Changed:
    """The heads in which one measure changed, the largest change first; those whose change one
    document decides come last.
    """

    name: str
    n_tested: int
    heads: tuple[Change, ...]

    @property
    def clear(self) -> tuple[Change, ...]:
        """Changes that are not driven by one document."""
        return tuple(change for change in self.heads if not change.driven_share)


def changes_of(
    subjects: Sequence[ModelResults], left: int, right: int, data: xr.Dataset
) -> list[Changed]:
    """Return the heads that changed in each measure, over the same documents (BH over heads).

    Empty where the two cannot be set against one another head by head: other documents, or
    other layers and heads. Measures of which no head could be tested are left out.
    """
    if data.attrs.get("comparison") != SAME:
        return []
    changed = [
        Changed(name, *_changed_heads(subjects, left, right, data, name))
        for name in COMPARED
        if name in data and {"layer", "head"} <= {*map(str, data[name].dims)}
    ]
    return [one for one in changed if one.n_tested]


def _changed_heads(
    subjects: Sequence[ModelResults], left: int, right: int, data: xr.Dataset, name: str
) -> tuple[int, tuple[Change, ...]]:
    labels = parent_label(data[name])
    here = data[[name, f"{name}_p", f"{name}_interval"]].sel(labels)
    alone = here[f"{name}_p"].transpose("layer", "head")
    # Over the heads that the sentence counts, not over the other labels of the variable too.
    adjusted = alone.copy(data=benjamini_hochberg(alone.values))
    shares = _driven_shares(subjects[left], subjects[right], name, labels)
    changes = []
    with np.errstate(invalid="ignore"):
        places = np.argwhere(adjusted.values < ALPHA)
    for i, j in places:
        at = {"layer": int(adjusted["layer"][i]), "head": int(adjusted["head"][j])}
        difference = measured(here, name, **at)
        before, after = (subjects[n].measured(name, **labels, **at).value for n in (left, right))
        by = ValueText(-difference.value, -difference.high, -difference.low)
        p = float(adjusted[i, j])
        share = 0.0 if shares is None else float(shares[i, j])
        changes.append(Change(name, at["layer"], at["head"], before, after, by, p, share))
    changes.sort(key=lambda change: (change.driven_share > 0, -abs(change.by.value)))
    return int(np.isfinite(adjusted.values).sum()), tuple(changes)


def _driven_shares(
    left: ModelResults, right: ModelResults, name: str, labels: Mapping[str, str]
) -> np.ndarray | None:
    """`layer head`: the share of the document that decides a difference; 0 where none does."""
    sides = [side.jackknife(name, **labels) for side in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    of = sides[0] - sides[1]
    shares: np.ndarray = np.where(is_driven_by_one(of), largest_influence(of), 0.0)
    return shares


def about_changes(subjects: Sequence[ModelResults], differences: Differences) -> list[Phrase]:
    """Write the changes between two models that read the same documents."""
    sentences: list[Phrase] = []
    for left, right, data in differences:
        changed = changes_of(subjects, left, right, data)
        if not changed:
            continue
        pair = f"From {subjects[left].title} to {subjects[right].title}"
        most = max(c.n_tested for c in changed)
        test = f"the same documents, paired; after correction over {most} heads for each measure"
        some = [c for c in changed if c.heads]
        if not some:
            sentences.append(
                [f"{pair}, no head clearly changed in any measure", aside(f" ({test})"), "."]
            )
            continue
        parts = [_said(subjects, right, c) for c in some]
        rest = [_spoken(c.name, subjects) for c in changed if not c.heads]
        none = ["; ", *listed(rest), " clearly changed in none"] if rest else []
        sentences.append(
            sentence(f"{pair}, ", listed(parts), *none, aside(f" ({test})"), figure("changes"), ".")
        )
    return sentences


def _said(subjects: Sequence[ModelResults], right: int, changed: Changed) -> Phrase:
    """`distance changed in 3 of 72 heads, most in L3 H1: from 2.1 to 3.4 (+1.3 [1.1–1.5])`.

    Heads whose change one document decides are not counted among them, but named after them.
    """
    first = changed.heads[0]
    units = describe(subjects, changed.name).units
    before, after = (with_interval(ValueText(x), units) for x in (first.before, first.after))
    clear, others = len(changed.clear), len(changed.heads) - len(changed.clear)
    perhaps = "" if clear else "perhaps "
    n = f"{count_of(clear or others, 'head')} of {changed.n_tested}"
    most: Phrase = [
        f"{_spoken(changed.name, subjects)} {perhaps}changed in {n}, most in ",
        head(right, first.layer, first.head),
        f": from {before} to {after}, by {points(first.by, units)}",
    ]
    if not others:
        return most
    where = f"and perhaps in {count_of(others, 'more head')}, where " if clear else "but "
    return [*most, f", {where}one document is more than half of what the difference varies by"]


def about_differences(subjects: Sequence[ModelResults], differences: Differences) -> list[Phrase]:
    """Write the differences of means over heads of two subjects (t tests, Holm over measures)."""
    sentences: list[Phrase] = []
    for left, right, data in differences:
        names = [name for name in COMPARED if f"{name}_mean_p" in data]
        p = holm(np.array([_p_of_mean(data, name) for name in names]))
        said = []
        for name, adjusted in zip(names, p.tolist(), strict=True):
            key = f"{name}_mean"
            difference = measured(data, key, **parent_label(data[key]))
            if adjusted < ALPHA:
                way = "higher" if difference.value > 0 else "lower"
                bounds = sorted((abs(difference.low), abs(difference.high)))
                size = ValueText(abs(difference.value), *bounds)
                units = describe(subjects, name).units
                said.append(f"{_spoken(name, subjects)} {way} by {points(size, units)}")
        if said:
            kind = "paired" if data.attrs.get("comparison") == SAME else "not the same documents"
            sentences.append(
                [
                    f"Compared with {subjects[right].title}, {subjects[left].title} has ",
                    *listed(said),
                    aside(f" (means over heads, {kind}, {_correction(len(names))})"),
                    figure("differences"),
                    ".",
                ]
            )
    return sentences


def _p_of_mean(data: xr.Dataset, name: str) -> float:
    p = data[f"{name}_mean_p"]
    return float(p.sel(parent_label(p)))


def about_groups(subjects: Sequence[ModelResults]) -> list[Phrase]:
    """Write the differences of kinds of text: permutation tests over documents, Holm over
    variables.
    """
    sentences: list[Phrase] = []
    for subject in subjects:
        tests = group_tests(subject)
        if not tests:
            continue
        p = holm(np.array([test.p for test in tests.values()]))
        names = axes_of(subject.results[0]).groups
        said = [
            _group_said(subject, name, test, names)
            for (name, test), adjusted in zip(tests.items(), p.tolist(), strict=True)
            if adjusted < ALPHA
        ]
        test = f"documents shuffled between kinds, {_correction(len(tests))}"
        if said:
            start: Phrase = [f"In {subject.title}, kinds of text differ in ", *listed(said)]
        else:
            start = [f"In {subject.title}, kinds of text do not clearly differ"]
        sentences.append([*start, aside(f" ({test})"), figure("groups"), "."])
    return sentences


def group_tests(subject: ModelResults) -> dict[str, GroupTest]:
    """By variable: whether its groups differ, averaged over heads; those that can be tested."""
    result = subject.results[0]
    if not result.groups or not result.states:
        return {}
    axes = axes_of(result)
    tests = {
        name: permutation_test(jackknife, axes.groups_of_buckets)
        for name, jackknife in _ungrouped_jackknives(result)
    }
    return {name: test for name, test in tests.items() if np.isfinite(test.p)}


def _ungrouped_jackknives(result: Result) -> Iterator[tuple[str, Jackknife]]:
    """The jackknife of each part of each group on the variables that groups are compared in."""
    axes = axes_of(result)
    block = next(iter(result.blocks))
    metrics = [metric for metric in registered_metrics_of(result) if metric.name in GROUPED]
    measured_by = {m.name: state_of(result.states[block][m.name]) for m in metrics}
    jackknife = block_jackknives(measured_by, metrics, axes, np.arange(axes.n_buckets))
    for name in GROUPED:
        if name in jackknife:
            labels = parent_label(result.dataset[name])
            at = [slice(None)] * 2 + [-1] * len(labels)
            yield name, jackknife[name].at(*at)


def _group_said(subject: ModelResults, name: str, test: GroupTest, names: Sequence[str]) -> str:
    """`distance (from … in fiction to … in news)`; the extremes only where they differ."""
    spoken = _spoken(name, [subject])
    low, high = int(np.nanargmin(test.deviations)), int(np.nanargmax(test.deviations))
    if not test.pair_p[low, high] < ALPHA:
        return spoken
    units = describe([subject], name).units
    values = {group: value for group, (value, _) in group_values(subject, name).items()}
    return (
        f"{spoken} (from {with_interval(values[names[low]], units)} in {names[low]} "
        f"to {with_interval(values[names[high]], units)} in {names[high]})"
    )


def _correction(n_measures: int) -> str:
    return f"after correction over {count_of(n_measures, 'measure')}"


def _spoken(name: str, subjects: Sequence[ModelResults]) -> str:
    if name == "sink_rate":
        return "documents whose first token is a sink"
    title = describe(subjects, name).title
    return title[:1].lower() + title[1:]


MAX = 5
"""Maximum heads of each measure."""


def change_table(subjects: Sequence[ModelResults], differences: Differences) -> Figure | None:
    """For each measure, the heads that changed most, of those that changed."""
    rows: list[list[Cell]] = []
    for left, right, data in differences:
        for changed in changes_of(subjects, left, right, data):
            display = describe(subjects, changed.name)
            share = display.is_share
            rows.extend(
                [
                    f"{subjects[left].title} → {subjects[right].title}",
                    measure_title(display),
                    f"{len(changed.heads)} of {changed.n_tested}",
                    head(right, change.layer, change.head),
                    cell(ValueText(change.before), share=share),
                    cell(ValueText(change.after), share=share),
                    cell(change.by, share=share),
                    p_shown(change.p_adjusted),
                    f"{change.driven_share:.0%}".replace("%", f"{SPACE}%")
                    if change.driven_share
                    else "",
                ]
                for change in changed.heads[:MAX]
            )
    return table_of(
        "changes",
        "Heads that changed",
        "The second model minus the first, head by head, over the same documents: paired t tests "
        "with jackknife standard errors, p values corrected for all heads of a measure (Benjamini "
        f"& Hochberg). Of each measure, at most {MAX} heads. Where one document is more than half "
        "of what a change varies by, its share is given: other documents may say otherwise.",
        [
            ("Models", "text"),
            ("Measure", "text"),
            ("Heads changed", "text"),
            ("Head", "head"),
            ("Before", "number"),
            ("After", "number"),
            ("Change", "difference"),
            ("p, corrected", "text"),
            ("One document", "text"),
        ],
        rows,
        paper="Benjamini & Hochberg 1995",
    )
