"""Tables of probes: the best head of each relation or kind of mention, and gender bias.

The maximum accuracy over many heads is biased upward. Each row therefore also has the
cross-fitted accuracy (`headscope.statistics.cross_fitting`): the head is chosen on one half of
the documents and scored on the other. Its tests against baselines are Holm-corrected.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.results.display import Table, Value, percent
from headscope.results.result import Result
from headscope.run.compare import ALL, ProbeCounts, probe_counts
from headscope.run.merge import axes_of
from headscope.statistics.cross_fitting import CrossFitScore, best_set, cross_fit_score
from headscope.statistics.intervals import holm, interval
from headscope.statistics.jackknife import crossed_jackknife, ratio_jackknife

if TYPE_CHECKING:
    from matplotlib.figure import Figure


GAIN_ALPHA = 0.05
PROBE_BASELINES = (
    ("accuracy", "baseline", "dep_offset"),
    ("coref_accuracy", "coref_baseline", "coref_baseline"),
)
"""Variable, its baseline, and the metric that measures the baseline."""
Bounds = tuple[float, float]
UNKNOWN_BOUNDS: Bounds = (float("nan"), float("nan"))


@dataclass(frozen=True, slots=True)
class Gain:
    """Cross-fitted accuracy minus a baseline (for offsets: minus the best offset)."""

    value: float
    interval: Bounds
    """95 %, over documents; NaN with too few cases or buckets."""
    p: float
    """One-sided, H0: no gain; NaN with fewer than 20 cases or 6 buckets."""
    p_adjusted: float = float("nan")
    """Holm-corrected for the other rows and baselines of the table."""

    @property
    def is_clear(self) -> bool:
        """Significance after correction: a table has a false gain with p ≤ 0.05."""
        return self.p_adjusted < GAIN_ALPHA


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """Best head for one relation or kind of mention."""

    label: str
    cases: int
    layer: int
    head: int
    accuracy: float
    interval: Bounds
    """95 %, over documents."""
    crossfit_accuracy: float
    """Accuracy of heads chosen on one half of the documents and scored on the other half."""
    crossfit_interval: Bounds
    """95 %, over documents."""
    ties: int | None
    """Other heads (and directions) not significantly worse than the best: paired p ≥ 0.05. None
    if too few documents have the relation for a test."""
    baselines: Mapping[str, float]
    """`offset` for dependencies; `nearest`, `head_match`, `sieves` for coreference."""
    gains: Mapping[str, Gain]
    """Cross-fitted accuracy against each baseline."""
    direction: str | None = None
    """`dependent`: the dependent attends to its parent; `head`: the parent attends to its
    dependent. None in coreference."""
    visible: float | None = None
    """Accuracy over the words whose target is a visible key; None in coreference."""
    offset: int | None = None

    @property
    def gain(self) -> float:
        """Accuracy minus the best baseline."""
        return self.accuracy - max(self.baselines.values())


@dataclass(frozen=True)
class ProbeTable(Table):
    """Best heads of a probe: `print` it, or use `to_csv`, `to_dataframe` or `to_latex`."""

    title: str
    axis: str
    """Axis of the row labels: `relation` or `mention_kind`."""
    rows: tuple[ProbeRow, ...]
    is_causal: bool
    planned: tuple[str, ...] = ()
    """Rows that were planned: corrected among themselves, the others among themselves."""
    _left: ClassVar[tuple[str, ...]] = ("head", "direction", "family")

    def __getitem__(self, label: str | int) -> ProbeRow:
        labels = [row.label for row in self.rows]
        if isinstance(label, str) and label not in labels:
            raise UnknownName.of("row", label, labels)
        return self.rows[labels.index(label) if isinstance(label, str) else label]

    def _columns(self) -> list[str]:
        is_relation = self.axis == "relation"
        names = self.rows[0].baselines if self.rows else ()
        return [
            *(self.axis, "cases", "layer", "head", *(["direction"] if is_relation else [])),
            *("accuracy", "low", "high", "ties", "crossfit", "crossfit_low", "crossfit_high"),
            *(["visible"] if self.is_causal and is_relation else []),
            *("baseline" if name == "offset" else name for name in names),
            *(["baseline_offset", "p_adjusted"] if is_relation else []),
            *(["family"] if self.planned else []),
        ]

    def records(self) -> list[dict[str, Value]]:
        """Return the rows as plain values, one dict each."""
        names = self._columns()
        records = ({**_record(self.axis, row), "family": self._family(row)} for row in self.rows)
        return [{name: record[name] for name in names} for record in records]

    def _family(self, row: ProbeRow) -> str:
        return "planned" if row.label in self.planned else "exploratory"

    def _cells(self) -> list[list[str]]:
        hidden = ("layer", "low", "high", "crossfit_low", "crossfit_high", "baseline_offset")
        headings = {"p_adjusted": "p (Holm)", "crossfit": "cross-fitted"}
        names = [name for name in self._columns() if name not in (*hidden, "family")]
        header = [headings.get(name, name.replace("_", " ")) for name in names]
        cells = [header, *([_cell(row, name, self.axis) for name in names] for row in self.rows)]
        family = ["family", *map(self._family, self.rows)]
        return [[*a, b] for a, b in zip(cells, family, strict=True)] if self.planned else cells

    @property
    def _caption(self) -> str:
        counts = [f"n = {row.cases:,}" for row in self.rows if row.label == ALL]
        return (
            f"{'; '.join([self.title, *counts])}. Accuracy in percent with 95 % intervals over "
            "documents. Cross-fitted: head chosen on one half of the documents and scored on the "
            "other. One-sided p of cross-fitted accuracy against the baselines, Holm-corrected"
            + (" over planned rows, and over the others. " if self.planned else ". ")
            + self._note
        )

    @property
    def _note(self) -> str:
        """Meaning of the columns whose headings do not say it."""
        visible = " visible: accuracy over words whose target comes before them."
        note = "ties: other heads that are not significantly worse than the best (paired)."
        return note + visible * ("visible" in self._columns())

    def figure(self) -> Figure:
        """Draw the best head of each row (Clark et al. 2019, Tables 1 and 2).

        A dot is the accuracy with its 95 % interval. A ring is the cross-fitted accuracy. Orange
        marks are baselines.
        """
        from headscope.figures.table_charts import probe_figure

        return probe_figure(self)


def probe_table(
    result: Result, *, block: str | None = None, relations: Sequence[str] = ()
) -> ProbeTable:
    """Return the best head of each relation or kind of mention (Clark et al. 2019, Tables 1, 2):
    `all`, then by gain over the baseline, without relations with too few cases or never found.
    """
    name = block or next(iter(result.blocks))
    data = result.block(name)
    for variable, baseline, metric in PROBE_BASELINES:
        if variable in data and baseline not in data:
            raise InputError(
                f"This result has no baseline beside {variable}: measure {metric} with it, as "
                "headscope.probe_dependencies and headscope.probe_coreference do."
            )
    if "accuracy" in data:
        rows = _dependencies(data, _counts(result, name))
        visible = data["cases_visible"].sel(relation="all")
        is_causal = bool(visible.sel(direction="dependent") != visible.sel(direction="head"))
        axis = "relation"
    elif "coref_accuracy" in data:
        rows = _coreference(data, _counts(result, name))
        is_causal, axis = False, "mention_kind"
    else:
        names = textwrap.shorten(", ".join(map(str, data.data_vars)), 200, placeholder=" …")
        raise InputError(
            f"This result has {names}. Expected a result of headscope.probe_dependencies, "
            "headscope.probe_coreference or headscope.probe_bias."
        )
    for label in relations:
        UnknownName.check(axis.replace("_", " "), label, [row.label for row in rows])
    rows = sorted(
        _corrected(rows, relations),
        key=lambda row: (row.label != ALL, row.label not in relations, -row.gain),
    )
    return ProbeTable(result.title, axis, tuple(rows), is_causal, tuple(relations))


def _counts(result: Result, block: str) -> ProbeCounts:
    counts = probe_counts(result, block)
    assert counts is not None  # the caller found its variable
    return counts


def _dependencies(data: xr.Dataset, probed: ProbeCounts) -> list[ProbeRow]:
    accuracy = data["accuracy"].transpose("relation", "direction", "layer", "head")
    rows = []
    for number, label in enumerate(map(str, data["relation"].values)):
        values = accuracy.values[number]
        if not np.nanmax(values, initial=0) > 0:
            continue
        index = np.unravel_index(np.nanargmax(values), values.shape)
        place = dict(zip(accuracy.dims[1:], index, strict=True))
        best = data.sel(relation=label).isel(place)
        baseline = float(best["baseline"])
        counts = probed.right[..., number], probed.cases[:, number]
        score = cross_fit_score(*counts, probed.baselines[..., number])
        rows.append(
            _row(
                best,
                "accuracy",
                counts,
                {"offset": (baseline, score)},
                label=label,
                cases=int(best["cases"]),
                direction=str(best["direction"].item()),
                visible=float(best["accuracy_visible"]),
                offset=int(best["baseline_offset"]) if baseline > 0 else None,
            )
        )
    return rows


def _coreference(data: xr.Dataset, probed: ProbeCounts) -> list[ProbeRow]:
    rows = []
    for number, label in enumerate(map(str, data["mention_kind"].values)):
        values = data["coref_accuracy"].sel(mention_kind=label).transpose("layer", "head")
        if not np.isfinite(values.values).any():
            continue
        layer, head = np.unravel_index(np.nanargmax(values.values), values.shape)
        best = data.sel(mention_kind=label).isel(layer=layer, head=head)
        counts = probed.right[..., number], probed.cases[:, number]
        rules = {
            str(rule): (
                float(best["coref_baseline"].sel(rule=rule)),
                cross_fit_score(*counts, probed.baselines[:, i, number, None]),
            )
            for i, rule in enumerate(data["rule"].values)
        }
        rows.append(
            _row(best, "coref_accuracy", counts, rules, label=label, cases=int(best["coref_cases"]))
        )
    return rows


def _row(
    best: xr.Dataset,
    variable: str,
    counts: tuple[np.ndarray, np.ndarray],
    baselines: Mapping[str, tuple[float, CrossFitScore]],
    **more: Any,
) -> ProbeRow:
    """Return the row of the best head; `counts` are right and all cases of each unit."""
    scores = {name: score for name, (_, score) in baselines.items()}
    crossfit = next(iter(scores.values()))
    tied = best_set(ratio_jackknife(counts[0], counts[1][:, None]))
    return ProbeRow(
        layer=int(best["layer"]),
        head=int(best["head"]),
        accuracy=float(best[variable]),
        interval=_interval(best, variable),
        crossfit_accuracy=crossfit.score,
        crossfit_interval=crossfit.interval,
        ties=None if tied is None else int(tied.sum()) - 1,  # without the best itself
        baselines={name: value for name, (value, _) in baselines.items()},
        gains={name: Gain(s.gain, s.gain_interval, s.p) for name, s in scores.items()},
        **more,
    )


def _corrected(rows: list[ProbeRow], planned: Sequence[str]) -> list[ProbeRow]:
    """Return the rows with Holm-corrected p values: families are `all`, planned rows, others."""
    families: dict[str, list[tuple[int, str]]] = {}
    for n, row in enumerate(rows):
        key = ALL if row.label == ALL else "planned" if row.label in planned else ""
        families.setdefault(key, []).extend((n, name) for name in row.gains)
    corrected = [dict(row.gains) for row in rows]
    for family in families.values():
        p = holm(np.array([rows[n].gains[name].p for n, name in family]))
        for (n, name), value in zip(family, p, strict=True):
            corrected[n][name] = replace(corrected[n][name], p_adjusted=float(value))
    return [replace(row, gains=gains) for row, gains in zip(rows, corrected, strict=True)]


def _interval(values: xr.Dataset, name: str) -> Bounds:
    if f"{name}_interval" not in values:
        return UNKNOWN_BOUNDS
    low, high = values[f"{name}_interval"].values
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
        "crossfit": row.crossfit_accuracy,
        "crossfit_low": row.crossfit_interval[0],
        "crossfit_high": row.crossfit_interval[1],
        "visible": row.visible,
        **named,
        "baseline_offset": row.offset,
        "p_adjusted": max(gain.p_adjusted for gain in row.gains.values()),
    }


def _cell(row: ProbeRow, name: str, axis: str) -> str:
    value = _record(axis, row)[name]
    if name == "ties":
        return "–" if row.ties is None else str(row.ties)
    if name == "head":
        return f"L{row.layer} H{row.head}"
    if name == "accuracy":
        return percent(row.accuracy, *row.interval)
    if name == "crossfit":
        return percent(row.crossfit_accuracy, *row.crossfit_interval)
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
    """Accuracy of a head on pro- and anti-stereotypical pronouns."""

    layer: int
    head: int
    coreference: float | None
    """Antecedent accuracy on another corpus; None if these sentences chose the head."""
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
    """Antecedent's share of the attention to both candidates: pro minus anti."""
    preference_gap_low: float
    preference_gap_high: float


