"""The variables of heads: which there are, what they are called, their values as plain lists.

What a variable is called stands in its attributes, where its metric wrote it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headscope.reporting.subjects import Subject
from headscope.results.described import Described, described, is_shown, label_of

MOST_LABELS = 120


@dataclass(frozen=True, slots=True)
class Variable:
    """One value per head: a variable of a result, at one label of its other axes."""

    name: str
    labels: Mapping[str, Any]

    @property
    def id(self) -> str:
        """`pos_to:NOUN`."""
        return ":".join([self.name, *(str(label) for label in self.labels.values())])

    @property
    def label(self) -> str:
        """`To each tag: NOUN`, without the name where a group shows it."""
        return ", ".join(label_of(dim, label) for dim, label in self.labels.items())


def head_variables(subjects: Sequence[Subject]) -> list[Variable]:
    """Every variable over layer and head that some subject has, as their metrics order them."""
    variables: dict[str, tuple[int, Variable]] = {}
    for subject in subjects:
        for result in subject.results:
            for variable in _variables_of(result.dataset):
                order = described(result.dataset[variable.name]).order
                variables.setdefault(variable.id, (order, variable))
    return [variable for _, variable in sorted(variables.values(), key=lambda item: item[0])]


def _variables_of(data: xr.Dataset) -> Iterator[Variable]:
    for key, array in data.data_vars.items():
        name = str(key)
        if not {"layer", "head"} <= set(map(str, array.dims)) or not is_shown(array):
            continue
        others = [str(dim) for dim in array.dims if dim not in ("layer", "head")]
        if any(dim not in data.coords for dim in others):
            continue
        labels = itertools.product(*(data[dim].values.tolist() for dim in others))
        for values in itertools.islice(labels, MOST_LABELS):
            chosen = dict(zip(others, values, strict=True))
            if np.isfinite(array.sel(chosen).values).any():
                yield Variable(name, chosen)


def values_of(subject: Subject, variable: Variable) -> dict[str, Any] | None:
    """The values of all heads with their intervals, as `layer head` lists; None without."""
    data = subject.data(variable.name)
    if data is None:
        return None
    array = data[variable.name]
    known = all(
        dim in array.dims and label in array[dim].values.tolist()
        for dim, label in variable.labels.items()
    )
    if not known:
        return None
    values = {"value": numbers(array.sel(variable.labels).transpose("layer", "head"))}
    if f"{variable.name}_interval" in data:
        bounds = data[f"{variable.name}_interval"].sel(variable.labels)
        bounds = bounds.transpose("bound", "layer", "head")
        values |= {"low": numbers(bounds[0]), "high": numbers(bounds[1])}
    return values


def describe(subjects: Sequence[Subject], name: str) -> Described:
    """What the first result that has a variable says of it."""
    arrays = (data[name] for s in subjects if (data := s.data(name)) is not None)
    return described(next(arrays, xr.DataArray()), name)


def numbers(array: Any) -> Any:
    """Nested lists of numbers with six digits that matter; None for NaN."""
    values = np.asarray(getattr(array, "values", array), dtype=np.float64)
    if values.ndim == 0:
        value = float(values)
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return [numbers(part) for part in values]
