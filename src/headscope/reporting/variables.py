"""The variables of heads: what to call them, and their values as plain lists.

Names and equations of our own metrics stand here; a variable of somebody else's metric is
shown by what its attributes say of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from headscope.reporting.subjects import Subject
from headscope.reporting.wording import is_share_of

__all__ = [
    "NAMES",
    "PARENTS",
    "Variable",
    "describe",
    "head_variables",
    "label_of",
    "name_of",
    "numbers",
    "values_of",
]

NAMES = {
    "null_share": "Null attention",
    "dep_alignment": "Attention along dependencies",
    "distance": "Mean distance",
    "entropy": "Entropy without null attention",
    "variability": "Variability with the text",
    "offset_share": "Attention by position",
    "class_share": "Attention by class of key",
    "sink_rate": "First token is a sink",
    "row_entropy": "Entropy of whole rows",
    "first_entropy": "Entropy from the first token",
    "sep_from_sep": "Separators to separators",
    "sep_from_other": "Other tokens to separators",
    "induction": "To what followed the same token",
    "duplicate_token": "To the same token, earlier",
    "pos_to": "To each tag",
    "pos_from": "From each tag",
    "dep_type_to": "To words of each relation",
    "accuracy": "Finds the relation",
    "accuracy_visible": "Finds the relation, of what it can see",
    "coref_accuracy": "Finds the antecedent",
    "importance": "Gradient |∂L/∂a| by class of key",
    "removal_estimate": "Estimated rise of the loss if removed",
}
PARENTS = {
    "query": "the query is the parent",
    "key": "the key is the parent",
    "either": "either is the parent",
}
OFFSETS = {"-1": "the previous token", "0": "itself", "1": "the next token"}
DIRECTIONS = {"dependent": "dependent → head", "head": "head → dependent"}
AUXILIARY = ("_interval", "_count", "_mean", "_by_layer", "_p")
HIDDEN = ("exemplar_weight", "exemplar_document", "exemplar_query", "exemplar_key")
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


def name_of(name: str) -> str:
    """A variable as people call it."""
    return NAMES.get(name, name.replace("_", " ").capitalize())


def label_of(dim: str, label: Any) -> str:
    """A label of an axis as people call it."""
    known = {"parent": PARENTS, "offset": OFFSETS, "direction": DIRECTIONS}.get(dim, {})
    if dim in ("key_class", "gradient_class") and str(label) == "first":
        return "the first token"
    return known.get(str(label), str(label))


def head_variables(subjects: Sequence[Subject]) -> list[Variable]:
    """Every variable over layer and head that some subject has, ours first, in our order."""
    found: dict[str, Variable] = {}
    for subject in subjects:
        for result in subject.results:
            for variable in _variables_of(result.dataset):
                found.setdefault(variable.id, variable)
    order = {name: number for number, name in enumerate(NAMES)}
    return sorted(found.values(), key=lambda v: order.get(v.name, len(order)))


def _variables_of(data: xr.Dataset) -> Iterator[Variable]:
    for key, array in data.data_vars.items():
        name = str(key)
        is_ours = {"layer", "head"} <= set(map(str, array.dims)) and name not in HIDDEN
        if not is_ours or name.endswith(AUXILIARY) or array.dtype.kind not in "fiu":
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
    found = {"value": numbers(array.sel(variable.labels).transpose("layer", "head"))}
    if f"{variable.name}_interval" in data:
        bounds = data[f"{variable.name}_interval"].sel(variable.labels)
        bounds = bounds.transpose("bound", "layer", "head")
        found |= {"low": numbers(bounds[0]), "high": numbers(bounds[1])}
    return found


def describe(subjects: Sequence[Subject], variable: Variable) -> dict[str, Any]:
    """What a variable means: units, paper, meaning, from the attributes of its values."""
    for subject in subjects:
        data = subject.data(variable.name)
        if data is not None:
            attrs = data[variable.name].attrs
            units = str(attrs.get("units", ""))
            return {
                "units": units,
                "share": is_share_of(units),
                "paper": str(attrs.get("paper", "")),
                "meaning": str(attrs.get("long_name", "")),
            }
    return {"units": "", "share": False, "paper": "", "meaning": ""}


def numbers(array: Any) -> Any:
    """Nested lists of numbers with six digits that matter; None for NaN."""
    values = np.asarray(getattr(array, "values", array), dtype=np.float64)
    if values.ndim == 0:
        value = float(values)
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return [numbers(part) for part in values]
