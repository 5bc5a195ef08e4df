"""The differences of two results."""

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
OTHER = "unpaired: not the same documents on both sides"


@dataclass(frozen=True)
class Labeled:
    """A variable of a result with the jackknife of its buckets, over the same axes."""

    array: xr.DataArray
    jackknife: Jackknife


def compare(left: Result, right: Result) -> xr.Dataset:
    """Differences of two results, left minus right, with intervals and p values.

    Two models over one corpus, or two genres under one model (`result.group`). Variables
    are compared head by head where both models have the same layers and heads; their means
    over heads (`…_mean`) always. Results of the same documents are paired, bucket by bucket; the
    attribute `comparison` says which it was. Corpora that merely overlap are not paired, which
    makes intervals too wide rather than too narrow. `…_p` is two-sided; `…_p_adjusted` is corrected
    for all heads (and labels) of the variable by Benjamini & Hochberg: of the differences where it
    is below 0.05, at most one in twenty is expected to be false. Variability is left out where the
    sides kept different numbers of documents: fewer make it smaller. Metrics whose classes are not
    registered here are left out, with a warning. Where one document dominates a sum, or decides a
    difference, the attribute `caution` says so.
    """
    check_results(other=right)
    is_paired = is_of_same_documents(left, right)
    difference_of = paired if is_paired else unpaired
    ours, theirs = labeled_jackknives(left), labeled_jackknives(right)
    alone = _not_comparable(left, right)
    _warn_of_unregistered(left, right)
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
            averages = [_averaged(side[name]) for side in (ours, theirs)]
            a, b = xr.align(*(side.array for side in averages), join="inner")
            if averages[0].array.sizes == averages[1].array.sizes == a.sizes:
                difference = difference_of(*(side.jackknife for side in averages))
                name = f"{name}_mean"
                differences |= _labeled(name, a - b, difference)
                sides = [side.jackknife for side in averages]
                cautions += caution(name, a, sides[0], sides[1], is_paired=is_paired)
    if not differences:
        raise InputError("The two results have no variable in common.")
    about = {"left": left.title, "right": right.title, "comparison": SAME if is_paired else OTHER}
    if cautions:
        about["caution"] = " ".join(cautions)
    return xr.Dataset(differences, coords={"bound": list(BOUNDS)}, attrs=about)


def caution(
    name: str, array: xr.DataArray, left: Jackknife, right: Jackknife, *, is_paired: bool
) -> list[str]:
    """Sentences about a document that dominates or decides the difference of two sides."""
    compared = [left - right] if is_paired else [left, right]
    return [*dominated(name, (left, right)), *decided(name, array, compared)]


def dominated(name: str, sides: Sequence[Jackknife]) -> list[str]:
    """What a reader must know of a sum of which one document holds most."""
    shares = [largest_share(side)[0] for side in sides if is_dominated(side)]
    if not shares:
        return []
    return [
        f"One document holds {max(shares):.0%} of {name}, and few heads can be told from others: "
        f"{CURE}."
    ]


def decided(name: str, array: xr.DataArray, compared: Sequence[Jackknife]) -> list[str]:
    """What a reader must know of numbers that hang on one document, however short it is.

    Args:
        name: of the variable.
        array: with the axes of the numbers, which say where the worst is.
        compared: whose jackknife make up the error: a difference, or its two sides.
    """
    shares = np.max(
        [np.where(is_driven_by_one(of), largest_influence(of), 0.0) for of in compared], axis=0
    )
    n = int((shares > 0).sum())
    if not n:
        return []
    at = np.unravel_index(int(shares.argmax()), shares.shape)
    places = [
        f"{dim} {array[dim].values[i] if dim in array.coords else i}"
        for dim, i in zip(array.dims, at, strict=True)
    ]
    where = f" at {', '.join(places)}" if places else ""
    return [
        f"In {n} of {shares.size} numbers, one document is more than half of what {name} varies by "
        f"({shares.max():.0%}{where}): other documents may say otherwise."
    ]


def is_of_same_documents(left: Result, right: Result) -> bool:
    """Do two results share documents, dealt into the same buckets?

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
    """The variables of a result that have jackknife, without labels that other metrics added.

    Those of metrics whose classes are not registered here are not among them.

    Args:
        result: what was measured.
        block: of the model; the first by default.
        only: a variable, if those of its metric are all that is asked for.
    """
    block = block or next(iter(result.blocks))
    data = result.block(block)
    metrics, axes = registered_metrics_of(result), axes_of(result)
    if only is not None:
        metrics = tuple(m for m in metrics if only in {v.name for v in m.variables()})
    states = result.states[block]
    measured = {m.name: state_of(states[m.name]) for m in metrics if m.name in states}
    jackknife = {
        name: _dense(of_parts, axes.buckets_per_group)
        for name, of_parts in block_jackknives(measured, metrics, axes, axes.units).items()
    }
    labeled = {}
    for metric in metrics:
        labels = metric.coordinates(axes)
        for name in (variable.name for variable in metric.variables()):
            if name in jackknife and name in data:
                here = {d: list(labels[d]) for d in map(str, data[name].dims) if d in labels}
                labeled[name] = Labeled(data[name].sel(here), jackknife[name])
    return labeled


def _averaged(labeled: Labeled) -> Labeled:
    """The mean over heads."""
    heads = tuple(labeled.array.dims.index(dim) for dim in HEADS)
    return Labeled(labeled.array.mean(HEADS), labeled.jackknife.mean(heads))


def _dense(jackknife: Jackknife, n: int) -> Jackknife:
    """With all `n` buckets, also those after the last that holds documents: two sides are paired."""
    more = [(0, n - len(jackknife.deltas)), *[(0, 0)] * (jackknife.deltas.ndim - 1)]
    return (
        jackknife
        if len(jackknife.deltas) == n
        else jackknife.changed(jackknife.value, lambda array: np.pad(array, more))
    )


def _not_comparable(left: Result, right: Result) -> set[str]:
    """Variables that would differ merely because more was measured on one side."""
    return {
        variable.name
        for metric in registered_metrics_of(left)
        if metric.depends_on_count and _count(left, metric.name) != _count(right, metric.name)
        for variable in metric.variables()
    }


def _warn_of_unregistered(left: Result, right: Result) -> None:
    """Name the metrics that both results have and this process does not know."""
    both = [{str(m["name"]) for m in result.provenance["metrics"]} for result in (left, right)]
    known = [{m.name for m in registered_metrics_of(result)} for result in (left, right)]
    unregistered = sorted((both[0] & both[1]) - (known[0] & known[1]))
    if unregistered:
        warn(
            f"Not compared: {', '.join(unregistered)}, measured by classes that are not registered "
            "here. Define them and call headscope.register_metric(the class) first."
        )


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
