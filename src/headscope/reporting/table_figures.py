"""Tables: heads as classifiers beside their baselines, trained probes, differences of models.

A cell is text, a number, `{"value", "low", "high"}`, or `{"head": [subject, layer, head]}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NotRequired, TypedDict

import xarray as xr

from headscope.heads.probe_table import ProbeRow, probe_table
from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject, measured_elsewhere
from headscope.reporting.variables import Number, describe, parent_label, rounded
from headscope.reporting.wording import HeadPart, Measured, head, measured
from headscope.results.probe import Probe


class Interval(TypedDict):
    """A value and the bounds of its interval."""

    value: Number
    low: Number
    high: Number
    share: NotRequired[bool]
    """Is it shown in percent? Said where the rows of a column differ."""


Cell = str | Number | Interval | HeadPart
HONEST = (
    "“Honest” is the accuracy of heads that were chosen on one half of the documents and scored "
    "on the other half: the best of many heads looks better than it is."
)


def cell(value: Measured, *, share: bool | None = None) -> Number | Interval:
    """A value with its interval as a cell; a bare number if there is nothing beside it."""
    if not value.has_interval and share is None:
        return rounded(value.value)
    interval: Interval = {
        "value": rounded(value.value),
        "low": rounded(value.low),
        "high": rounded(value.high),
    }
    if share is not None:
        interval["share"] = share
    return interval


def best_rows(subject: Subject, name: str) -> tuple[ProbeRow, ...]:
    """The best head of each relation (`accuracy`) or kind of mention (`coref_accuracy`)."""
    result = subject.result(name)
    return () if result is None else probe_table(result).rows


def accuracy_of(row: ProbeRow) -> Measured:
    """A row's accuracy with its interval."""
    return Measured(row.accuracy, *row.interval)


def relation_table(subjects: Sequence[Subject]) -> Figure | None:
    """The best head for each relation beside the best fixed offset (Clark et al.'s Table 1)."""
    rows: list[list[Cell]] = [
        [
            *_opening(subject, number, row),
            "parent" if row.direction == "dependent" else "dependent",
            cell(accuracy_of(row)),
            cell(Measured(row.honest, *row.honest_interval)),
            rounded(row.baselines["offset"]),
            None if row.offset is None else f"{row.offset:+d}".replace("-", "−"),
            p_shown(row.gains["offset"].p_adjusted),
            row.ties,
        ]
        for number, subject in enumerate(subjects)
        for row in best_rows(subject, "accuracy")
    ]
    if not rows:
        return None
    return figure_of(
        "relations",
        "table",
        "The best head for each relation",
        "A head is right if the word it attends to most is the one that the treebank names. "
        f"The mark on the bar is the best fixed offset. {HONEST} The p value is that of the honest "
        "score being no better than every offset, corrected for all relations (Holm). Ties are "
        "heads that cannot be told from the best." + measured_elsewhere(subjects, "accuracy"),
        equation="accuracy",
        paper="Clark et al. 2019, section 4.2, Table 1",
        columns=[
            *_opening_columns("Relation"),
            {"label": "Finds the", "kind": "text"},
            {"label": "Accuracy", "kind": "bar", "against": 7},
            {"label": "Honest", "kind": "share"},
            {"label": "Best offset", "kind": "share"},
            {"label": "Offset", "kind": "text"},
            {"label": "p, corrected", "kind": "text"},
            {"label": "Ties", "kind": "count"},
        ],
        rows=rows,
    )


def p_shown(value: float) -> str:
    """A p value as a cell."""
    return "–" if isnan(value) else f"{value:.2g}" if value >= 0.001 else "< 0.001"


def _opening(subject: Subject, number: int, row: ProbeRow) -> list[Cell]:
    """The cells that both tables of heads begin with."""
    return [subject.title, row.label, row.cases, head(number, row.layer, row.head)]


def _opening_columns(label: str) -> list[dict[str, object]]:
    """The columns of these cells; `label` says what heads are scored on."""
    kinds = {"Model": "text", label: "text", "Cases": "count", "Head": "head"}
    return [{"label": name, "kind": kind} for name, kind in kinds.items()]