@dataclass(frozen=True)
class BiasTable(Table):
    """Heads by gender bias: `print` it, or use `to_csv`, `to_dataframe` or `to_latex`."""

    _row = BiasRow

    title: str
    pairs: int
    """Number of pronouns in each condition."""
    rows: tuple[BiasRow, ...]
    crossfit_accuracy: tuple[float, float]
    """Accuracy pro and anti of heads chosen on one half of the pairs, scored on the other."""
    crossfit_intervals: tuple[Bounds, Bounds]
    """95 % intervals of both, by occupation; NaN with too few pairs."""

    def _cells(self) -> list[list[str]]:
        return [
            ["head", "coref", "pro", "anti", "gap", "to true/other, pro", "anti", "preference"],
            *(
                [
                    f"L{row.layer} H{row.head}",
                    "" if row.coreference is None else f"{100 * row.coreference:.1f}",
                    f"{100 * row.pro:.1f}",
                    f"{100 * row.anti:.1f}",
                    percent(row.gap, row.gap_low, row.gap_high, "+"),
                    f"{row.to_true_pro:.3f} / {row.to_other_pro:.3f}",
                    f"{row.to_true_anti:.3f} / {row.to_other_anti:.3f}",
                    percent(
                        row.preference_gap, row.preference_gap_low, row.preference_gap_high, "+"
                    ),
                ]
                for row in self.rows
            ),
        ]

    @property
    def _note(self) -> str:
        pro, anti = (
            percent(accuracy, *bounds)
            for accuracy, bounds in zip(
                self.crossfit_accuracy, self.crossfit_intervals, strict=True
            )
        )
        return (
            f"best head chosen on the other half of the pairs: pro {pro}, anti {anti} "
            f"({self.pairs} pronouns each)"
        )

    @property
    def _caption(self) -> str:
        return (
            f"{self.title}; n = {self.pairs:,} pronouns in each condition. Percent with 95 % "
            "intervals by occupation, not corrected for several heads. Cross-fitted: "
            f"{self._note}."
        )

    def figure(self) -> Figure:
        """Draw the accuracy of each head on anti- and pro-stereotypical pronouns.

        The gap stands at the right, with its 95 % interval.
        """
        from headscope.figures.table_charts import bias_figure

        return bias_figure(self)


