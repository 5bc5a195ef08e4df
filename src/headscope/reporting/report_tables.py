"""Tables of a report: probes beside their baselines, effects by role, differences of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import xarray as xr

from headscope.probes.tables import ProbeRow, probe_table
from headscope.reporting.figure_data import describe, figure_of, parent_label, rounded
from headscope.reporting.head_figures import roles_of
from headscope.reporting.hypothesis_tests import LEVEL
from headscope.reporting.model_results import ModelResults, measured_elsewhere
from headscope.reporting.report_types import Cell, Figure, IntervalCell, MaybeNumber
from headscope.reporting.wording import ValueText, head, measured
from headscope.results.probe import Probe
from headscope.statistics.multiple_testing import benjamini_hochberg

CROSS_FITTED = (
    "“Cross-fitted” is the accuracy of heads chosen on one half of the documents and scored "
    "on the other half: the maximum over many heads is biased upward."
)


def cell(value: ValueText, *, share: bool | None = None) -> MaybeNumber | IntervalCell:
    """A value with its interval as a cell; a bare number if there is nothing beside it."""
    if not value.has_interval and share is None:
        return rounded(value.value)
    interval: IntervalCell = {
        "value": rounded(value.value),
        "low": rounded(value.low),
        "high": rounded(value.high),
    }
    if share is not None:
        interval["share"] = share
    return interval


def best_rows(subject: ModelResults, name: str) -> tuple[ProbeRow, ...]:
    """The best head of each relation (`accuracy`) or kind of mention (`coref_accuracy`)."""
    result = subject.result(name)
    return () if result is None else probe_table(result).rows


def accuracy_of(row: ProbeRow) -> ValueText:
    """A row's accuracy with its interval."""
    return ValueText(row.accuracy, *row.interval)


