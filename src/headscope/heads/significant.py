"""Heads above a threshold, a baseline or another result, corrected for testing all heads.

Of a training: when heads rose above a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.arguments import finite_number
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.finalize import HEADS
from headscope.metrics.core.registry import metric_from_dict
from headscope.results.display import Table, Value, counted, display_of, label_of
from headscope.results.result import Result, check_labels
from headscope.results.steps import PREVIOUS, result_at, steps_of
from headscope.run.compare import (
    Labeled,
    ProbeCounts,
    caution,
    dense,
    dominated,
    driven_by_one,
    is_of_same_documents,
    labeled_jackknives,
    probe_counts,
)
from headscope.run.merge import check_results
from headscope.statistics.differences import p_above_both, p_differs_both, paired, typical, unpaired
from headscope.statistics.intervals import CONFIDENCE, benjamini_hochberg, interval, p_above
from headscope.statistics.jackknife import Jackknife, ratio_jackknife


@dataclass(frozen=True, slots=True)
class SignificantHead:
    """One head of a list."""

    layer: int
    head: int
    value: float
    interval: tuple[float, float]
    """95 %, over documents."""
    typical: float
    """Median over buckets of documents, all of the same weight."""
    p: float
    """The larger of two: of the test of the value, and of the sign test that most buckets of
    documents say the same."""
    p_adjusted: float
    """Corrected for all heads that were tested."""


@dataclass(frozen=True)
class SignificantHeads(Table):
    """Heads, those with the largest value (or difference) first; `print` it."""

    _left = ("value", "95 % interval", "typical", "p, adjusted")
    _max_printed = 12

    title: str
    correction: str
    """`Benjamini–Hochberg over 72 heads, level 0.05`."""
    n_tested: int
    rows: tuple[SignificantHead, ...]
    caution: str = ""
    """Caveats: heads that could not be tested, documents that dominate."""

    @property
    def _heading(self) -> str:
        return f"{self.title}: {len(self)} of {self.n_tested} heads ({self.correction})"

    @property
    def _caption(self) -> str:
        return f"{self._heading}. 95 % intervals over documents; most documents say the same."

    @property
    def _note(self) -> str:
        return self.caution

    def _columns(self) -> list[str]:
        return ["layer", "head", "value", "low", "high", "typical", "p", "p_adjusted"]

    def records(self) -> list[dict[str, Value]]:
        """Return one row for each head."""
        rows = [
            (r.layer, r.head, r.value, *r.interval, r.typical, r.p, r.p_adjusted) for r in self.rows
        ]
        return [dict(zip(self._columns(), row, strict=True)) for row in rows]

    def _cells(self) -> list[list[str]]:
        rows = [
            [
                f"L{row.layer} H{row.head}",
                f"{row.value:.3f}",
                f"[{row.interval[0]:.3f}, {row.interval[1]:.3f}]",
                f"{row.typical:.3f}",
                f"{row.p_adjusted:.2g}",
            ]
            for row in self.rows
        ]
        return [["head", "value", "95 % interval", "typical", "p, adjusted"], *rows]


def significant_heads(
    result: Result,
    name: str,
    *,
    against: float | str | Result = "mean",
    level: float = 0.05,
    block: str | None = None,
    **labels: str | int,
) -> SignificantHeads:
    """See `Result.significant`."""
    if not _is_number(level) or not 0 < level < 1:
        raise InputError(f"level={level!r}; expected a number between 0 and 1, such as 0.05.")
    if not isinstance(against, str | Result) and not _is_number(against):
        raise InputError(
            f"against={against!r}; expected a number, the name of a variable, 'mean', or a result."
        )
    for values in result.provenance["metrics"]:
        if values["name"] == name:
            metric_from_dict(values)  # an error if its class is not registered here
    known = labeled_jackknives(result, block)
    labeled = of_heads(known, name, labels)
    mine, called = labeled.jackknife, display_of(labeled.array).title
    if labels:
        called += f" ({', '.join(label_of(*label) for label in labels.items())})"
    if isinstance(against, Result):
        check_results(against=against)
        theirs = of_heads(labeled_jackknives(against, block), name, labels)
        if theirs.array.sizes != labeled.array.sizes:
            raise InputError(
                f"{result.model} has {_size(labeled)} and {against.model} {_size(theirs)}: heads "
                "can be compared one by one where both have as many. result.compare has the means."
            )
        is_paired = is_of_same_documents(result, against)
        difference = (paired if is_paired else unpaired)(mine, theirs.jackknife)
        title = f"{called} of {result.model} minus {against.model}"
        differences = labeled.array.copy(data=difference.value)
        both = mine, theirs.jackknife
        said = caution(name, labeled.array, *both, is_paired=is_paired)
        p = p_differs_both(*both, is_paired=is_paired)
        medians = typical(*both) if is_paired else typical(mine) - typical(theirs.jackknife)
        return _listed(title, differences, difference.bounds, medians, difference.p, p, level, said)
    driven = mine
    if isinstance(against, str):
        counts = probe_counts(result, block)
        rival, rivals = rivals_of(known, counts, labeled, name, against, labels)
        driven = mine - rivals[0]
        alone = np.max([p_above(mine - other) for other in rivals], axis=0)
        p = np.max([p_above_both(mine, other) for other in rivals], axis=0)
    else:
        if mine.scale == "logit" and not 0 <= against <= 1:
            raise InputError(
                f"against={against:g}, but {name} is a share: expected a number from 0 to 1."
            )
        rival = f"{against:g}"
        alone = p_above(mine, float(against))
        p = p_above_both(mine, float(against))
    bounds, title = interval(mine).bounds, f"{called} above {rival}"
    said = [f"Note: {result.independence}."] if result.independence else []
    said += [*dominated(name, [mine]), *driven_by_one(name, labeled.array, [driven])]
    return _listed(title, labeled.array, bounds, typical(mine), alone, p, level, said)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return math.isfinite(value)


def of_heads(known: dict[str, Labeled], name: str, labels: Mapping[str, str | int]) -> Labeled:
    """Return a variable over layer and head at one label of each other axis."""
    UnknownName.check("variable with intervals", name, known)
    array = known[name].array
    check_labels(array, labels, array.dims, f"axis of {name}")
    labeled = at_labels(known[name], labels)
    others = [str(dim) for dim in labeled.array.dims if dim not in HEADS]
    if others or not {*HEADS} <= {*labeled.array.dims}:
        raise InputError(
            f"{name} has the axes {', '.join(map(str, labeled.array.dims))}: expected layer and "
            "head" + (f"; give a label of {', '.join(others)}." if others else ".")
        )
    return labeled


def at_labels(labeled: Labeled, labels: Mapping[str, str | int]) -> Labeled:
    """Return a variable at a label of some of its axes."""
    array, jackknife = labeled.array, labeled.jackknife
    for axis, label in labels.items():
        number = array[axis].values.tolist().index(label)
        jackknife = jackknife.at(*[slice(None)] * array.dims.index(axis), number)
        array = array.sel({axis: label})
    return Labeled(array, jackknife)


BASELINES = ("dep_alignment", "accuracy", "coref_accuracy")
"""Variables with a baseline of their own: `against="baseline"`."""


def rivals_of(
    known: dict[str, Labeled],
    counts: ProbeCounts | None,
    labeled: Labeled,
    name: str,
    against: str,
    labels: Mapping[str, str | int],
) -> tuple[str, list[Jackknife]]:
    """Return the title and the values that heads must all be above, the highest value first."""
    if against == "baseline" and name == "dep_alignment":
        is_either = labels.get("parent") == "either" and "dep_baseline" in known
        against = "dep_baseline" if is_either else "dep_baseline_by_parent"
        return "uniform attention", [_rival(known, labeled, against, labels)]
    if against == "baseline" and counts and counts.name == name and counts.baselines.size:
        number = counts.labels.index(str(labels[counts.axis]))
        right, cases = counts.baselines[..., number], counts.cases[:, number, None]
        values = dense(ratio_jackknife(right, cases, "logit"), len(labeled.jackknife.deltas))
        title = "every fixed offset" if name == "accuracy" else "every rule"
        order = np.argsort(-values.value).tolist()
        return title, [values.at(i, None, None) for i in order]
    if against == "baseline" and against not in known:
        raise InputError(
            f"{name} has no baseline of its own; {', '.join(BASELINES)} have one. Pass "
            "against='mean', a number, or the name of another variable."
        )
    if against == "mean":
        return "its mean over heads", [labeled.jackknife.mean((0, 1)).at(None, None)]
    rival = _rival(known, labeled, against, labels)
    return display_of(known[against].array).title, [rival]


def _rival(
    known: dict[str, Labeled], labeled: Labeled, name: str, labels: Mapping[str, str | int]
) -> Jackknife:
    if name not in known:
        raise UnknownName.of("variable to compare with", name, ["mean", "baseline", *known])
    dims = known[name].array.dims
    rival = at_labels(known[name], {axis: labels[axis] for axis in labels if axis in dims})
    array, jackknife = rival.array, rival.jackknife
    units, theirs = (display_of(side).units for side in (labeled.array, array))
    if units != theirs and not (units.startswith("share") and theirs.startswith("share")):
        raise InputError(
            f"{name} is in {theirs}, and what it is compared with in {units}: expected the same."
        )
    if array.dims not in ((), HEADS):
        raise InputError(f"{name} has the axes {', '.join(map(str, array.dims))}: expected none.")
    return jackknife if array.dims else jackknife.at(None, None)


def _listed(
    title: str,
    array: xr.DataArray,
    bounds: np.ndarray,
    medians: np.ndarray,
    p_alone: np.ndarray,
    p: np.ndarray,
    level: float,
    cautions: list[str],
) -> SignificantHeads:
    """Return the list; `p_alone` is that of the value, without the sign test."""
    adjusted = benjamini_hochberg(p)
    layers, heads, values = array["layer"].values, array["head"].values, array.values
    with np.errstate(invalid="ignore"):
        places = np.argwhere(adjusted < level)
        few = int(((benjamini_hochberg(p_alone) < level) & ~(adjusted < level)).sum())
    rows = [
        SignificantHead(
            int(layers[i]),
            int(heads[j]),
            float(values[i, j]),
            (float(bounds[0, i, j]), float(bounds[1, i, j])),
            float(medians[i, j]),
            float(p[i, j]),
            float(adjusted[i, j]),
        )
        for i, j in places
    ]
    n = int(np.isfinite(p).sum())
    untested = int(np.isfinite(values).sum()) - n
    if untested > 0:
        cautions = [f"Not tested, for too few documents: {untested} heads.", *cautions]
    if few:
        noun = "1 head is so" if few == 1 else f"{few} heads are so"
        cautions = [f"Not listed: {noun} in total, but not clearly in most documents.", *cautions]
    correction = f"Benjamini–Hochberg over {n} heads, level {level:g}"
    rows.sort(key=lambda row: -abs(row.value))
    return SignificantHeads(title, correction, n, tuple(rows), " ".join(cautions))


def _size(labeled: Labeled) -> str:
    return " × ".join(f"{labeled.array.sizes[dim]} {dim}s" for dim in HEADS)


@dataclass(frozen=True, slots=True)
class Onset:
    """Step at which one head rose above the threshold for good."""

    layer: int
    head: int
    step: int
    low: int
    """First step from which on the head may be above."""
    high: int | None
    """First step from which on the head is above at every step; None if that is not shown."""
    value: float
    """Value at the last step."""


@dataclass(frozen=True)
class Onsets(Table):
    """Heads that end above a threshold, in the order in which they rose; `print` it."""

    _row = Onset
    _left = ("95 % interval",)

    title: str
    caption: str
    rows: tuple[Onset, ...]

    @property
    def earliest(self) -> tuple[Onset, ...]:
        """Heads that cannot be told from the first: not shown to rise after it surely has."""
        high = self.rows[0].high if self.rows else None
        return tuple(row for row in self.rows if high is None or row.low <= high)

    @property
    def _note(self) -> str:
        return self.caption

    def _cells(self) -> list[list[str]]:
        rows = [
            [
                f"L{row.layer} H{row.head}",
                f"{row.step:,}",
                f"[{row.low:,}, {'–' if row.high is None else f'{row.high:,}'}]",
                f"{row.value:.3f}",
            ]
            for row in self.rows
        ]
        return [["head", "first step", "95 % interval", "at the end"], *rows]


def find_onsets(
    result: Result,
    name: str,
    threshold: float = 0.5,
    *,
    block: str | None = None,
    **labels: str | int,
) -> Onsets:
    """See `Result.onsets`."""
    steps = steps_of(result)
    if len(steps) < 2:
        raise InputError(f"An onset needs two steps or more; this result has {len(steps)}.")
    threshold = finite_number("threshold", threshold)
    variable, chosen = (
        ("offset_share", {"offset": -1, **labels}) if name == PREVIOUS else (name, labels)
    )
    values, lows, highs = [], [], []
    for step in steps:
        known = labeled_jackknives(result_at(result, step), block, variable)
        labeled = of_heads(known, variable, chosen)
        bounds = interval(labeled.jackknife, 1 - (1 - CONFIDENCE) / len(steps))
        values.append(labeled.array.values)
        # An unknown bound excludes nothing.
        lows.append(np.nan_to_num(bounds.low, nan=-np.inf))
        highs.append(np.nan_to_num(bounds.high, nan=np.inf))
    first, low, high = (_stays(np.stack(x) >= threshold) for x in (values, highs, lows))
    rows = [
        Onset(
            int(labeled.array["layer"].values[i]),
            int(labeled.array["head"].values[j]),
            steps[first[i, j]],
            steps[low[i, j]],
            steps[high[i, j]] if high[i, j] < len(steps) else None,
            float(values[-1][i, j]),
        )
        for i, j in np.argwhere(first < len(steps))
    ]
    rows.sort(key=lambda row: (row.step, -row.value))
    called = "To the previous token" if name == PREVIOUS else display_of(labeled.array).title
    title = f"{called}: {len(rows)} of {first.size} heads end above {threshold:g}"
    caption = (
        f"First of {len(steps)} tracked steps after which a head stays above; intervals for each "
        f"head, over {counted(result.n_documents)}, simultaneous over steps (Bonferroni)."
    )
    return Onsets(title, caption, tuple(rows))


def _stays(is_above: np.ndarray) -> np.ndarray:
    """`…`: number of the first step from which on all are true; the number of steps if none."""
    from_here_on = np.logical_and.accumulate(is_above[::-1])[::-1]
    count: np.ndarray = from_here_on.sum(0)
    return len(is_above) - count
