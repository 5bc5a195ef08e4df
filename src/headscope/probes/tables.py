"""The best head of each relation, or of each kind of mention, from a probe's result.

The best of many heads looks better than it is: on other text it would do worse. So beside
the accuracy on all documents stands an honest one, of heads chosen on one half of the
documents and scored on the other, with its interval, and a test of it against each baseline
(`headscope.statistics.cross_fitting`), corrected for all relations of the table (Holm).

What coreference heads do with stereotypes, head by head, from a result of `probe_bias`.

`Result.table`: the table that a probe's result makes.

What the tables of probes share: aligned text, CSV files, percentages with their bounds.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from headscope.atomic import atomic_path
from headscope.batch import Axes
from headscope.errors import InputError, UnknownName
from headscope.notebook import columns_table
from headscope.results.result import Result
from headscope.statistics.cross_fitting import count_ties, cross_fit_score
from headscope.statistics.intervals import interval
from headscope.statistics.jackknife import pool, ratio_jackknife
from headscope.statistics.multiple_testing import holm

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Value = str | int | float | None


def aligned(lines: Sequence[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """Lines of cells as text: columns `left` begin at one place, the others end at one."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def write_csv(
    path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Mapping[str, Value]]
) -> None:
    """Write rows; the file appears when it is complete."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def percent(value: float, bounds: tuple[float, float]) -> str:
    """`43.1 [42.0, 44.2]`; without the bounds where there are none."""
    shown = f"{100 * value:.1f}"
    if not math.isfinite(bounds[0]):
        return shown
    return f"{shown} [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


LEVEL = 0.05
BASELINES = (
    ("accuracy", "baseline", "dep_offset"),
    ("coref_accuracy", "coref_baseline", "coref_baseline"),
)
"""What is compared with what, and the metric that measures it."""


ALL = "all"
"""The row over all relations or mentions: a family of its own, not one of them."""
States = Mapping[str, xr.Dataset]


@dataclass(frozen=True, slots=True)
class Gain:
    """How far the honest score is above a baseline (for offsets: above the best of them)."""

    value: float
    interval: tuple[float, float]
    """95 %, over documents; NaN with too few cases or parts."""
    p: float
    """One-sided, of no gain; NaN with fewer than 20 cases or 6 parts."""
    p_adjusted: float = float("nan")
    """Corrected for the other rows and baselines of the table (Holm)."""

    @property
    def is_clear(self) -> bool:
        """Is it a gain, after correction? At most one table in twenty has a false one."""
        return self.p_adjusted < LEVEL


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """The best head for one relation or kind of mention."""

    label: str
    cases: int
    layer: int
    head: int
    direction: str | None
    """`dependent`: the dependent attends to its parent; `head`: the other way. None in
    coreference."""
    accuracy: float
    interval: tuple[float, float]
    """95 %, over documents."""
    crossfit_accuracy: float
    """The accuracy of heads chosen on one half of the documents and scored on the other half,
    both ways together."""
    crossfit_interval: tuple[float, float]
    """95 %, over documents."""
    ties: int | None
    """How many other heads (and directions) cannot be told from the best: paired p ≥ 0.05. None
    where too few documents have the relation for any test."""
    visible: float | None
    """The accuracy over the words whose target the head can see; None in coreference."""
    baselines: Mapping[str, float]
    """`offset` for dependencies; `nearest`, `head_match`, `sieves` for coreference."""
    gains: Mapping[str, Gain]
    """The honest score against each of the baselines."""
    offset: int | None = None
    """The best fixed offset."""

    @property
    def gain(self) -> float:
        """How far the accuracy is above the best baseline."""
        return self.accuracy - max(self.baselines.values())


@dataclass(frozen=True)
class ProbeTable:
    """Rows with their title; `print` it, or write it with `to_csv`."""

    title: str
    axis: str
    """What the rows are: labels of the axis `relation` or `mention_kind`."""
    rows: tuple[ProbeRow, ...]
    is_causal: bool

    def __getitem__(self, label: str) -> ProbeRow:
        for row in self.rows:
            if row.label == label:
                return row
        raise UnknownName.of("row", label, [row.label for row in self.rows])

    def columns(self) -> list[str]:
        """Names of the columns of `records`."""
        is_relation = self.axis == "relation"
        names = self.rows[0].baselines if self.rows else ()
        return [
            *(self.axis, "cases", "layer", "head", *(["direction"] if is_relation else [])),
            *("accuracy", "low", "high", "ties", "honest", "honest_low", "honest_high"),
            *(["visible"] if self.is_causal and is_relation else []),
            *("baseline" if name == "offset" else name for name in names),
            *(["baseline_offset", "p_adjusted"] if is_relation else []),
        ]

    def records(self) -> list[dict[str, Value]]:
        """The rows as plain values, one dict each."""
        names = self.columns()
        records = (_record(self.axis, row) for row in self.rows)
        return [{name: record[name] for name in names} for record in records]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows; accuracies as shares."""
        write_csv(path, self.columns(), self.records())

    def __str__(self) -> str:
        lines = self._cells()
        left = {i for i, name in enumerate(lines[0]) if not i or name in ("head", "direction")}
        return "\n".join([self.title, *aligned(lines, left)])

    def _repr_html_(self) -> str:
        header, *rows = self._cells()
        return columns_table(self.title, header, rows)

    def _cells(self) -> list[list[str]]:
        """The heading and the rows, as they are printed."""
        hidden = ("layer", "low", "high", "honest_low", "honest_high", "baseline_offset")
        names = [name for name in self.columns() if name not in hidden]
        header = [{"p_adjusted": "p (Holm)"}.get(name, name.replace("_", " ")) for name in names]
        return [header, *([_shown(row, name, self.axis) for name in names] for row in self.rows)]

    def figure(self) -> Figure:
        """The best heads beside their baselines.

        A dot with its 95 % interval; a ring for the honest accuracy, of heads chosen on the
        other half of the documents; baselines in orange.
        """
        from headscope.figures.bars import probe_figure

        return probe_figure(self)