def relation_table(subjects: Sequence[ModelResults]) -> Figure | None:
    """The best head for each relation beside the best fixed offset (Clark et al.'s Table 1)."""
    rows: list[list[Cell]] = [
        [
            *_opening(subject, number, row),
            "parent" if row.direction == "dependent" else "dependent",
            cell(accuracy_of(row)),
            cell(ValueText(row.crossfit_accuracy, *row.crossfit_interval)),
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
        f"The mark on the bar is the best fixed offset. {CROSS_FITTED} The p value is of the cross-"
        "fitted score being no better than every offset, corrected for all relations (Holm). Ties are "
        "heads that cannot be told from the best." + measured_elsewhere(subjects, "accuracy"),
        equation="accuracy",
        paper="Clark et al. 2019, section 4.2, Table 1",
        columns=[
            *_opening_columns("Relation"),
            {"label": "Finds the", "kind": "text"},
            {"label": "Accuracy", "kind": "bar", "against": 7},
            {"label": "Cross-fitted", "kind": "share"},
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


def _opening(subject: ModelResults, number: int, row: ProbeRow) -> list[Cell]:
    """The cells that both tables of heads begin with."""
    return [subject.title, row.label, row.cases, head(number, row.layer, row.head)]


def _opening_columns(label: str) -> list[dict[str, object]]:
    """The columns of these cells; `label` says what heads are scored on."""
    kinds = {"Model": "text", label: "text", "Cases": "count", "Head": "head"}
    return [{"label": name, "kind": kind} for name, kind in kinds.items()]


def coreference_table(subjects: Sequence[ModelResults]) -> Figure | None:
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
            cell(ValueText(row.crossfit_accuracy, *row.crossfit_interval)),
            *(rounded(row.baselines[name]) if name in row.baselines else None for name in names),
        ]
        for number, subject, row in best
    ]
    return figure_of(
        "coreference",
        "table",
        "The best head for antecedents",
        "A head is right if the head word of a mention attends most to the head word of one of "
        f"its antecedents. The baselines do not use attention. {CROSS_FITTED}"
        + measured_elsewhere(subjects, "coref_accuracy"),
        equation="coref_accuracy",
        paper="Clark et al. 2019, section 4.3, Table 2",
        columns=[
            *_opening_columns("Mentions"),
            {"label": "Accuracy", "kind": "bar"},
            {"label": "Cross-fitted", "kind": "share"},
            *({"label": RULES.get(name, name), "kind": "share"} for name in names),
        ],
        rows=rows,
    )


def trained_table(subjects: Sequence[ModelResults]) -> Figure | None:
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
    """Return the inputs of a trained probe, in words."""
    name = probe.kind.replace("+", " and ")
    is_control = probe.provenance.get("control_seed") is not None
    return f"{name}, random weights (control)" if is_control else name


def probe_scores(probe: Probe) -> tuple[ValueText, ValueText]:
    """A probe's UAS, and the UAS of right-branching on the same words."""
    chain = measured(probe.scores, "right_branching", punctuation="without")
    return ValueText(probe.uas, *probe.uas_interval), chain


def difference_table(
    subjects: Sequence[ModelResults], differences: Sequence[tuple[int, int, xr.Dataset]]
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


@dataclass(frozen=True)
class Effects:
    """Effects of one subject's heads on the loss, `layer head`."""

    values: np.ndarray
    is_clear: np.ndarray
    """Does the loss change without the head? Benjamini & Hochberg over all heads."""
    layers: list[int]

    @property
    def n_tested(self) -> int:
        """Number of heads with an effect."""
        return int(np.isfinite(self.values).sum())

    def largest(self, among: np.ndarray) -> tuple[int, int] | None:
        """Row and head of the largest effect; None where no head is clear of zero."""
        sizes = np.where(among & self.is_clear, np.abs(self.values), -1.0)
        row, column = np.unravel_index(int(sizes.argmax()), sizes.shape)
        return (int(row), int(column)) if sizes[row, column] >= 0 else None


def effects_of(subject: ModelResults) -> Effects | None:
    """The effects of a subject's heads; None where they were not measured."""
    data = subject.data("effect")
    if data is None:
        return None
    with np.errstate(invalid="ignore"):
        is_clear = benjamini_hochberg(data["effect_p"].values) < LEVEL
    layers = [int(layer) for layer in data["layer"].values]
    return Effects(data["effect"].values, is_clear, layers)


def effect_table(subjects: Sequence[ModelResults]) -> Figure | None:
    """Roles by effect: how many heads of each role matter, and how much."""
    rows: list[list[Cell]] = []
    for number, subject in enumerate(subjects):
        effects, roles = effects_of(subject), roles_of(subject)
        if effects is None or roles is None:
            continue
        names = np.array(roles, dtype=object)
        of_role = {str(name): names == name for name in np.unique(names.astype(str))}
        order = sorted(of_role, key=lambda name: -float(_size(effects, of_role[name])))
        for name in order:
            among = of_role[name]
            largest = effects.largest(among)
            rows.append(
                [
                    subject.title,
                    name,
                    int(among.sum()),
                    f"{int((among & effects.is_clear).sum())} of {int(among.sum())}",
                    cell(ValueText(float(np.nanmean(effects.values[among]))), share=False),
                    None
                    if largest is None
                    else head(number, effects.layers[largest[0]], largest[1]),
                    None if largest is None else float(effects.values[largest]),
                ]
            )
    if not rows:
        return None
    return figure_of(
        "effects",
        "table",
        "Roles and effects",
        "By how much the loss per predicted token rises without a head, the head's output set to "
        "zero, in nats. A head counts as having an effect where the rise differs from 0 after "
        "correction over all heads (Benjamini & Hochberg). Heads can stand in for one another: "
        "effects of single heads do not add up." + measured_elsewhere(subjects, "effect"),
        equation="effect",
        paper="Michel et al. 2019, section 3; Voita et al. 2019",
        columns=[
            {"label": "Model", "kind": "text"},
            {"label": "Role", "kind": "text"},
            {"label": "Heads", "kind": "count"},
            {"label": "With an effect", "kind": "text"},
            {"label": "Mean rise", "kind": "number"},
            {"label": "Largest", "kind": "head"},
            {"label": "Its rise", "kind": "number"},
        ],
        rows=rows,
    )


def _size(effects: Effects, among: np.ndarray) -> float:
    return float(np.nanmean(np.abs(effects.values[among])))
