"""Differences of two results, with intervals and p values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from headscope.errors import InputError, warn
from headscope.metrics.core.finalize import HEADS, block_jackknives, labeled_interval, state_of
from headscope.results.display import CURE
from headscope.results.effect_data import Comparison
from headscope.results.result import Result
from headscope.run.merge import axes_of, check_results, registered_metrics_of
from headscope.statistics.cross_fitting import MIN_CASE_BUCKETS, MIN_CASES, cross_fit
from headscope.statistics.differences import Difference, p_differs_both, paired, unpaired
from headscope.statistics.intervals import BOUNDS, benjamini_hochberg, holm, interval, p_above
from headscope.statistics.jackknife import (
    Jackknife,
    is_dominated,
    is_driven_by_one,
    largest_influence,
    largest_share,
    pool,
    ratio_jackknife,
)

SAME = "paired: the same documents on both sides"
NOT_SAME = "unpaired: not the same documents on both sides"


@dataclass(frozen=True)
class Labeled:
    """A variable of a result and its jackknife, over the same axes."""

    array: xr.DataArray
    jackknife: Jackknife

    def mean(self) -> Labeled:
        """Return the mean over layers and heads."""
        heads = tuple(self.array.dims.index(dim) for dim in HEADS)
        return Labeled(self.array.mean(HEADS), self.jackknife.mean(heads))


def compare(left: Result, right: Result) -> Comparison:
    """See `Result.compare`.

    p values of heads are of `p_differs_both`: most documents must say the same as the total.
    Overlapping corpora are not paired, so their intervals are too wide rather than too narrow. The
    attribute `caution` names sums that one document dominates and differences that one drives.
    """
    check_results(other=right)
    is_paired = is_of_same_documents(left, right)
    difference_of = paired if is_paired else unpaired
    ours, theirs = labeled_jackknives(left), labeled_jackknives(right)
    alone = {  # variables that depend on a count in which the sides differ
        variable.name
        for metric in registered_metrics_of(left)
        if metric.depends_on_count and _count(left, metric.name) != _count(right, metric.name)
        for variable in metric.variables()
    }
    both = [{str(m["name"]) for m in result.provenance["metrics"]} for result in (left, right)]
    registered = [{m.name for m in registered_metrics_of(result)} for result in (left, right)]
    unregistered = sorted((both[0] & both[1]) - (registered[0] & registered[1]))
    if unregistered:
        warn(
            f"Not compared: {', '.join(unregistered)}, measured by classes that are not registered "
            "here. Define them and call headscope.register_metric(the class) first."
        )
    differences: dict[str, xr.DataArray] = {}
    cautions: list[str] = []

    def add(name: str, mine: Labeled, other: Labeled) -> None:
        a, b = xr.align(mine.array, other.array, join="inner")
        if not mine.array.sizes == other.array.sizes == a.sizes:
            return
        sides = mine.jackknife, other.jackknife
        difference = difference_of(*sides)
        if {*HEADS} <= {*a.dims}:  # read in lists
            difference = replace(difference, p=p_differs_both(*sides, is_paired=is_paired))
        differences.update(_labeled(name, a - b, difference))
        cautions.extend(caution(name, a, *sides, is_paired=is_paired))

    for name in ours:
        if name in theirs and name not in alone:
            add(name, ours[name], theirs[name])
            if {*HEADS} <= {*ours[name].array.dims}:
                add(f"{name}_mean", ours[name].mean(), theirs[name].mean())
    differences |= best_heads(left, right)
    if not differences:
        raise InputError("The two results have no variable in common.")
    about = {"left": left.title, "right": right.title}
    about["comparison"] = SAME if is_paired else NOT_SAME
    if cautions:
        about["caution"] = " ".join(cautions)
    return Comparison(differences, coords={"bound": list(BOUNDS)}, attrs=about)


def caution(
    name: str, array: xr.DataArray, left: Jackknife, right: Jackknife, *, is_paired: bool
) -> list[str]:
    """Return warnings on documents that dominate or drive the difference of two sides."""
    compared = [left - right] if is_paired else [left, right]
    return [*dominated(name, (left, right)), *driven_by_one(name, array, compared)]


def dominated(name: str, sides: Sequence[Jackknife]) -> list[str]:
    """Return a warning if one document has most of a sum."""
    share = max((largest_share(side)[0] for side in sides if is_dominated(side)), default=None)
    text = f"of {name}, and few heads can be told from others: {CURE}."
    return [] if share is None else [f"One document holds {share:.0%} {text}"]


def driven_by_one(name: str, array: xr.DataArray, compared: Sequence[Jackknife]) -> list[str]:
    """Return a warning if one document drives numbers, however short the document is. `compared`
    are the jackknives that make up the error: a difference, or its two sides.
    """
    shares = np.max(
        [np.where(is_driven_by_one(x), largest_influence(x), 0.0) for x in compared], axis=0
    )
    n = int((shares > 0).sum())
    if not n:
        return []
    worst = np.unravel_index(int(shares.argmax()), shares.shape)
    coordinates = [
        f"{dim} {array[dim].values[i] if dim in array.coords else i}"
        for dim, i in zip(array.dims, worst, strict=True)
    ]
    location = f" at {', '.join(coordinates)}" if coordinates else ""
    return [
        f"In {n} of {shares.size} numbers, one document is more than half of what {name} varies by "
        f"({shares.max():.0%}{location}): they may not replicate."
    ]


def is_of_same_documents(left: Result, right: Result) -> bool:
    """Return whether two results share documents, in the same buckets."""
    ours, theirs = (set(str(r.provenance["corpus"]["hash"]).split("+")) for r in (left, right))
    groups = [r.provenance.get("group") for r in (left, right)]
    are_apart = None not in groups and groups[0] != groups[1]
    buckets = [axes_of(r).buckets_per_group for r in (left, right)]
    return bool(ours & theirs) and not are_apart and buckets[0] == buckets[1]


def labeled_jackknives(
    result: Result, block: str | None = None, only: str | None = None
) -> dict[str, Labeled]:
    """Return the variables with a jackknife, without labels that other metrics added. Metrics with
    unregistered classes are left out. `only` names a variable: then those of its metric.
    """
    block = block or next(iter(result.blocks))
    data = result.block(block)
    axes, metrics = axes_of(result), registered_metrics_of(result)
    if only is not None:
        metrics = tuple(m for m in metrics if only in {v.name for v in m.variables()})
    states = result.states[block]
    measured = {m.name: state_of(states[m.name]) for m in metrics if m.name in states}
    jackknife = {
        name: dense(by_bucket, axes.buckets_per_group)
        for name, by_bucket in block_jackknives(measured, metrics, axes, axes.units).items()
    }
    labeled = {}
    for metric in metrics:
        labels = metric.coordinates(axes)
        for name in (variable.name for variable in metric.variables()):
            if name in jackknife and name in data:
                coords = {d: list(labels[d]) for d in map(str, data[name].dims) if d in labels}
                labeled[name] = Labeled(data[name].sel(coords), jackknife[name])
    return labeled


ALL = "all"
"""Label over all relations or mentions: its own family of tests."""


@dataclass(frozen=True)
class ProbeCounts:
    """Cases of a probe by unit of documents: those each head and each baseline gets right."""

    name: str
    """`accuracy` or `coref_accuracy`."""
    axis: str
    labels: list[str]
    """Relations or kinds of mention."""
    right: np.ndarray
    """`unit place label`; a place is a head, in dependencies a direction and a head."""
    cases: np.ndarray
    """`unit label`."""
    baselines: np.ndarray
    """`unit baseline label`: fixed offsets or rules; no baselines if they were not measured."""


def probe_counts(result: Result, block: str | None = None) -> ProbeCounts | None:
    """Return the counts of a probe's result; None for other results."""
    block = block or next(iter(result.blocks))
    data, states, units = result.block(block), result.states.get(block, {}), axes_of(result).units
    if "accuracy" in data and "dep_accuracy" in states:
        name, axis, baseline, place = "accuracy", "relation", "offset_tried", "direction"
        state, other = states["dep_accuracy"], states.get("dep_offset")
        right, cases = _with_all(state, "right"), _with_all(state, "cases").isel(layer=0)
        rivals = None if other is None else _with_all(other, "right")
    elif "coref_accuracy" in data and "coref_accuracy" in states:
        name, axis, baseline, place = "coref_accuracy", "mention_kind", "rule", ""
        state, other = states["coref_accuracy"], states.get("coref_baseline")
        right, cases = state["numerator"], state["denominator"].max(HEADS)
        rivals = None if other is None else other["numerator"]
    else:
        return None

    def pooled(array: xr.DataArray, *dims: str) -> np.ndarray:
        return pool(array.transpose("bucket", *dims, axis).values, units)

    places = [dim for dim in (place, *HEADS) if dim]
    by_unit = pooled(right.stack(place=places), "place")
    n = len(by_unit), 0, by_unit.shape[-1]
    baselines = np.zeros(n) if rivals is None else pooled(rivals, baseline)
    labels = [str(label) for label in data[axis].values]
    others = [dim for dim in data[name].dims if dim != axis]
    is_reported = data[name].notnull().any(others).values  # relations with too few cases are not
    return ProbeCounts(name, axis, labels, by_unit, pooled(cases) * is_reported, baselines)