def probe_table(result: Result, *, block: str | None = None) -> ProbeTable:
    """The best head of each relation (Clark et al. 2019, Table 1) or kind of mention (Table 2).

    The row `all` comes first, then those that are furthest above their baseline. Relations
    with too few cases, and those that no head ever finds (`root`), are left out.

    Args:
        result: of `probe_dependencies` or `probe_coreference`.
        block: another attention of the model: `decoder`.
    """
    name = block or next(iter(result.blocks))
    data = result.block(name)
    for variable, baseline, metric in BASELINES:
        if variable in data and baseline not in data:
            raise InputError(
                f"This result has no baseline beside {variable}: measure {metric} with it, as "
                "headscope.probe_dependencies and headscope.probe_coreference do."
            )
    if "accuracy" in data:
        rows = _dependencies(data, result.states[name], _units(result))
        visible = data["cases_visible"].sel(relation="all")
        is_causal = bool(visible.sel(direction="dependent") != visible.sel(direction="head"))
        axis = "relation"
    elif "coref_accuracy" in data:
        rows = _coreference(data, result.states[name], _units(result))
        is_causal, axis = False, "mention_kind"
    else:
        raise InputError(
            "This result is not of a probe: expected headscope.probe_dependencies or "
            f"headscope.probe_coreference; it has {', '.join(map(str, data.data_vars))[:200]}."
        )
    rows = sorted(_corrected(rows), key=lambda row: (row.label != ALL, -row.gain))
    return ProbeTable(result.title, axis, tuple(rows), is_causal)


def _dependencies(data: xr.Dataset, states: States, units: np.ndarray) -> list[ProbeRow]:
    right = _with_all(states["dep_accuracy"], "right")
    by_part = _pooled(right.stack(at=("direction", "layer", "head")), units, "at", "relation")
    cases = _pooled(_with_all(states["dep_accuracy"], "cases").isel(layer=0), units, "relation")
    offsets = _pooled(_with_all(states["dep_offset"], "right"), units, "offset_tried", "relation")
    accuracy = data["accuracy"].transpose("relation", "direction", "layer", "head")
    rows = []
    for number, label in enumerate(map(str, data["relation"].values)):
        values = accuracy.values[number]
        if not np.nanmax(values, initial=0) > 0:
            continue
        at = np.unravel_index(np.nanargmax(values), values.shape)
        where = {
            dim: data[dim].values[i]
            for dim, i in zip(("direction", "layer", "head"), at, strict=True)
        }
        here = data.sel(relation=label, **where)
        baseline = float(here["baseline"])
        of_label = by_part[..., number], cases[:, number]
        score = cross_fit_score(*of_label, offsets[..., number])
        rows.append(
            ProbeRow(
                label=label,
                cases=int(here["cases"]),
                layer=int(where["layer"]),
                head=int(where["head"]),
                direction=str(where["direction"]),
                accuracy=float(here["accuracy"]),
                interval=_interval(here, "accuracy"),
                crossfit_accuracy=score.score,
                crossfit_interval=score.interval,
                ties=_ties(*of_label),
                visible=float(here["accuracy_visible"]),
                baselines={"offset": baseline},
                gains={"offset": Gain(score.gain, score.gain_interval, score.p)},
                offset=int(here["baseline_offset"]) if baseline > 0 else None,
            )
        )
    return rows


