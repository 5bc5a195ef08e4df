"""Tables of a report: probes beside their baselines, effects by role, differences of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
import xarray as xr

from headscope.figures.chart_data import (
    ModelResults,
    ValueText,
    cell,
    describe,
    figure_of,
    measured,
    measured_elsewhere,
    parent_label,
    rounded,
)
from headscope.figures.chart_types import Cell, Figure
from headscope.figures.head_charts import roles_of
from headscope.probes.tables import ProbeRow, probe_table
from headscope.reporting.hypothesis_tests import ALPHA
from headscope.reporting.wording import head
from headscope.results.display import VariableDisplay
from headscope.results.probe import Probe
from headscope.results.wires import N_SHOWN, Wires
from headscope.statistics.intervals import benjamini_hochberg

CROSS_FITTED = (
    "“Cross-fitted” is the accuracy of heads chosen on one half of the documents and scored "
    "on the other half: the maximum over many heads is biased upward."
)
RULES = {"nearest": "Nearest mention", "head_match": "Same head word", "sieves": "Four sieves"}
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


def table_of(
    key: str,
    title: str,
    caption: str,
    columns: Sequence[tuple[str, str] | tuple[str, str, int]],
    rows: Sequence[Sequence[Cell]],
    *,
    equation: str | None = None,
    paper: str = "",
) -> Figure | None:
    """Return a table; None without rows. Columns have a heading and a kind; bars also the number of
    the baseline's column. `equation` names the variable whose equation is shown.
    """
    if not rows:
        return None
    headings = [
        {"label": label, "kind": kind, **({"against": against[0]} if against else {})}
        for label, kind, *against in columns
    ]
    return figure_of(
        key, "table", title, caption, equation=equation, paper=paper, columns=headings, rows=rows
    )


def p_shown(value: float) -> str:
    """Return a p value as a cell."""
    return "–" if isnan(value) else f"{value:.2g}" if value >= 0.001 else "< 0.001"


def measure_title(display: VariableDisplay) -> str:
    """Return a measure as a cell, with its units unless it is a share."""
    return display.title if display.is_share else f"{display.title} ({display.units})"


def best_rows(subject: ModelResults, name: str) -> tuple[ProbeRow, ...]:
    """Return the best head of each relation (`accuracy`) or mention kind (`coref_accuracy`)."""
    result = subject.result(name)
    return () if result is None else probe_table(result).rows


def accuracy_of(row: ProbeRow) -> ValueText:
    """Return a row's accuracy with its interval."""
    return ValueText(row.accuracy, *row.interval)


def crossfit_of(row: ProbeRow) -> ValueText:
    """Return a row's cross-fitted accuracy with its interval."""
    return ValueText(row.crossfit_accuracy, *row.crossfit_interval)


def _probe_rows(subjects: Sequence[ModelResults], name: str) -> list[tuple[ProbeRow, list[Cell]]]:
    """Return the rows of a probe, each with the cells that both tables of heads begin with."""
    return [
        (row, [subject.title, row.label, row.cases, head(number, row.layer, row.head)])
        for number, subject in enumerate(subjects)
        for row in best_rows(subject, name)
    ]


def _probe_columns(label: str) -> list[tuple[str, str]]:
    return [("Model", "text"), (label, "text"), ("Cases", "count"), ("Head", "head")]