def _with_all(state: xr.Dataset, name: str) -> xr.DataArray:
    """Return the counts by relation, with the sum over all relations last."""
    return xr.concat([state[name], state[f"{name}_all"].expand_dims(relation=1)], "relation")


def best_heads(left: Result, right: Result) -> Mapping[str, xr.DataArray]:
    """Return the differences of the best heads, if both are probes of the same documents."""
    ours, theirs = probe_counts(left), probe_counts(right)
    if ours and theirs and ours.name == theirs.name and is_of_same_documents(left, right):
        return best_differences(ours, theirs)
    return {}


def best_differences(ours: ProbeCounts, theirs: ProbeCounts) -> Mapping[str, xr.DataArray]:
    """`…_best` by relation: accuracy of the best head, ours minus theirs, paired over documents.

    The models may differ in shape. The value is the difference of cross-fitted accuracies. Our best
    head is better if our cross-fitted heads are better than each head of theirs: the p value of one
    side is the largest over their heads (an intersection-union test, Berger 1982), the lower bound
    the smallest. So the choice among heads counts in both. Holm corrects over relations.
    """
    labels = [label for label in ours.labels if label in theirs.labels]
    n = max(len(ours.cases), len(theirs.cases))
    (best, heads, is_testable), (other, others, also) = (
        _crossfit(side, labels, n) for side in (ours, theirs)
    )
    low, p_low = _lead(best, others)
    high, p_high = _lead(other, heads)
    difference = best - other
    p = np.where(is_testable & also, np.minimum(2 * np.minimum(p_low, p_high), 1.0), np.nan)
    family = np.where([label == ALL for label in labels], np.nan, p)
    attributes = {"title": "Best head, cross-fitted", "units": "share of cases"}
    value = xr.DataArray(difference.value, {ours.axis: labels}, (ours.axis,), attrs=attributes)
    documents = interval(difference).documents
    tested = Difference(low, -high, documents, difference.value, p)
    return _labeled(f"{ours.name}_best", value, tested, family)