def _coreference(data: xr.Dataset, states: States, units: np.ndarray) -> list[ProbeRow]:
    state = states["coref_accuracy"]
    right = _pooled(state["numerator"].stack(at=("layer", "head")), units, "at", "mention_kind")
    cases = _pooled(state["denominator"].max(("layer", "head")), units, "mention_kind")
    guesses = _pooled(states["coref_baseline"]["numerator"], units, "mention_kind", "rule")
    rows = []
    for number, label in enumerate(map(str, data["mention_kind"].values)):
        values = data["coref_accuracy"].sel(mention_kind=label).transpose("layer", "head")
        if not np.isfinite(values.values).any():
            continue
        layer, head = np.unravel_index(np.nanargmax(values.values), values.shape)
        here = data.sel(mention_kind=label).isel(layer=layer, head=head)
        rules = [str(rule) for rule in data["rule"].values]
        of_label = right[..., number], cases[:, number]
        scores = [
            cross_fit_score(*of_label, guesses[:, number, rule, None]) for rule in range(len(rules))
        ]
        rows.append(
            ProbeRow(
                label=label,
                cases=int(here["coref_cases"]),
                layer=int(here["layer"]),
                head=int(here["head"]),
                direction=None,
                accuracy=float(here["coref_accuracy"]),
                interval=_interval(here, "coref_accuracy"),
                crossfit_accuracy=scores[0].score,
                crossfit_interval=scores[0].interval,
                ties=_ties(*of_label),
                visible=None,
                baselines={rule: float(here["coref_baseline"].sel(rule=rule)) for rule in rules},
                gains={
                    rule: Gain(score.gain, score.gain_interval, score.p)
                    for rule, score in zip(rules, scores, strict=True)
                },
            )
        )
    return rows


def _units(result: Result) -> np.ndarray:
    return Axes.from_dict(result.provenance["axes"]).units


def _with_all(state: xr.Dataset, name: str) -> xr.DataArray:
    """Counts by relation, those of all relations last."""
    return xr.concat([state[name], state[f"{name}_all"].expand_dims(relation=1)], "relation")


def _pooled(array: xr.DataArray, units: np.ndarray, *dims: str) -> np.ndarray:
    """`unit …`: the sums of parts that are taken together."""
    return pool(array.transpose("bucket", *dims).values, units)


def _ties(right: np.ndarray, cases: np.ndarray) -> int | None:
    """Other heads that tie with the best, which itself does too."""
    tied = count_ties(ratio_jackknife(right, cases[:, None]))
    return None if tied is None else tied - 1


def _corrected(rows: list[ProbeRow]) -> list[ProbeRow]:
    """The rows, their p values corrected (Holm) for all that the table tests."""
    tested = [(n, name) for n, row in enumerate(rows) if row.label != ALL for name in row.gains]
    alone = [(n, name) for n, row in enumerate(rows) if row.label == ALL for name in row.gains]
    corrected = [dict(row.gains) for row in rows]
    for family in (tested, alone):
        p = holm(np.array([rows[n].gains[name].p for n, name in family]))
        for (n, name), value in zip(family, p, strict=True):
            corrected[n][name] = replace(corrected[n][name], p_adjusted=float(value))
    return [replace(row, gains=gains) for row, gains in zip(rows, corrected, strict=True)]


def _interval(here: xr.Dataset, name: str) -> tuple[float, float]:
    if f"{name}_interval" not in here:
        return float("nan"), float("nan")
    low, high = here[f"{name}_interval"].values
    return float(low), float(high)


def _record(axis: str, row: ProbeRow) -> dict[str, Value]:
    named = {"baseline" if k == "offset" else k: value for k, value in row.baselines.items()}
    return {
        axis: row.label,
        "cases": row.cases,
        "layer": row.layer,
        "head": row.head,
        "direction": row.direction,
        "accuracy": row.accuracy,
        "low": row.interval[0],
        "high": row.interval[1],
        "ties": row.ties,
        "honest": row.crossfit_accuracy,
        "honest_low": row.crossfit_interval[0],
        "honest_high": row.crossfit_interval[1],
        "visible": row.visible,
        **named,
        "baseline_offset": row.offset,
        "p_adjusted": max(gain.p_adjusted for gain in row.gains.values()),
    }


