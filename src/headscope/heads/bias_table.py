"""What coreference heads do with stereotypes, head by head, from a result of `probe_bias`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.heads.table_text import Value, aligned, percent, write_csv
from headscope.notebook import columns_table
from headscope.results.result import Result
from headscope.statistics.intervals import interval
from headscope.statistics.pulls import ratio_pulls

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure


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
    honest: tuple[float, float]
    """Accuracy pro and anti of heads chosen on one half of the pairs, scored on the other."""
    honest_intervals: tuple[tuple[float, float], tuple[float, float]]
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
        pro, anti = map(percent, self.honest, self.honest_intervals)
        last = (
            f"best head chosen on the other half of the pairs: pro {pro}, anti {anti} "
            f"({self.pairs} pronouns each)"
        )
        return "\n".join([self.title, *aligned(lines), last])

    def figure(self) -> Figure:
        """Each head's accuracy where the pronoun fits the stereotype, and where it does not."""
        from headscope.figures.bias_heads import bias_figure

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
    honest, bounds = honest_scores(result.states[name]["bias"])
    cases = int(data["bias_cases"].sel(condition="pro"))
    return BiasTable(result.title, cases, rows, honest, bounds)


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


def honest_scores(state: xr.Dataset) -> tuple[Bounds, tuple[Bounds, Bounds]]:
    """Accuracy pro and anti, with intervals: the best head of one half of the parts, on the other.

    Each part is scored by the head that the other half chose, so it is a ratio of sums like any
    other.
    """
    right = state["right"].stack(at=("layer", "head")).transpose("part", "at", "condition").values
    cases = state["cases"].isel(layer=0).transpose("part", "condition").values
    scored = np.zeros(cases.shape)
    for half in (0, 1):
        best = right[1 - half :: 2].sum((0, 2)).argmax()
        scored[half::2] = right[half::2, best]
    if not all(cases[half::2].sum() > 0 for half in (0, 1)):
        unknown = (float("nan"), float("nan"))
        return unknown, (unknown, unknown)
    pulls = ratio_pulls(scored, cases, "logit")
    (pro_low, anti_low), (pro_high, anti_high) = interval(pulls).bounds.tolist()
    pro, anti = pulls.value.tolist()
    return (pro, anti), ((pro_low, pro_high), (anti_low, anti_high))


def _signed(value: float, low: float, high: float) -> str:
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]".replace("-", "−")