def _lead(best: Jackknife, heads: Jackknife) -> tuple[np.ndarray, np.ndarray]:
    """`label`: lower bound of the lead over the nearest head, and p of no lead over some head."""
    lead = best.at(None) - heads
    return interval(lead).low.min(0), np.nan_to_num(p_above(lead), nan=1.0).max(0)


def _crossfit(
    counts: ProbeCounts, labels: Sequence[str], n: int
) -> tuple[Jackknife, Jackknife, np.ndarray]:
    """Return accuracies: `label` of cross-fitted heads and `place label` of each head. Also return
    whether a label has enough cases for a test.
    """
    index = [counts.labels.index(label) for label in labels]
    right, cases = counts.right[..., index], counts.cases[:, index]
    is_known = np.all([cases[half::2].sum(0) > 0 for half in (0, 1)], axis=0)
    is_enough = (cases.sum(0) >= MIN_CASES) & ((cases > 0).sum(0) >= MIN_CASE_BUCKETS) & is_known
    cases = np.where(is_known, cases, 0.0)
    by_bucket = np.stack([cross_fit(right[..., i])[0] for i in range(len(index))], axis=-1)
    best, heads = ratio_jackknife(by_bucket, cases), ratio_jackknife(right, cases[:, None])
    return dense(best, n), dense(heads, n), is_enough


def dense(jackknife: Jackknife, n: int) -> Jackknife:
    """Pad with empty buckets up to n, so that two sides can be paired."""
    if len(jackknife.deltas) == n:
        return jackknife
    more = [(0, n - len(jackknife.deltas)), *[(0, 0)] * (jackknife.deltas.ndim - 1)]
    return jackknife.changed(jackknife.value, lambda array: np.pad(array, more))


def _count(result: Result, metric: str) -> list[float] | None:
    name = f"{metric}_count"
    return result[name].values.ravel().tolist() if name in result else None


def _labeled(
    name: str, value: xr.DataArray, difference: Difference, family: np.ndarray | None = None
) -> Mapping[str, xr.DataArray]:
    """Return a difference, its interval and p values: corrected by BH, or Holm over `family`."""
    units = str(value.attrs.get("units", ""))
    coords = {dim: value[dim] for dim in value.dims if dim in value.coords}
    by, adjusted = "(Benjamini & Hochberg 1995)", benjamini_hochberg(difference.p)
    if family is not None:
        by = "(Holm 1979; “all” is tested alone)"
        adjusted = np.where(np.isnan(family), difference.p, holm(family))
    n = int(np.isfinite(difference.p if family is None else family).sum())
    tests = {
        f"{name}_p{kind}": xr.DataArray(p, coords, value.dims, attrs={"long_name": about})
        for kind, p, about in (
            ("", difference.p, "two-sided p value of no difference, of this number alone"),
            ("_adjusted", adjusted, f"the same, corrected over {n} numbers {by}"),
        )
    }
    return {name: value, **labeled_interval(name, value, difference, units), **tests}
