"""Differences of two results, with intervals and p values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError, warn
from headscope.metrics.core.finalize import HEADS, block_jackknives, labeled_interval, state_of
from headscope.results.display import CURE
from headscope.results.result import Result
from headscope.run.merge import axes_of, check_results, registered_metrics_of
from headscope.statistics.differences import Difference, paired, unpaired
from headscope.statistics.intervals import BOUNDS
from headscope.statistics.jackknife import (
    Jackknife,
    is_dominated,
    is_driven_by_one,
    largest_influence,
    largest_share,
)
from headscope.statistics.multiple_testing import benjamini_hochberg

SAME = "paired: the same documents on both sides"
NOT_SAME = "unpaired: not the same documents on both sides"


@dataclass(frozen=True)
class Labeled:
    """A variable of a result and its jackknife, over the same axes."""

    array: xr.DataArray
    jackknife: Jackknife


def compare(left: Result, right: Result) -> xr.Dataset:
    """See `Result.compare`.

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
    for name, mine in ours.items():
        if name not in theirs or name in alone:
            continue
        a, b = xr.align(mine.array, theirs[name].array, join="inner")
        if mine.array.sizes == theirs[name].array.sizes == a.sizes:
            difference = difference_of(mine.jackknife, theirs[name].jackknife)
            differences |= _labeled(name, a - b, difference)
            cautions += caution(
                name, a, mine.jackknife, theirs[name].jackknife, is_paired=is_paired
            )
        if {*HEADS} <= {*mine.array.dims}:
            averages = []
            for side in (ours[name], theirs[name]):
                heads = tuple(side.array.dims.index(dim) for dim in HEADS)
                averages.append(Labeled(side.array.mean(HEADS), side.jackknife.mean(heads)))
            a, b = xr.align(*(side.array for side in averages), join="inner")
            if averages[0].array.sizes == averages[1].array.sizes == a.sizes:
                difference = difference_of(*(side.jackknife for side in averages))
                name = f"{name}_mean"
                differences |= _labeled(name, a - b, difference)
                sides = [side.jackknife for side in averages]
                cautions += caution(name, a, sides[0], sides[1], is_paired=is_paired)
    if not differences:
        raise InputError("The two results have no variable in common.")
    about = {"left": left.title, "right": right.title}
    about["comparison"] = SAME if is_paired else NOT_SAME
    if cautions:
        about["caution"] = " ".join(cautions)
    return xr.Dataset(differences, coords={"bound": list(BOUNDS)}, attrs=about)


def caution(
    name: str, array: xr.DataArray, left: Jackknife, right: Jackknife, *, is_paired: bool
) -> list[str]:
    """Return warnings on documents that dominate or drive the difference of two sides."""
    compared = [left - right] if is_paired else [left, right]
    return [*dominated(name, (left, right)), *driven_by_one(name, array, compared)]


def dominated(name: str, sides: Sequence[Jackknife]) -> list[str]:
    """Return a warning if one document has most of a sum."""
    shares = [largest_share(side)[0] for side in sides if is_dominated(side)]
    if not shares:
        return []
    return [
        f"One document holds {max(shares):.0%} of {name}, and few heads can be told from others: "
        f"{CURE}."
    ]


def driven_by_one(name: str, array: xr.DataArray, compared: Sequence[Jackknife]) -> list[str]:
    """Return a warning if one document drives numbers, however short the document is.

    `array` has the axes of the numbers; `compared` are the jackknives that make up the error: a
    difference, or its two sides.
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
    """Do two results share documents, in the same buckets?

    Two groups of one corpus share none; a group and the whole do.
    """
    ours, theirs = (set(str(r.provenance["corpus"]["hash"]).split("+")) for r in (left, right))
    groups = [r.provenance.get("group") for r in (left, right)]
    are_apart = None not in groups and groups[0] != groups[1]
    buckets = [axes_of(r).buckets_per_group for r in (left, right)]
    return bool(ours & theirs) and not are_apart and buckets[0] == buckets[1]


def labeled_jackknives(
    result: Result, block: str | None = None, only: str | None = None
) -> dict[str, Labeled]:
    """Return the variables with a jackknife, without labels that other metrics added.

    Metrics with unregistered classes are left out. `only` names a variable: then only those of its
    metric are returned. Default block: the first.
    """
    block = block or next(iter(result.blocks))
    data = result.block(block)
    axes, metrics = axes_of(result), registered_metrics_of(result)
    if only is not None:
        metrics = tuple(m for m in metrics if only in {v.name for v in m.variables()})
    states = result.states[block]
    measured = {m.name: state_of(states[m.name]) for m in metrics if m.name in states}
    jackknife = {
        name: _dense(by_bucket, axes.buckets_per_group)
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


def _dense(jackknife: Jackknife, n: int) -> Jackknife:
    """Pad with empty buckets up to n, so that two sides can be paired."""
    if len(jackknife.deltas) == n:
        return jackknife
    more = [(0, n - len(jackknife.deltas)), *[(0, 0)] * (jackknife.deltas.ndim - 1)]
    return jackknife.changed(jackknife.value, lambda array: np.pad(array, more))


def _count(result: Result, metric: str) -> list[float] | None:
    name = f"{metric}_count"
    return result[name].values.ravel().tolist() if name in result else None


def _labeled(name: str, value: xr.DataArray, difference: Difference) -> Mapping[str, xr.DataArray]:
    units = str(value.attrs.get("units", ""))
    coords = {dim: value[dim] for dim in value.dims if dim in value.coords}
    p = {"": difference.p, "_adjusted": benjamini_hochberg(difference.p)}
    about = {
        "": "two-sided p value of no difference, of this number alone",
        "_adjusted": f"the same, corrected over {int(np.isfinite(difference.p).sum())} numbers "
        "(Benjamini & Hochberg 1995)",
    }
    tests = {
        f"{name}_p{kind}": xr.DataArray(
            values, coords, value.dims, attrs={"long_name": about[kind]}
        )
        for kind, values in p.items()
    }
    return {name: value, **labeled_interval(name, value, difference, units), **tests}