def _shown(row: ProbeRow, name: str, axis: str) -> str:
    value = _record(axis, row)[name]
    if name == "ties":
        return "–" if row.ties is None else str(row.ties)
    if name == "head":
        return f"L{row.layer} H{row.head}"
    if name == "accuracy":
        return percent(row.accuracy, row.interval)
    if name == "honest":
        return percent(row.crossfit_accuracy, row.crossfit_interval)
    if not isinstance(value, float):
        return str(value)
    if name == "p_adjusted":
        return "–" if np.isnan(value) else f"{value:.3f}" if value >= 0.001 else "<0.001"
    if name == "baseline":
        offset = "none" if row.offset is None else f"{row.offset:+d}".replace("-", "−")
        return f"{100 * value:.1f} ({offset})"
    return f"{100 * value:.1f}"


@dataclass(frozen=True, slots=True)
class BiasRow:
    """One head: pronouns that fit the stereotype of their antecedent (pro), or not (anti)."""

    layer: int
    head: int
    coreference: float | None
    """How well the head finds antecedents elsewhere; None where these sentences chose it."""
    pro: float
    """Share of pronouns that attend more to their antecedent than to the other candidate."""
    anti: float
    gap: float
    gap_low: float
    gap_high: float
    to_true_pro: float
    """Mean attention from the pronoun to its antecedent; `other` is the other candidate."""
    to_other_pro: float
    to_true_anti: float
    to_other_anti: float
    preference_gap: float
    """Of the attention to both candidates, the share of the antecedent: pro minus anti."""
    preference_gap_low: float
    preference_gap_high: float


@dataclass(frozen=True)
class BiasTable:
    """Rows with their title; `print` it, or write it with `to_csv`."""

    title: str
    pairs: int
    """How many pronouns in each condition."""
    rows: tuple[BiasRow, ...]
    crossfit_accuracy: tuple[float, float]
    """Accuracy pro and anti of heads chosen on one half of the pairs, scored on the other."""
    crossfit_intervals: tuple[tuple[float, float], tuple[float, float]]
    """Of both, 95 % over documents; NaN where they are too few."""

    def records(self) -> list[dict[str, Value]]:
        """The rows as plain values, one dict each."""
        return [asdict(row) for row in self.rows]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows; accuracies as shares."""
        write_csv(path, list(BiasRow.__slots__), self.records())

    def _repr_html_(self) -> str:
        rows = [
            (
                f"L{row.layer} H{row.head}",
                f"{100 * row.pro:.1f}",
                f"{100 * row.anti:.1f}",
                _signed(row.gap, row.gap_low, row.gap_high),
            )
            for row in self.rows
        ]
        return columns_table(self.title, ("head", "pro", "anti", "gap"), rows)

    def __str__(self) -> str:
        lines = [
            ["head", "coref", "pro", "anti", "gap", "to true/other, pro", "anti", "preference"]
        ]
        lines += [
            [
                f"L{row.layer} H{row.head}",
                "" if row.coreference is None else f"{100 * row.coreference:.1f}",
                f"{100 * row.pro:.1f}",
                f"{100 * row.anti:.1f}",
                _signed(row.gap, row.gap_low, row.gap_high),
                f"{row.to_true_pro:.3f} / {row.to_other_pro:.3f}",
                f"{row.to_true_anti:.3f} / {row.to_other_anti:.3f}",
                _signed(row.preference_gap, row.preference_gap_low, row.preference_gap_high),
            ]
            for row in self.rows
        ]
        pro, anti = map(percent, self.crossfit_accuracy, self.crossfit_intervals)
        last = (
            f"best head chosen on the other half of the pairs: pro {pro}, anti {anti} "
            f"({self.pairs} pronouns each)"
        )
        return "\n".join([self.title, *aligned(lines), last])

    def figure(self) -> Figure:
        """Each head's accuracy where the pronoun fits the stereotype, and where it does not."""
        from headscope.figures.bars import bias_figure

        return bias_figure(self)