def bias_table(
    result: Result,
    heads: Result | Iterable[tuple[int, int]] | None = None,
    *,
    n: int = 5,
    block: str | None = None,
) -> BiasTable:
    """Return the bias of coreference heads. See `Result.table`."""
    name = block or next(iter(result.blocks))
    data = result.block(name)
    if "bias_accuracy" not in data:
        raise InputError("This result lacks bias_accuracy. Expected headscope.probe_bias(…).")
    coreference: dict[tuple[int, int], float] = {}
    if isinstance(heads, Result):
        if "coref_accuracy" not in heads:
            raise InputError(
                "heads= lacks coref_accuracy. Expected a result of headscope.probe_coreference, "
                "or pairs (layer, head)."
            )
        if heads.model != result.model:
            raise InputError(
                f"heads= is of {heads.model}, the bias of {result.model}. Expected one model."
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
        places = (np.unravel_index(i, mean.shape) for i in order)
        chosen = [(int(layers[layer]), int(head)) for layer, head in places]
    for layer, head in chosen:
        if layer not in data["layer"].values or head not in data["head"].values:
            raise InputError(f"There is no L{layer} H{head} in this result.")
    rows = tuple(_bias_row(data, *place, coreference.get(place)) for place in chosen)
    crossfit_accuracy, bounds = crossfit_scores(result.states[name]["bias"], axes_of(result).units)
    cases = int(data["bias_cases"].sel(condition="pro"))
    return BiasTable(result.title, cases, rows, crossfit_accuracy, bounds)


def _bias_row(data: xr.Dataset, layer: int, head: int, coreference: float | None) -> BiasRow:
    values = data.sel(layer=layer, head=head)
    accuracy, attention = values["bias_accuracy"], values["bias_attention"]
    gap, preference = values["bias_accuracy_gap_interval"], values["bias_preference_gap_interval"]
    weights = {
        f"to_{candidate}_{condition}": float(
            attention.sel(condition=condition, candidate=candidate)
        )
        for condition in ("pro", "anti")
        for candidate in ("true", "other")
    }
    return BiasRow(
        layer=layer,
        head=head,
        coreference=coreference,
        pro=float(accuracy.sel(condition="pro")),
        anti=float(accuracy.sel(condition="anti")),
        gap=float(values["bias_accuracy_gap"]),
        gap_low=float(gap.sel(bound="low")),
        gap_high=float(gap.sel(bound="high")),
        preference_gap=float(values["bias_preference_gap"]),
        preference_gap_low=float(preference.sel(bound="low")),
        preference_gap_high=float(preference.sel(bound="high")),
        **weights,
    )


def crossfit_scores(state: xr.Dataset, units: np.ndarray) -> tuple[Bounds, tuple[Bounds, Bounds]]:
    """Return the cross-fitted accuracies (pro, anti) and their intervals, by occupation.

    Each bucket is scored by the head that the other half of the buckets chose. The score is
    therefore a ratio of sums. `units` (`bucket`) numbers the buckets.
    """
    counts = state["right"].stack(place=("layer", "head"))
    right = counts.transpose("bucket", "place", "condition").values
    cases = state["cases"].isel(layer=0).transpose("bucket", "condition").values
    halves = units % 2
    if not all(cases[halves == half].sum() > 0 for half in (0, 1)):
        return UNKNOWN_BOUNDS, (UNKNOWN_BOUNDS, UNKNOWN_BOUNDS)
    best = [int(right[halves != half].sum((0, 2)).argmax()) for half in (0, 1)]
    scored = np.where((halves == 0)[:, None], right[:, best[0]], right[:, best[1]])
    jackknife = ratio_jackknife(scored, cases, "logit")
    by_occupation = state["occupation_right"].stack(place=("layer", "head"))
    both = by_occupation.transpose("half", "place", "occupation", "condition").values
    all_cases = state["occupation_cases"].isel(layer=0).sum("half")
    if float(all_cases.sum()) == 2 * cases.sum():
        crossed = both[0, best[0]] + both[1, best[1]]
        by_case = all_cases.transpose("occupation", "condition").values
        jackknife = replace(jackknife, crossed=crossed_jackknife(crossed, by_case, "logit"))
    (pro_low, anti_low), (pro_high, anti_high) = interval(jackknife).bounds.tolist()
    pro, anti = jackknife.value.tolist()
    return (pro, anti), ((pro_low, pro_high), (anti_low, anti_high))


def table_of(
    result: Result,
    heads: Result | Iterable[tuple[int, int]] | None = None,
    *,
    n: int = 5,
    block: str | None = None,
    relations: Sequence[str] = (),
) -> ProbeTable | BiasTable:
    """Return the table of a probe's result. See `Result.table`."""
    if "bias_accuracy" in (result.dataset if block is None else result.block(block)):
        return bias_table(result, heads, n=n, block=block)
    if heads is not None:
        raise InputError(
            "heads= needs a result of headscope.probe_bias; other tables show the best head of "
            "each row. Omit heads=."
        )
    return probe_table(result, block=block, relations=relations)
