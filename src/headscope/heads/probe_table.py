"""The best head of each relation, or of each kind of mention, from a probe's result.

The best of many heads looks better than it is: on other text it would do worse. So beside
the accuracy on all documents stands an honest one, of heads chosen on one half of the
documents and scored on the other.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headscope.atomic import atomic_path
from headscope.errors import InputError, UnknownName
from headscope.notebook import columns_table
from headscope.results.result import Result
from headscope.surface.probe_methods import ProbeTableMethods

BASELINES = (
    ("accuracy", "baseline", "dep_offset"),
    ("coref_accuracy", "coref_baseline", "coref_baseline"),
)
"""What is compared with what, and the metric that measures it."""


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
    honest: float
    """The accuracy of heads chosen on one half of the documents and scored on the other half,
    both ways together."""
    visible: float | None
    """The accuracy over the words whose target the head can see; None in coreference."""
    baselines: Mapping[str, float]
    """`offset` for dependencies; `nearest`, `head_match`, `sieves` for coreference."""
    offset: int | None = None
    """The best fixed offset."""

    @property
    def gain(self) -> float:
        """How far the accuracy is above the best baseline."""
        return self.accuracy - max(self.baselines.values())


@dataclass(frozen=True)
class ProbeTable(ProbeTableMethods):
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
        direction = ["direction"] if self.axis == "relation" else []
        visible = ["visible"] if self.is_causal and self.axis == "relation" else []
        names = list(self.rows[0].baselines) if self.rows else []
        offset = ["baseline_offset"] if self.axis == "relation" else []
        return [
            *(self.axis, "cases", "layer", "head", *direction),
            *("accuracy", "low", "high", "honest", *visible),
            *("baseline" if name == "offset" else name for name in names),
            *offset,
        ]

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain values, one dict each."""
        return [
            {
                name: value
                for name, value in _record(self.axis, row).items()
                if name in self.columns()
            }
            for row in self.rows
        ]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows; accuracies as shares."""
        with (
            atomic_path(path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.DictWriter(file, self.columns(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records())

    def __str__(self) -> str:
        lines = self._cells()
        names = lines[0]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        left = {0, *(names.index(name) for name in ("head", "direction") if name in names)}
        shown = [
            "  ".join(
                cell.ljust(width) if i in left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *shown])

    def _repr_html_(self) -> str:
        header, *rows = self._cells()
        return columns_table(self.title, header, rows)

    def _cells(self) -> list[list[str]]:
        """The heading and the rows, as they are printed."""
        hidden = ("layer", "low", "high", "baseline_offset")
        names = [name for name in self.columns() if name not in hidden]
        header = [name.replace("_", " ") for name in names]
        return [header, *([_shown(row, name, self.axis) for name in names] for row in self.rows)]


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
        rows = _dependencies(data, result.states[name]["dep_accuracy"])
        visible = data["cases_visible"].sel(relation="all")
        is_causal = bool(visible.sel(direction="dependent") != visible.sel(direction="head"))
        axis = "relation"
    elif "coref_accuracy" in data:
        rows = _coreference(data, result.states[name]["coref_accuracy"])
        is_causal, axis = False, "mention_kind"
    else:
        raise InputError(
            "This result is not of a probe: expected headscope.probe_dependencies or "
            f"headscope.probe_coreference; it has {', '.join(map(str, data.data_vars))[:200]}."
        )
    rows = sorted(rows, key=lambda row: (row.label != "all", -row.gain))
    return ProbeTable(result.title, axis, tuple(rows), is_causal)


def honest_scores(right: np.ndarray, cases: np.ndarray) -> np.ndarray:
    """`label`: the share of cases that heads chosen on the other half of the parts get right.

    The best of the classifiers on the even parts is scored on the odd ones and the best on
    the odd ones on the even; both halves' right cases over all cases. NaN where a half is
    empty.

    Args:
        right: `part classifier label`, cases that each classifier gets right.
        cases: `part label`.
    """
    halves = [(right[half::2].sum(0), cases[half::2].sum(0)) for half in (0, 1)]
    total = np.zeros(cases.shape[1])
    for (chosen_by, _), (scored_on, _) in (halves, halves[::-1]):
        total += np.take_along_axis(scored_on, chosen_by.argmax(0)[None], 0)[0]
    is_there = (halves[0][1] > 0) & (halves[1][1] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: np.ndarray = np.where(is_there, total / cases.sum(0), np.nan)
    return shares


def _dependencies(data: xr.Dataset, state: xr.Dataset) -> list[ProbeRow]:
    right = xr.concat([state["right"], state["right_all"].expand_dims(relation=1)], "relation")
    cases = xr.concat([state["cases"], state["cases_all"].expand_dims(relation=1)], "relation")
    by_part = right.stack(at=("direction", "layer", "head")).transpose("part", "at", "relation")
    of_layer = cases.isel(layer=0).transpose("part", "relation")
    honest = honest_scores(by_part.values, of_layer.values)
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
        rows.append(
            ProbeRow(
                label=label,
                cases=int(here["cases"]),
                layer=int(where["layer"]),
                head=int(where["head"]),
                direction=str(where["direction"]),
                accuracy=float(here["accuracy"]),
                interval=_interval(here, "accuracy"),
                honest=float(honest[number]),
                visible=float(here["accuracy_visible"]),
                baselines={"offset": baseline},
                offset=int(here["baseline_offset"]) if baseline > 0 else None,
            )
        )
    return rows


def _coreference(data: xr.Dataset, state: xr.Dataset) -> list[ProbeRow]:
    right = state["numerator"].stack(at=("layer", "head")).transpose("part", "at", "mention_kind")
    cases = state["denominator"].max(("layer", "head")).transpose("part", "mention_kind")
    honest = honest_scores(right.values, cases.values)
    rows = []
    for number, label in enumerate(map(str, data["mention_kind"].values)):
        values = data["coref_accuracy"].sel(mention_kind=label).transpose("layer", "head")
        if not np.isfinite(values.values).any():
            continue
        layer, head = np.unravel_index(np.nanargmax(values.values), values.shape)
        here = data.sel(mention_kind=label).isel(layer=layer, head=head)
        rules = map(str, data["rule"].values)
        rows.append(
            ProbeRow(
                label=label,
                cases=int(here["coref_cases"]),
                layer=int(here["layer"]),
                head=int(here["head"]),
                direction=None,
                accuracy=float(here["coref_accuracy"]),
                interval=_interval(here, "coref_accuracy"),
                honest=float(honest[number]),
                visible=None,
                baselines={rule: float(here["coref_baseline"].sel(rule=rule)) for rule in rules},
            )
        )
    return rows


def _interval(here: xr.Dataset, name: str) -> tuple[float, float]:
    if f"{name}_interval" not in here:
        return float("nan"), float("nan")
    low, high = here[f"{name}_interval"].values
    return float(low), float(high)


def _record(axis: str, row: ProbeRow) -> dict[str, Any]:
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
        "honest": row.honest,
        "visible": row.visible,
        **named,
        "baseline_offset": row.offset,
    }


def _shown(row: ProbeRow, name: str, axis: str) -> str:
    if name in (axis, "direction"):
        return str(_record(axis, row)[name])
    if name == "cases":
        return str(row.cases)
    if name == "head":
        return f"L{row.layer} H{row.head}"
    if name == "accuracy":
        low, high = row.interval
        return f"{100 * row.accuracy:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    value = f"{100 * _record(axis, row)[name]:.1f}"
    if name == "baseline":
        return f"{value} ({'none' if row.offset is None else f'{row.offset:+d}'.replace('-', '−')})"
    return value
