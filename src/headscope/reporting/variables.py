"""The variables that have a value for each head, with their names and their values as plain lists.

A metric writes the names of its variables into their attributes; they are read from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np
import xarray as xr

from headscope.reporting.subjects import Subject
from headscope.results.described import Described, described, is_shown, label_of

MOST_LABELS = 120
Number: TypeAlias = float | None
"""None stands for NaN, which JSON does not have."""
Numbers: TypeAlias = "list[Number] | list[Numbers]"


class HeadValues(TypedDict, total=False):
    """`layer head`: the values of all heads, with the bounds of their intervals."""

    value: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True, slots=True)
class Variable:
    """One value per head: a variable of a result, at one label of its other axes."""

    name: str
    labels: Mapping[str, object]

    @property
    def id(self) -> str:
        """`pos_to:NOUN`."""
        return ":".join([self.name, *(str(label) for label in self.labels.values())])

    @property
    def label(self) -> str:
        """The labels in words: `the previous token`; empty for a variable without labels."""
        return ", ".join(label_of(dim, label) for dim, label in self.labels.items())


def head_variables(subjects: Sequence[Subject]) -> list[Variable]:
    """Every variable over layer and head that any subject has, in the order metrics give them."""
    variables: dict[str, tuple[int, Variable]] = {}
    for subject in subjects:
        for result in subject.results:
            for order, variable in _variables_of(result.dataset):
                variables.setdefault(variable.id, (order, variable))
    return [variable for _, variable in sorted(variables.values(), key=lambda ordered: ordered[0])]


def _variables_of(data: xr.Dataset) -> Iterator[tuple[int, Variable]]:
    """Each with its place in lists. A dataset's bare `variables` are looked up many times faster
    than its labeled arrays.
    """
    for key in data.data_vars:
        array, name = data.variables[key], str(key)
        if not {"layer", "head"} <= set(map(str, array.dims)) or not is_shown(array):
            continue
        others = [str(dim) for dim in array.dims if dim not in ("layer", "head")]
        if any(dim not in data.coords for dim in others):
            continue
        order = described(array, name).order
        labels = itertools.product(*(enumerate(_labels(data, dim)) for dim in others))
        for places in itertools.islice(labels, MOST_LABELS):
            chosen = dict(zip(others, places, strict=True))
            if np.isfinite(array.isel({dim: at for dim, (at, _) in chosen.items()}).values).any():
                yield order, Variable(name, {dim: label for dim, (_, label) in chosen.items()})


def _labels(data: xr.Dataset, dim: str) -> list[object]:
    labels: list[object] = data.variables[dim].values.tolist()
    return labels


def values_of(subject: Subject, variable: Variable) -> HeadValues | None:
    """The values of all heads with their intervals; None where the subject has none."""
    data = subject.data(variable.name)
    if data is None:
        return None
    array = data.variables[variable.name]
    known = all(
        dim in array.dims and label in _labels(data, dim) for dim, label in variable.labels.items()
    )
    if not known:
        return None
    at = {dim: _labels(data, dim).index(label) for dim, label in variable.labels.items()}
    values: HeadValues = {"value": numbers(array.isel(at).transpose("layer", "head").values)}
    if f"{variable.name}_interval" in data:
        bounds = data.variables[f"{variable.name}_interval"].isel(at)
        low, high = bounds.transpose("bound", "layer", "head").values
        values["low"], values["high"] = numbers(low), numbers(high)
    return values


def describe(subjects: Sequence[Subject], name: str) -> Described:
    """What the first result that has a variable says about it."""
    arrays = (data.variables[name] for s in subjects if (data := s.data(name)) is not None)
    return described(next(arrays, xr.Variable((), np.nan)), name)


def parent_label(array: xr.DataArray) -> dict[str, str]:
    """Which of two related words is the parent: either, where a variable tells them apart."""
    return {"parent": "either"} if "parent" in array.dims else {}


def rounded(value: float) -> Number:
    """A number with six significant digits; None for NaN and infinity."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def numbers(array: np.ndarray | xr.DataArray) -> Numbers:
    """Lists of numbers, nested as the array's axes are."""
    values = np.asarray(array, dtype=np.float64)
    if values.ndim == 1:
        return [rounded(value) for value in values.tolist()]
    return [numbers(part) for part in values]