def relation_table(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return the best head and the best offset for each relation (Clark et al.'s Table 1)."""
    return table_of(
        "relations",
        "The best head for each relation",
        "A head is right if the word it attends to most is the one that the treebank names. "
        f"The mark on the bar is the best fixed offset. {CROSS_FITTED} The p value is of the "
        "cross-fitted score being no better than every offset, corrected for all relations (Holm). "
        "Ties are heads that cannot be told from the best."
        + measured_elsewhere(subjects, "accuracy"),
        [
            *_probe_columns("Relation"),
            ("Finds the", "text"),
            ("Accuracy", "bar", 7),
            ("Cross-fitted", "share"),
            ("Best offset", "share"),
            ("Offset", "text"),
            ("p, corrected", "text"),
            ("Ties", "count"),
        ],
        [
            [
                *cells,
                "parent" if row.direction == "dependent" else "dependent",
                cell(accuracy_of(row)),
                cell(crossfit_of(row)),
                rounded(row.baselines["offset"]),
                None if row.offset is None else f"{row.offset:+d}".replace("-", "−"),
                p_shown(row.gains["offset"].p_adjusted),
                row.ties,
            ]
            for row, cells in _probe_rows(subjects, "accuracy")
        ],
        equation="accuracy",
        paper="Clark et al. 2019, section 4.2, Table 1",
    )


def coreference_table(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return the best head and baselines for each kind of mention (Clark et al.'s Table 2)."""
    rows = _probe_rows(subjects, "coref_accuracy")
    names = list(dict.fromkeys(name for row, _ in rows for name in row.baselines))
    return table_of(
        "coreference",
        "The best head for antecedents",
        "A head is right if the head word of a mention attends most to the head word of one of "
        f"its antecedents. The baselines do not use attention. {CROSS_FITTED}"
        + measured_elsewhere(subjects, "coref_accuracy"),
        [
            *_probe_columns("Mentions"),
            ("Accuracy", "bar"),
            ("Cross-fitted", "share"),
            *((RULES.get(name, name), "share") for name in names),
        ],
        [
            [
                *cells,
                cell(accuracy_of(row)),
                cell(crossfit_of(row)),
                *(rounded(row.baselines.get(name, nan)) for name in names),
            ]
            for row, cells in rows
        ],
        equation="coref_accuracy",
        paper="Clark et al. 2019, section 4.3, Table 2",
    )


def trained_table(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return trained probes over all heads, and right-branching (Clark et al.'s Table 3)."""
    rows: list[list[Cell]] = []
    for subject in subjects:
        chains = {}
        for probe in subject.probes:
            uas, chain = probe_scores(probe)
            rows.append([subject.title, probe_name(probe), cell(uas)])
            chains[round(chain.value, 6)] = chain
        known = [chain for chain in chains.values() if chain.is_known]
        rows += [[subject.title, "right-branching", cell(chain)] for chain in known]
    return table_of(
        "probes",
        "Trees from all heads together",
        "A probe weighs the attention of all heads, in both directions, and predicts the parent of "
        "each word; the model is frozen. UAS, the unlabeled attachment score, is the share of "
        "words whose parent is right, without punctuation. Right-branching takes the next word as "
        "the parent.",
        [("Model", "text"), ("Probe", "text"), ("UAS", "bar")],
        rows,
        equation="uas",
        paper="Clark et al. 2019, section 5, Table 3",
    )


def probe_name(probe: Probe) -> str:
    """Return the inputs of a trained probe, in words."""
    name = probe.kind.replace("+", " and ")
    is_control = probe.provenance.get("control_seed") is not None
    return f"{name}, random weights (control)" if is_control else name


def probe_scores(probe: Probe) -> tuple[ValueText, ValueText]:
    """Return a probe's UAS, and the UAS of right-branching on the same words."""
    chain = measured(probe.scores, "right_branching", punctuation="without")
    return ValueText(probe.uas, *probe.uas_interval), chain


def difference_table(
    subjects: Sequence[ModelResults], differences: Sequence[tuple[int, int, xr.Dataset]]
) -> Figure | None:
    """Return means over heads of two subjects and their difference, with intervals."""
    rows: list[list[Cell]] = []
    for left, right, data in differences:
        sides = subjects[left], subjects[right]
        for name in COMPARED:
            key = f"{name}_mean"
            if key not in data:
                continue
            labels = parent_label(data[key])
            display = describe(subjects, name)
            values = [side.measured(key, **labels) for side in sides]
            values.append(measured(data, key, **labels))
            rows.append(
                [
                    *(side.title for side in sides),
                    measure_title(display),
                    *(cell(value, share=display.is_share) for value in values),
                    p_shown(float(data[f"{key}_p"].sel(labels))),
                ]
            )
    first, second, difference = "First", "Second", "First − second"
    columns = [("First", "text"), ("Second", "text")]
    if len(differences) == 1:  # two subjects: their names are the headings
        first, second = (subjects[number].title for number in differences[0][:2])
        rows, columns, difference = [row[2:] for row in rows], [], "Difference"
    tests = dict.fromkeys(str(data.attrs.get("comparison", "")) for _, _, data in differences)
    return table_of(
        "differences",
        "Differences",
        "Means over heads, and the first minus the second. The p value is that of a t test with "
        f"jackknife standard errors, of this measure alone: {'; '.join(tests)}.",
        [
            *columns,
            ("Mean over heads of", "text"),
            (first, "number"),
            (second, "number"),
            (difference, "difference"),
            ("p", "text"),
        ],
        rows,
    )


@dataclass(frozen=True)
class Effects:
    """Effects of one subject's heads on the loss, `layer head`."""

    values: np.ndarray
    is_clear: np.ndarray
    """Does the loss change without the head? Benjamini & Hochberg over all heads."""
    layers: list[int]
    holds: str = ""
    """Clause on templates, if documents are near-copies of one another."""

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
    """Return the effects of a subject's heads; None where they were not measured."""
    data = subject.data("effect")
    if data is None:
        return None
    with np.errstate(invalid="ignore"):
        is_clear = benjamini_hochberg(data["effect_p"].values) < ALPHA
    layers = [int(layer) for layer in data["layer"].values]
    holds = data["effect"].attrs.get("holds", "")
    return Effects(data["effect"].values, is_clear, layers, f"; {holds}" if holds else "")


def effect_table(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return roles by effect: how many heads of each role matter, and how much."""
    rows: list[list[Cell]] = []
    for number, subject in enumerate(subjects):
        effects, roles = effects_of(subject), roles_of(subject)
        if effects is None or roles is None:
            continue
        names = np.array(roles, dtype=object)
        of_role = {str(name): names == name for name in np.unique(names.astype(str))}
        sizes = {n: -float(np.nanmean(np.abs(effects.values[a]))) for n, a in of_role.items()}
        for name in sorted(of_role, key=sizes.__getitem__):
            among = of_role[name]
            n, n_clear = int(among.sum()), int((among & effects.is_clear).sum())
            mean = ValueText(float(np.nanmean(effects.values[among])))
            cells: list[Cell] = [subject.title, name, n, f"{n_clear} of {n}"]
            cells += [cell(mean, share=False), None, None]
            if largest := effects.largest(among):
                layer, column = effects.layers[largest[0]], largest[1]
                cells[-2:] = [head(number, layer, column), float(effects.values[largest])]
            rows.append(cells)
    return table_of(
        "effects",
        "Roles and effects",
        "By how much the loss per predicted token rises without a head, the head's output set to "
        "zero, in nats. A head counts as having an effect where the rise differs from 0 after "
        "correction over all heads (Benjamini & Hochberg). Heads can stand in for one another: "
        "effects of single heads do not add up." + measured_elsewhere(subjects, "effect"),
        [
            ("Model", "text"),
            ("Role", "text"),
            ("Heads", "count"),
            ("With an effect", "text"),
            ("Mean rise", "number"),
            ("Largest", "head"),
            ("Its rise", "number"),
        ],
        rows,
        equation="effect",
        paper="Michel et al. 2019, section 3; Voita et al. 2019",
    )


def wires_table(wires: Wires, number: int = 0, n: int = N_SHOWN) -> Figure | None:
    """Return the largest wires of one task, with intervals and stability."""
    rows: list[list[Cell]] = []
    for wire in wires.table[:n]:
        share = cell(ValueText(wire.share, wire.low, wire.high), share=False)
        at = "" if wire.at < 0 else f"{wires.tokens(0)[wire.at].strip()} ({wire.part:.0%})"
        split = ", ".join(f"{name} {value:+.2f}" for name, value in wire.by_head.items())
        stability, p = (None if np.isnan(x) else float(x) for x in (wire.stability, wire.p))
        rows.append([wire.source, wire.reader, share, stability, p, at, split])
    texts = wires.about["shown"]["texts"]
    return table_of(
        f"wires-{number}",
        f"Wires of {wires.about['model']}: {wires.about['pairs']}",
        f"Exact effects of {len(wires.table)} of {wires.n_wires:,} wires, as shares of the gap "
        "between two texts; above 0 a wire increases the logit difference. Shares need not sum to "
        f"1. For example “{texts[0]}” against “{texts[1]}”. What is equal in both texts has no "
        f"wire here. {wires.holds}. Stability is the share of resamples of templates in which the "
        "wire is chosen again; p is of wires chosen on other templates, corrected by Holm.",
        [
            ("Source", "text"),
            ("Read by", "text"),
            ("Share of the gap", "number"),
            ("Stability", "share"),
            ("p", "number"),
            ("Read at", "text"),
            ("By head of a group", "text"),
        ],
        rows,
        paper="Goldowsky-Dill et al. 2023; Hanna et al. 2024",
    )
