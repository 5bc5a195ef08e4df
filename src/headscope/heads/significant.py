"""Heads above a threshold, a baseline or another result, corrected for testing all heads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.metrics.core.finalize import HEADS
from headscope.metrics.core.registry import metric_from_dict
from headscope.results.display import Table, Value, display_of, label_of
from headscope.results.result import Result, check_labels
from headscope.run.compare import (
    Labeled,
    caution,
    dominated,
    driven_by_one,
    is_of_same_documents,
    labeled_jackknives,
)
from headscope.run.merge import check_results
from headscope.statistics.differences import paired, unpaired
from headscope.statistics.intervals import interval, p_above
from headscope.statistics.jackknife import Jackknife
from headscope.statistics.multiple_testing import benjamini_hochberg


@dataclass(frozen=True, slots=True)
class SignificantHead:
    """One head of a list."""

    layer: int
    head: int
    value: float
    interval: tuple[float, float]
    """95 %, over documents."""
    p: float
    p_adjusted: float
    """Corrected for all heads that were tested."""


@dataclass(frozen=True)
class SignificantHeads(Table):
    """Heads, those with the largest value (or difference) first; `print` it."""

    _left = ("value", "95 % interval", "p, adjusted")
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
        return f"{self._heading}. 95 % intervals over documents."

    @property
    def _note(self) -> str:
        return self.caution

    def _columns(self) -> list[str]:
        return ["layer", "head", "value", "low", "high", "p", "p_adjusted"]

    def records(self) -> list[dict[str, Value]]:
        """Return one row for each head."""
        rows = [(r.layer, r.head, r.value, *r.interval, r.p, r.p_adjusted) for r in self.rows]
        return [dict(zip(self._columns(), row, strict=True)) for row in rows]

    def _cells(self) -> list[list[str]]:
        """Return the headings, then one row for each head."""
        rows = [
            [
                f"L{row.layer} H{row.head}",
                f"{row.value:.3f}",
                f"[{row.interval[0]:.3f}, {row.interval[1]:.3f}]",
                f"{row.p_adjusted:.2g}",
            ]
            for row in self.rows
        ]
        return [["head", "value", "95 % interval", "p, adjusted"], *rows]


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
    labeled = _of_heads(known, name, labels)
    called = display_of(labeled.array).title
    if labels:
        called += f" ({', '.join(label_of(*label) for label in labels.items())})"
    if isinstance(against, Result):
        check_results(against=against)
        theirs = _of_heads(labeled_jackknives(against, block), name, labels)
        if theirs.array.sizes != labeled.array.sizes:
            raise InputError(
                f"{result.model} has {_size(labeled)} and {against.model} {_size(theirs)}: heads "
                "can be compared one by one where both have as many. result.compare has the means."
            )
        is_paired = is_of_same_documents(result, against)
        difference = (paired if is_paired else unpaired)(labeled.jackknife, theirs.jackknife)
        title = f"{called} of {result.model} minus {against.model}"
        differences = labeled.array.copy(data=difference.value)
        said = caution(
            name, labeled.array, labeled.jackknife, theirs.jackknife, is_paired=is_paired
        )
        return _listed(title, differences, difference.bounds, difference.p, level, said)
    if isinstance(against, str):
        compared = labeled.jackknife - _rival(known, labeled, against, labels)
        is_mean = against == "mean"
        rival = "its mean over heads" if is_mean else display_of(known[against].array).title
        p = p_above(compared)
    else:
        if labeled.jackknife.scale == "logit" and not 0 <= against <= 1:
            raise InputError(
                f"against={against:g}, but {name} is a share: expected a number from 0 to 1."
            )
        compared, rival = labeled.jackknife, f"{against:g}"
        p = p_above(compared, float(against))
    bounds = interval(labeled.jackknife).bounds
    said = [*dominated(name, [labeled.jackknife]), *driven_by_one(name, labeled.array, [compared])]
    return _listed(f"{called} above {rival}", labeled.array, bounds, p, level, said)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return math.isfinite(value)


def _of_heads(known: dict[str, Labeled], name: str, labels: dict[str, str | int]) -> Labeled:
    if name not in known:
        raise UnknownName.of("variable with intervals", name, known)
    array = known[name].array
    check_labels(array, labels, array.dims, f"axis of {name}")
    labeled = _at(known[name], labels)
    others = [str(dim) for dim in labeled.array.dims if dim not in HEADS]
    if others or not {*HEADS} <= {*labeled.array.dims}:
        raise InputError(
            f"{name} has the axes {', '.join(map(str, labeled.array.dims))}: expected layer and "
            "head" + (f"; give a label of {', '.join(others)}." if others else ".")
        )
    return labeled


def _at(labeled: Labeled, labels: dict[str, str | int]) -> Labeled:
    """A variable at a label of some of its axes."""
    array, jackknife = labeled.array, labeled.jackknife
    for axis, label in labels.items():
        number = array[axis].values.tolist().index(label)
        jackknife = jackknife.at(*[slice(None)] * array.dims.index(axis), number)
        array = array.sel({axis: label})
    return Labeled(array, jackknife)


def _rival(
    known: dict[str, Labeled], labeled: Labeled, name: str, labels: dict[str, str | int]
) -> Jackknife:
    """Return the value that each head is compared with, over the same documents."""
    if name == "mean":
        return labeled.jackknife.mean((0, 1)).at(None, None)
    if name not in known:
        raise UnknownName.of("variable to compare with", name, ["mean", *known])
    dims = known[name].array.dims
    rival = _at(known[name], {axis: labels[axis] for axis in labels if axis in dims})
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
    p: np.ndarray,
    level: float,
    cautions: list[str],
) -> SignificantHeads:
    adjusted = benjamini_hochberg(p)
    layers, heads, values = array["layer"].values, array["head"].values, array.values
    with np.errstate(invalid="ignore"):
        places = np.argwhere(adjusted < level)
    rows = [
        SignificantHead(
            int(layers[i]),
            int(heads[j]),
            float(values[i, j]),
            (float(bounds[0, i, j]), float(bounds[1, i, j])),
            float(p[i, j]),
            float(adjusted[i, j]),
        )
        for i, j in places
    ]
    n = int(np.isfinite(p).sum())
    untested = int(np.isfinite(values).sum()) - n
    if untested > 0:
        cautions = [f"Not tested, for too few documents: {untested} heads.", *cautions]
    correction = f"Benjamini–Hochberg over {n} heads, level {level:g}"
    rows.sort(key=lambda row: -abs(row.value))
    return SignificantHeads(title, correction, n, tuple(rows), " ".join(cautions))


def _size(labeled: Labeled) -> str:
    return " × ".join(f"{labeled.array.sizes[dim]} {dim}s" for dim in HEADS)
