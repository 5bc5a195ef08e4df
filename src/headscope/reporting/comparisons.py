"""Findings and tables about two models, or about kinds of text: changes and differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.figures.chart_data import (
    ModelResults,
    ValueText,
    cell,
    describe,
    measured,
    parent_label,
)
from headscope.figures.chart_types import Cell, Figure, Phrase
from headscope.figures.layer_charts import GROUPED, SCORES, group_values
from headscope.heads import replication
from headscope.heads.roles import corpus_roles
from headscope.heads.significant import Onset, Onsets, find_onsets
from headscope.metrics.core.finalize import block_jackknives, state_of
from headscope.reporting.hypothesis_tests import ALPHA
from headscope.reporting.report_tables import COMPARED, measure_title, p_shown, table_of
from headscope.reporting.wording import (
    aside,
    cited,
    count_of,
    figure,
    head,
    listed,
    points,
    sentence,
    tied_heads,
    with_interval,
)
from headscope.results.result import Result
from headscope.results.steps import with_previous
from headscope.run.compare import SAME, best_heads
from headscope.run.merge import axes_of, registered_metrics_of
from headscope.statistics.differences import GroupTest, permutation_test
from headscope.statistics.intervals import benjamini_hochberg, holm
from headscope.statistics.jackknife import Jackknife

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


@dataclass(frozen=True)
class Changed:
    """The heads in which one measure changed, the largest change first."""

    name: str
    n_tested: int
    heads: tuple[Change, ...]


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
    changes = []
    with np.errstate(invalid="ignore"):
        places = np.argwhere(adjusted.values < ALPHA)
    for i, j in places:
        at = {"layer": int(adjusted["layer"][i]), "head": int(adjusted["head"][j])}
        difference = measured(here, name, **at)
        before, after = (subjects[n].measured(name, **labels, **at).value for n in (left, right))
        by = ValueText(-difference.value, -difference.high, -difference.low)
        p = float(adjusted[i, j])
        changes.append(Change(name, at["layer"], at["head"], before, after, by, p))
    changes.sort(key=lambda change: -abs(change.by.value))
    return int(np.isfinite(adjusted.values).sum()), tuple(changes)


def about_changes(subjects: Sequence[ModelResults], differences: Differences) -> list[Phrase]:
    """Write the changes between two models that read the same documents."""
    sentences: list[Phrase] = []
    for left, right, data in differences:
        changed = changes_of(subjects, left, right, data)
        if not changed:
            continue
        pair = f"From {subjects[left].title} to {subjects[right].title}"
        most = max(c.n_tested for c in changed)
        test = (
            "the same documents, paired, in total and in most documents; after correction over "
            f"{most} heads for each measure"
        )
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
    """`distance changed in 3 of 72 heads, such as L3 H1: from 2.1 to 3.4, by 1.3 [1.1–1.5]`."""
    first = changed.heads[0]
    units = describe(subjects, changed.name).units
    before, after = (with_interval(ValueText(x), units) for x in (first.before, first.after))
    n = f"{count_of(len(changed.heads), 'head')} of {changed.n_tested}"
    return [
        f"{_spoken(changed.name, subjects)} changed in {n}, such as ",
        head(right, first.layer, first.head),
        f": from {before} to {after}, by {points(first.by, units)}",
    ]


def about_differences(subjects: Sequence[ModelResults], differences: Differences) -> list[Phrase]:
    """Write the differences of means over heads of two subjects (t tests, Holm over measures)."""
    sentences: list[Phrase] = []
    for left, right, data in differences:
        names = [name for name in COMPARED if f"{name}_mean_p" in data]
        by_name = [data[f"{name}_mean_p"] for name in names]
        p = holm(np.array([float(array.sel(parent_label(array))) for array in by_name]))
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
                    aside(
                        f" (means over heads, {kind}, {_correction(len(names))})", max(p[p < ALPHA])
                    ),
                    figure("differences"),
                    ".",
                ]
            )
    return sentences


def about_best_heads(subjects: Sequence[ModelResults]) -> list[Phrase]:
    """Write where the best heads of two models differ (paired, cross-fitted, Holm)."""
    sentences: list[Phrase] = []
    for name in ("accuracy", "coref_accuracy"):
        first = subjects[0].result(name)
        for other in subjects[1:]:
            second = other.result(name)
            best = best_heads(first, second) if first and second else {}
            if not best:
                continue
            data, key = xr.Dataset({str(k): array for k, array in best.items()}), f"{name}_best"
            axis, p = str(data[key].dims[0]), data[f"{key}_p_adjusted"]
            n = int(p.notnull().sum())
            said: dict[str, list[str]] = {"better": [], "worse": []}
            for label in data[axis].values[(p < ALPHA).values].tolist():
                by = measured(data, key, **{axis: label})
                size = ValueText(abs(by.value), *sorted((abs(by.low), abs(by.high))))
                name_of = f"all {axis.replace('_', ' ')}s together" if label == "all" else label
                said["better" if by.value > 0 else "worse"].append(f"{name_of} by {points(size)}")
            parts: Phrase = [f"The best heads of {subjects[0].title} are "]
            ways = [sentence(f"{way} for ", listed(x)) for way, x in said.items() if x]
            parts += listed(ways) or [f"clearly better or worse for none of {n} labels"]
            test = f"cross-fitted, paired, after correction over {n} {axis.replace('_', ' ')}s"
            weakest = max(p.values[(p < ALPHA).values], default=None)
            test_part = aside(f" ({test})", weakest)
            sentences.append([*parts, f" than those of {other.title}", test_part, "."])
    return sentences


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
        test = f" (documents shuffled between kinds, {_correction(len(tests))})"
        start: Phrase = [f"In {subject.title}, kinds of text do not clearly differ", aside(test)]
        if said:
            start = [f"In {subject.title}, kinds of text differ in ", *listed(said)]
            start.append(aside(test, max(p[p < ALPHA])))
        sentences.append([*start, figure("groups"), "."])
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
    """`distance (such as … in fiction and … in news)`; these two only where they differ."""
    spoken = _spoken(name, [subject])
    low, high = int(np.nanargmin(test.deviations)), int(np.nanargmax(test.deviations))
    if not test.pair_p[low, high] < ALPHA:
        return spoken
    units = describe([subject], name).units
    values = {group: value for group, (value, _) in group_values(subject, name).items()}
    return (
        f"{spoken} (such as {with_interval(values[names[low]], units)} in {names[low]} "
        f"and {with_interval(values[names[high]], units)} in {names[high]})"
    )


def _correction(n_measures: int) -> str:
    return f"after correction over {count_of(n_measures, 'measure')}"


def _spoken(name: str, subjects: Sequence[ModelResults]) -> str:
    if name == "sink_rate":
        return "share of documents with a sink at the first token"
    title = describe(subjects, name).title
    return title[:1].lower() + title[1:]


MAX = 5


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
                ]
                for change in changed.heads[:MAX]
            )
    return table_of(
        "changes",
        "Heads that changed",
        "The second model minus the first, head by head, over the same documents: paired t tests "
        "with jackknife standard errors, and sign tests that most documents changed in the same "
        "direction; the larger p value, corrected for all heads of a measure (Benjamini & "
        f"Hochberg). Of each measure, at most {MAX} heads.",
        [
            ("Models", "text"),
            ("Measure", "text"),
            ("Heads changed", "text"),
            ("Head", "head"),
            ("Before", "number"),
            ("After", "number"),
            ("Change", "difference"),
            ("p, corrected", "text"),
        ],
        rows,
        paper="Benjamini & Hochberg 1995",
    )


def replications(
    subjects: Sequence[ModelResults], others: Sequence[Result]
) -> list[replication.TestedFindings]:
    """Test the findings of each subject on results of the same model on other corpora."""
    kinds = (*COMPARED, "accuracy", "coref_accuracy")
    pairs = [
        (result, other)
        for other in others
        for subject in subjects
        for result in subject.results
        if replication.is_same_model(result, other)
        and any(k in result and k in other for k in kinds)
    ]
    for other in others:
        if not any(other is second for _, second in pairs):
            raise InputError(
                f"replicate= has {other.title}: no result is of the same model with the same kind "
                "of measurement on another corpus."
            )
    return [result.replicates(other) for result, other in pairs]


def about_replications(tables: Sequence[replication.TestedFindings]) -> list[Phrase]:
    """Write how many findings hold on another corpus."""
    test = aside("; heads in total and in most documents")
    return [[f"{table.title}: {table.summary}", test, *cited("replication")] for table in tables]


def replication_table(tables: Sequence[replication.TestedFindings]) -> Figure | None:
    """Return the findings with their values in both corpora."""
    return table_of(
        "replication",
        "Findings on another corpus",
        "Findings of the first corpus, tested on the second: one-sided, in the direction of the "
        "first, p values corrected over all findings (Holm). “Not shown” is not a disproof: the "
        "second corpus may be too small. Heads were chosen on the first corpus alone, and are "
        "above in total and in most documents.",
        [
            ("Findings", "text"),
            *((x, "text") for x in ("First", "Second", "p, corrected", "There")),
        ],
        [
            [c.text, c.show(c.found), c.show(e), p_shown(e.p_adjusted), e.verdict]
            for table in tables
            for c, (e,) in table.rows
        ],
        paper="Holm 1979",
    )


Tracks = Sequence[tuple[int, Result]]
"""Number of a subject, and a result of it with the axis `step`."""


def _rises(tracks: Tracks) -> Iterator[tuple[int, Result, str, Onsets]]:
    for subject, result in tracks:
        known = with_previous(result).dataset
        for name in SCORES if len(result.steps) > 1 and result.states else ():
            if name in known:
                yield subject, result, name, find_onsets(result, name)


def about_training(tracks: Tracks) -> list[Phrase]:
    """Write which head rose first above what a role needs, and how many cannot be told from it."""
    firsts: dict[tuple[int, str, str], Onsets] = {}
    for subject, result, name, onsets in _rises(tracks):
        if onsets.rows:
            firsts.setdefault((subject, result.corpus_name, name), onsets)
    return [
        sentence(
            head(subject, row.layer, row.head),
            f" is the first {name.replace('_', '-')} head on {corpus}{tied_heads(len(tied))}: "
            f"from step {row.step:,} on it stays above 50 %",
            aside(f" [{row.low:,}–{'?' if row.high is None else f'{row.high:,}'}]"),
            *cited(ONSETS),
        )
        for (subject, corpus, name), onsets in firsts.items()
        for row, *tied in [onsets.earliest]
    ]


ONSETS = "onsets"


def onset_table(tracks: Tracks) -> Figure | None:
    """Return when each head took on a role, with its interval and its roles before and after."""
    roles: dict[int, list[xr.Dataset | None]] = {}
    for _, result in tracks:
        ends = (result.at_step(result.steps[place]).dataset for place in (0, -1))
        roles[id(result)] = [corpus_roles(data) for data in ends]

    def role(result: Result, end: int, row: Onset) -> str:
        data = roles[id(result)][end]
        return "" if data is None else str(data["role"].sel(layer=row.layer, head=row.head).item())

    return table_of(
        ONSETS,
        "When heads took on their roles",
        "The first tracked step after which a head stays above 50 %. The interval over documents "
        "holds at all steps at once (Bonferroni over steps, for each head). “–” means that it is "
        "not shown that the head is above. Roles are those of the corpus.",
        [
            *((x, "text") for x in ("Score", "On")),
            ("Head", "head"),
            *((x, "count") for x in ("Step", "From", "To")),
            *((x, "text") for x in ("Role at first", "Role at the end")),
            ("At the end", "share"),
        ],
        [
            [
                name,
                result.corpus_name,
                head(subject, row.layer, row.head),
                row.step,
                row.low,
                row.high,
                role(result, 0, row),
                role(result, 1, row),
                row.value,
            ]
            for subject, result, name, onsets in _rises(tracks)
            for row in onsets.rows
        ],
        paper="Olsson et al. 2022",
    )


def about_planned(
    subjects: Sequence[ModelResults], hypotheses: Sequence[replication.Hypothesis]
) -> list[Phrase]:
    """Write which planned claims hold, told apart from findings (Holm over all planned tests)."""
    sentences: list[Phrase] = []
    for subject in subjects if hypotheses else ():
        planned = replication.planned_findings(subject.results, hypotheses)
        holds = [claim for claim, estimate in planned if estimate.verdict == replication.HOLDS]
        said = [f"{claim.text} ({claim.show(claim.found)})" for claim in holds[:MAX]]
        more = [f"{len(holds) - MAX} more"] if len(holds) > MAX else []
        tests = count_of(len(planned), "planned test")
        test = f"planned; heads in total and in most documents; after correction over {tests}"
        start = f"{subject.title}: {len(holds)} of {len(planned)} planned claims hold"
        sentences.append(
            sentence(start, aside(f" ({test})"), ": " * bool(said), listed(said + more), ".")
        )
    return [*sentences, ["All other findings were found, not planned."]] if sentences else []