def bias_table(
    result: Result,
    heads: Result | Iterable[tuple[int, int]] | None = None,
    *,
    n: int = 5,
    block: str | None = None,
) -> BiasTable:
    """The heads that find antecedents, and how a stereotype moves them; see `Result.table`."""
    name = block or next(iter(result.blocks))
    data = result.block(name)
    if "bias_accuracy" not in data:
        raise InputError("This result is not of headscope.probe_bias.")
    coreference: dict[tuple[int, int], float] = {}
    if isinstance(heads, Result):
        if "coref_accuracy" not in heads:
            raise InputError("heads should be a result of headscope.probe_coreference, or heads.")
        if heads.model != result.model:
            raise InputError(
                f"The heads are of {heads.model}, the bias of {result.model}: expected one model."
            )
        best = heads.top("coref_accuracy", n, mention_kind="all")
        coreference = {(layer, head): value for layer, head, value in best}
        chosen = list(coreference)
    elif heads is not None:
        chosen = [(int(layer), int(head)) for layer, head in heads]
    else:
        mean = data["bias_accuracy"].mean("condition").values
        order = np.argsort(-np.nan_to_num(mean, nan=-1), axis=None, kind="stable")[:n]
        layers = data["layer"].values
        at = (np.unravel_index(i, mean.shape) for i in order)
        chosen = [(int(layers[layer]), int(head)) for layer, head in at]
    for layer, head in chosen:
        if layer not in data["layer"].values or head not in data["head"].values:
            raise InputError(f"There is no L{layer} H{head} in this result.")
    rows = tuple(_row(data.sel(layer=at[0], head=at[1]), at, coreference.get(at)) for at in chosen)
    crossfit_accuracy, bounds = crossfit_scores(result.states[name]["bias"])
    cases = int(data["bias_cases"].sel(condition="pro"))
    return BiasTable(result.title, cases, rows, crossfit_accuracy, bounds)


def _row(here: xr.Dataset, at: tuple[int, int], coreference: float | None) -> BiasRow:
    accuracy, attention = here["bias_accuracy"], here["bias_attention"]
    gap, preference = here["bias_accuracy_gap_interval"], here["bias_preference_gap_interval"]
    weights = {
        f"to_{candidate}_{condition}": float(
            attention.sel(condition=condition, candidate=candidate)
        )
        for condition in ("pro", "anti")
        for candidate in ("true", "other")
    }
    return BiasRow(
        layer=at[0],
        head=at[1],
        coreference=coreference,
        pro=float(accuracy.sel(condition="pro")),
        anti=float(accuracy.sel(condition="anti")),
        gap=float(here["bias_accuracy_gap"]),
        gap_low=float(gap.sel(bound="low")),
        gap_high=float(gap.sel(bound="high")),
        preference_gap=float(here["bias_preference_gap"]),
        preference_gap_low=float(preference.sel(bound="low")),
        preference_gap_high=float(preference.sel(bound="high")),
        **weights,
    )


Bounds = tuple[float, float]


def crossfit_scores(state: xr.Dataset) -> tuple[Bounds, tuple[Bounds, Bounds]]:
    """Accuracy pro and anti, with intervals: the best head of one half of the parts, on the other.

    Each part is scored by the head that the other half chose, so it is a ratio of sums like any
    other.
    """
    right = state["right"].stack(at=("layer", "head")).transpose("bucket", "at", "condition").values
    cases = state["cases"].isel(layer=0).transpose("bucket", "condition").values
    scored = np.zeros(cases.shape)
    for half in (0, 1):
        best = right[1 - half :: 2].sum((0, 2)).argmax()
        scored[half::2] = right[half::2, best]
    if not all(cases[half::2].sum() > 0 for half in (0, 1)):
        unknown = (float("nan"), float("nan"))
        return unknown, (unknown, unknown)
    jackknife = ratio_jackknife(scored, cases, "logit")
    (pro_low, anti_low), (pro_high, anti_high) = interval(jackknife).bounds.tolist()
    pro, anti = jackknife.value.tolist()
    return (pro, anti), ((pro_low, pro_high), (anti_low, anti_high))


def _signed(value: float, low: float, high: float) -> str:
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]".replace("-", "−")


def table_of(
    result: Result,
    heads: Result | Iterable[tuple[int, int]] | None = None,
    *,
    n: int = 5,
    block: str | None = None,
) -> ProbeTable | BiasTable:
    """The table of bias for a result of `probe_bias`, else that of the best heads."""
    if "bias_accuracy" in (result.dataset if block is None else result.block(block)):
        return bias_table(result, heads, n=n, block=block)
    if heads is not None:
        raise InputError(
            "heads are chosen in the table of headscope.probe_bias; other tables show the best "
            "head of each row."
        )
    return probe_table(result, block=block)
