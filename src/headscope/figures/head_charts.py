"""Charts of heads: variables with one value per head, the map of heads, exemplars.

Titles, units and papers of variables come from the attributes that their metrics wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.figures.chart_data import (
    ModelResults,
    describe,
    figure_of,
    measured_elsewhere,
    numbers,
    rounded,
)
from headscope.figures.chart_types import Arc, Figure, HeadValues, MapPanel, VariableEntry
from headscope.heads.head_map import HeadMap
from headscope.heads.roles import corpus_roles, name_heads, of_probes
from headscope.results.display import display_of, is_shown, label_of
from headscope.results.result import Exemplar, Result

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


def variable_entry(subjects: Sequence[ModelResults], variable: HeadVariable) -> VariableEntry:
    """Return the values of one variable for all subjects, with its titles."""
    display = describe(subjects, variable.name)
    return {
        "id": variable.id,
        "name": variable.name,
        "group": display.title,
        "label": variable.label,
        "units": display.units,
        "share": display.is_share,
        "paper": display.paper,
        "meaning": display.meaning,
        "values": [values_of(subject, variable) for subject in subjects],
    }


def heads_figure(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return all variables over layer and head, one shown at a time."""
    variables = [variable_entry(subjects, variable) for variable in head_variables(subjects)]
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
        roles=[_corpus_roles(subject) for subject in subjects],
    )


def _corpus_roles(subject: ModelResults) -> list[list[str]] | None:
    data = subject.data("class_share")
    roles = None if data is None else corpus_roles(data)
    return None if roles is None else [[str(role) for role in row] for row in roles["role"].values]


def roles_of(subject: ModelResults) -> list[list[str]] | None:
    """`layer head`: what each head does; None where that was not measured."""
    result = subject.result("offset_share")
    if result is None:
        return None
    try:
        names = name_heads(result, probes=of_probes(subject.results))
    except InputError:  # some surface metric is missing
        return None
    return [[str(name) for name in row] for row in names.values]


def map_panel(heads: HeadMap, subject: int = 0) -> MapPanel:
    """Return the heads of a map, by their places, roles and clusters."""
    data = heads.data
    same, different = heads.layer_spread()
    panel: MapPanel = {
        "subject": subject,
        "layer": [int(n) for n in data["layer"].values],
        "head": [int(n) for n in data["head"].values],
        "x": numbers(data["x"]),
        "y": numbers(data["y"]),
        "role": [str(name) for name in data["role"].values],
        "cluster": [int(n) for n in data["cluster"].values],
        "note": (
            f"stress {heads.stress:.2f}; mean JS {same:.3f} in a layer, "
            f"{different:.3f} between layers"
        ),
    }
    if "effect" in data:
        panel["effect"] = numbers(data["effect"])
    return panel


def map_figure(subjects: Sequence[ModelResults], maps: Mapping[int, HeadMap]) -> Figure | None:
    """Return heads in the plane, near where they attend alike (Clark et al.'s Figure 6)."""
    panels = [map_panel(heads, number) for number, heads in maps.items()]
    if not panels:
        return None
    sizes = (
        " The larger a point, the more the loss per predicted token changes without the head "
        "(rises or falls)." + measured_elsewhere(subjects, "effect")
    )
    return figure_of(
        "map",
        "map",
        "The map of heads",
        "Heads that attend alike lie near one another: metric multidimensional scaling of their "
        "Jensen-Shannon divergence, averaged over tokens. Stress says how much the plane distorts "
        "the divergence: 0 is not at all, above 0.2 is much."
        + measured_elsewhere(subjects, "js")
        + sizes * any("effect" in panel for panel in panels),
        equation="js",
        paper="Clark et al. 2019, section 6, Figure 6",
        panels=panels,
    )


PER_CARD = 3
AROUND = 20
"""Tokens shown on either side of an arc where a document is shown in part."""
LONGEST = 80
"""Tokens up to which a document is shown whole."""


class Documents:
    """Token lists that arcs refer to by number, each stored once."""

    def __init__(self) -> None:
        self.tokens: list[list[str]] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def add(self, tokens: tuple[str, ...]) -> int:
        """Store these tokens, if they are new, and return their number."""
        if tokens not in self._numbers:
            self._numbers[tokens] = len(self.tokens)
            self.tokens.append(list(tokens))
        return self._numbers[tokens]

    def arcs(self, result: Result | None, layer: int, head: int, n: int = PER_CARD) -> list[Arc]:
        """Return the highest weights of a head; empty without a result."""
        found = [] if result is None else result.exemplars(layer, head)
        return [self.arc(exemplar) for exemplar in found[:n]]

    def arc(self, exemplar: Exemplar) -> Arc:
        """An exemplar as an arc. Of a long document, only the part around it is stored."""
        query, key = exemplar.query, exemplar.key
        if exemplar.query_tokens != exemplar.key_tokens:  # cross-attention
            tokens = (*exemplar.query_tokens, "⏐", *exemplar.key_tokens)
            key += len(exemplar.query_tokens) + 1
        else:
            tokens = exemplar.query_tokens
        start = stop = 0
        if len(tokens) > LONGEST:
            start = max(0, min(query, key) - AROUND)
            stop = min(len(tokens), max(query, key) + AROUND + 1)
            if stop - start > LONGEST * 2:
                start = stop = 0
        shown = tokens[start:stop] if stop else tokens
        return {
            "weight": rounded(exemplar.weight),
            "document": self.add(tuple(shown)),
            "query": query - start,
            "key": key - start,
        }


def exemplar_figure(
    subjects: Sequence[ModelResults],
    chosen: Mapping[int, Mapping[tuple[int, int], str]],
    documents: Documents,
) -> Figure | None:
    """Return the highest weights of notable heads, as arcs; `documents` takes their tokens."""
    panels = []
    for number, heads in chosen.items():
        shown = [
            {"layer": layer, "head": head, "why": why, "exemplars": arcs}
            for (layer, head), why in heads.items()
            if (arcs := documents.arcs(subjects[number].result("exemplar_weight"), layer, head))
        ]
        if shown:
            panels.append({"subject": number, "heads": shown})
    if not panels:
        return None
    return figure_of(
        "exemplars",
        "exemplars",
        "Heads at work",
        "The documents in which a head pays its highest weights to a single token, null attention "
        "left out: an arc from the query to the key, one for each document. They show what a head "
        "can do at its strongest, not what it does on average.",
        paper="Vig & Belinkov 2019, section 5.4, Tables 1-3",
        panels=panels,
    )