def coreference_table(subjects: Sequence[Subject]) -> Figure | None:
    """The best head for each kind of mention beside the baselines (Clark et al.'s Table 2)."""
    best = [
        (number, subject, row)
        for number, subject in enumerate(subjects)
        for row in best_rows(subject, "coref_accuracy")
    ]
    if not best:
        return None
    names = list(dict.fromkeys(name for _, _, row in best for name in row.baselines))
    rows: list[list[Cell]] = [
        [
            *_opening(subject, number, row),
            cell(accuracy_of(row)),
            cell(Measured(row.honest, *row.honest_interval)),
            *(rounded(row.baselines[name]) if name in row.baselines else None for name in names),
        ]
        for number, subject, row in best
    ]
    return figure_of(
        "coreference",
        "table",
        "The best head for antecedents",
        "A head is right if the head word of a mention attends most to the head word of one of "
        f"its antecedents. The baselines do not use attention. {HONEST}"
        + measured_elsewhere(subjects, "coref_accuracy"),
        equation="coref_accuracy",
        paper="Clark et al. 2019, section 4.3, Table 2",
        columns=[
            *_opening_columns("Mentions"),
            {"label": "Accuracy", "kind": "bar"},
            {"label": "Honest", "kind": "share"},
            *({"label": RULES.get(name, name), "kind": "share"} for name in names),
        ],
        rows=rows,
    )


def trained_table(subjects: Sequence[Subject]) -> Figure | None:
    """Trained probes over all heads, and right-branching (Clark et al.'s Table 3)."""
    rows: list[list[Cell]] = []
    for subject in subjects:
        chains = {}
        for probe in subject.probes:
            uas, chain = probe_scores(probe)
            rows.append([subject.title, probe_name(probe), cell(uas)])
            chains[round(chain.value, 6)] = chain
        known = [chain for chain in chains.values() if chain.is_known]
        rows += [[subject.title, "right-branching", cell(chain)] for chain in known]
    if not rows:
        return None
    return figure_of(
        "probes",
        "table",
        "Trees from all heads together",
        "A probe weighs the attention of all heads, in both directions, and predicts the parent of "
        "each word; the model is frozen. UAS, the unlabeled attachment score, is the share of "
        "words whose parent is right, without punctuation. Right-branching takes the next word as "
        "the parent.",
        equation="uas",
        paper="Clark et al. 2019, section 5, Table 3",
        columns=[
            {"label": "Model", "kind": "text"},
            {"label": "Probe", "kind": "text"},
            {"label": "UAS", "kind": "bar"},
        ],
        rows=rows,
    )


def probe_name(probe: Probe) -> str:
    """What a trained probe reads, in words."""
    name = probe.kind.replace("+", " and ")
    is_control = probe.provenance.get("control_seed") is not None
    return f"{name}, random weights (control)" if is_control else name


def probe_scores(probe: Probe) -> tuple[Measured, Measured]:
    """A probe's UAS, and the UAS of right-branching on the same words."""
    chain = measured(probe.scores, "right_branching", punctuation="without")
    return Measured(probe.uas, *probe.uas_interval), chain


def difference_table(
    subjects: Sequence[Subject], differences: Sequence[tuple[int, int, xr.Dataset]]
) -> Figure | None:
    """Means over heads of two subjects and their difference, with intervals."""
    rows: list[list[Cell]] = []
    for left, right, data in differences:
        for name in COMPARED:
            key = f"{name}_mean"
            if key not in data:
                continue
            labels = parent_label(data[key])
            known = describe(subjects, name)
            share = known.is_share
            difference = measured(data, key, **labels)
            p = float(data[f"{key}_p"].sel(labels))
            rows.append(
                [
                    subjects[left].title,
                    subjects[right].title,
                    known.title + ("" if share else f" ({known.units})"),
                    cell(subjects[left].measured(key, **labels), share=share),
                    cell(subjects[right].measured(key, **labels), share=share),
                    cell(difference, share=share),
                    p_shown(p),
                ]
            )
    if not rows:
        return None
    columns = [
        {"label": "First", "kind": "text"},
        {"label": "Second", "kind": "text"},
        {"label": "Mean over heads of", "kind": "text"},
        {"label": "First", "kind": "number"},
        {"label": "Second", "kind": "number"},
        {"label": "First − second", "kind": "difference"},
        {"label": "p", "kind": "text"},
    ]
    if len(differences) == 1:  # two subjects: their names are the headings
        left, right, _ = differences[0]
        columns[3]["label"], columns[4]["label"] = subjects[left].title, subjects[right].title
        columns[5]["label"] = "Difference"
        rows, columns = [row[2:] for row in rows], columns[2:]
    return figure_of(
        "differences",
        "table",
        "Differences",
        "Means over heads, and the first minus the second. The p value is that of a t test with "
        "jackknife standard errors, of this measure alone: "
        + "; ".join(
            dict.fromkeys(str(data.attrs.get("comparison", "")) for _, _, data in differences)
        )
        + ".",
        columns=columns,
        rows=rows,
    )


RULES = {
    "nearest": "Nearest mention",
    "head_match": "Same head word",
    "sieves": "Four sieves",
}
COMPARED = (
    "null_share",
    "dep_alignment",
    "distance",
    "entropy",
    "variability",
    "row_entropy",
    "sink_rate",
)
"""The variables whose means over heads are compared between models."""
