"""Common fields of figures, variables with one value per head, and the figure of all heads.

Titles, units and papers of variables come from the attributes that their metrics wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import xarray as xr

from headscope.heads.roles import corpus_roles
from headscope.reporting.model_results import ModelResults
from headscope.reporting.report_types import (
    Axis,
    Figure,
    HeadValues,
    MaybeNumber,
    Phrase,
    Section,
    VariableEntry,
)
from headscope.results.display import VariableDisplay, display_of, is_shown, label_of

MAX_LABELS = 120


@dataclass(frozen=True, slots=True)
class HeadVariable:
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


def head_variables(subjects: Sequence[ModelResults]) -> list[HeadVariable]:
    """Every variable over layer and head that any subject has, in the order metrics give them."""
    variables: dict[str, tuple[int, HeadVariable]] = {}
    for subject in subjects:
        for result in subject.results:
            for order, variable in _variables_of(result.dataset):
                variables.setdefault(variable.id, (order, variable))
    return [variable for _, variable in sorted(variables.values(), key=lambda ordered: ordered[0])]


def _variables_of(data: xr.Dataset) -> Iterator[tuple[int, HeadVariable]]:
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
        order = display_of(array, name).order
        labels = itertools.product(*(enumerate(_labels(data, dim)) for dim in others))
        for places in itertools.islice(labels, MAX_LABELS):
            chosen = dict(zip(others, places, strict=True))
            if np.isfinite(array.isel({dim: at for dim, (at, _) in chosen.items()}).values).any():
                yield order, HeadVariable(name, {dim: label for dim, (_, label) in chosen.items()})


def _labels(data: xr.Dataset, dim: str) -> list[object]:
    labels: list[object] = data.variables[dim].values.tolist()
    return labels


def values_of(subject: ModelResults, variable: HeadVariable) -> HeadValues | None:
    """The values of all heads with their intervals; None if the subject lacks the variable."""
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


def describe(subjects: Sequence[ModelResults], name: str) -> VariableDisplay:
    """Return the display of a variable, from the first result that has it."""
    arrays = (data.variables[name] for s in subjects if (data := s.data(name)) is not None)
    return display_of(next(arrays, xr.Variable((), np.nan)), name)


def parent_label(array: xr.DataArray) -> dict[str, str]:
    """Return the label `either` for variables that tell parents from dependents."""
    return {"parent": "either"} if "parent" in array.dims else {}


def rounded(value: float) -> MaybeNumber:
    """A number with six significant digits; None for NaN and infinity."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def numbers(array: np.ndarray | xr.DataArray) -> Any:
    """Lists of numbers, nested as the array's axes are."""
    values = np.asarray(array, dtype=np.float64)
    if values.ndim == 1:
        return [rounded(value) for value in values.tolist()]
    return [numbers(part) for part in values]


def figure_of(
    key: str,
    kind: str,
    title: str,
    caption: Phrase | str,
    *,
    equation: str | None = None,
    paper: str = "",
    **content: object,
) -> Figure:
    """Return a figure: the fields of all figures, then the content of its kind.

    `tests/reporting/test_types.py` checks the content against `report_types`.
    """
    common = {
        "id": key,
        "kind": kind,
        "title": title,
        "caption": [caption] if isinstance(caption, str) else caption,
        "equation": equation,
        "paper": paper,
    }
    return cast("Figure", {**common, **content})


def section(key: str, title: str, figures: Sequence[Figure | None]) -> Section | None:
    """A section of the figures that are not None; None if all are."""
    shown = [figure for figure in figures if figure is not None]
    return {"id": key, "title": title, "text": [], "figures": shown} if shown else None


def axis_of(known: VariableDisplay) -> Axis:
    """The axis of a variable."""
    return {"title": known.title, "units": known.units, "share": known.is_share}


def heads_figure(subjects: Sequence[ModelResults]) -> Figure | None:
    """All variables over layer and head, one shown at a time."""
    variables = [
        _entry(describe(subjects, variable.name), variable, subjects)
        for variable in head_variables(subjects)
    ]
    if not variables:
        return None
    return figure_of(
        "heads",
        "heads",
        "Every head, layer by layer",
        "Rows are layers, columns are heads; all models share one scale. Point at a cell for "
        "its value and 95 % interval; click it, or press Enter, for everything known about the "
        "head.",
        variables=variables,
        roles=[_roles(subject) for subject in subjects],
    )


def _roles(subject: ModelResults) -> list[list[str]] | None:
    """`layer head`: what each head does over the corpus, empty without a name; None where that was
    not measured.
    """
    data = subject.data("class_share")
    roles = None if data is None else corpus_roles(data)
    return None if roles is None else [[str(role) for role in row] for row in roles["role"].values]


def _entry(
    known: VariableDisplay, variable: HeadVariable, subjects: Sequence[ModelResults]
) -> VariableEntry:
    return {
        "id": variable.id,
        "name": variable.name,
        "group": known.title,
        "label": variable.label,
        "units": known.units,
        "share": known.is_share,
        "paper": known.paper,
        "meaning": known.meaning,
        "values": [values_of(subject, variable) for subject in subjects],
    }
