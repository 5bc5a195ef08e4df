"""`Result.explain`: everything that was measured about one head, on one page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.heads.behavior import OTHER, SURFACE, behaviors, probed_names
from headscope.heads.card import Evidence, HeadCard
from headscope.heads.head_map import HeadMap, nearest
from headscope.results.result import Result

__all__ = ["explain_head", "explain_heads"]

SINGLE = (
    ("row_entropy", "Entropy of its rows", "nats"),
    ("first_entropy", "Entropy from the first token", "nats"),
    ("entropy", "Entropy without null attention", "nats"),
    ("distance", "Mean distance", "tokens"),
    ("null_share", "Null attention", ""),
    ("sep_from_other", "To separators, from other tokens", ""),
    ("sink_rate", "First token is a sink", "of documents"),
    ("induction", "To what followed the same token", ""),
    ("duplicate_token", "To the same token, earlier", ""),
    ("variability", "Variability with the text", ""),
)
LABELED = (
    ("offset_share", ("offset",), "Attention by position", 3),
    ("class_share", ("key_class",), "Attention by class of key", 6),
    ("pos_to", ("tag",), "Tags it attends to", 3),
    ("pos_from", ("tag",), "Tags it attends from", 3),
    ("dep_type_to", ("relation",), "Relations of its keys", 3),
    ("dep_alignment", ("parent",), "Attention along dependencies", 3),
    ("accuracy", ("relation", "direction"), "Relations it finds, of their cases", 3),
    ("coref_accuracy", ("mention_kind",), "Antecedents it finds, of their mentions", 4),
    ("importance", ("gradient_class",), "Mean |∂L/∂a| by class of key", 6),
    ("removal_estimate", ("gradient_class",), "Estimated rise of the loss if removed", 6),
)
OFFSET_NAMES = {"-1": "previous", "0": "itself", "1": "next"}


def explain_head(
    results: Result | Iterable[Result],
    layer: int,
    head: int,
    *,
    heads: HeadMap | None = None,
    n_exemplars: int = 3,
) -> HeadCard:
    """Everything measured about one head, on one page.

    Args:
        results: one result, or several of the same model (`analyze`, `importance`, probes).
        layer: 0-based.
        head: 0-based.
        heads: a map, for the nearest heads; without it they are taken from `js` if there.
        n_exemplars: how many of its highest weights to show.
    """
    given = _given(results)
    _check_head(given[0].dataset, layer, head)
    return _card(_Table(given), heads, layer, head, n_exemplars)


def explain_heads(
    results: Result | Iterable[Result], *, heads: HeadMap | None = None, n_exemplars: int = 3
) -> Iterator[HeadCard]:
    """The cards of all heads, layer by layer; heads are ranked once, not for each card."""
    given = _given(results)
    table = _Table(given)
    data = given[0].dataset
    for layer in data["layer"].values if "layer" in data.coords else ():
        for head in data["head"].values:
            yield _card(table, heads, int(layer), int(head), n_exemplars)


def _given(results: Result | Iterable[Result]) -> list[Result]:
    given = [results] if isinstance(results, Result) else list(results)
    if not given:
        raise InputError("There is no result to explain a head from: give at least one.")
    models = {result.model for result in given}
    if len(models) > 1:
        raise InputError(f"These results are of different models: {', '.join(sorted(models))}.")
    return given


def _check_head(data: xr.Dataset, layer: int, head: int) -> None:
    for what, value in (("layer", layer), ("head", head)):
        if what not in data.coords or value not in data[what].values:
            known = f"0 to {int(data[what].max())}" if what in data.coords else "none"
            raise InputError(f"There is no {what} {value} in this result: expected {known}.")


@dataclass(frozen=True, slots=True)
class _Column:
    """One number for each head, and the rank of each head by it."""

    what: str
    units: str
    values: np.ndarray
    ranks: np.ndarray
    n: int
    baseline: tuple[float, str] | None = None

    @classmethod
    def of(
        cls, what: str, units: str, values: np.ndarray, baseline: tuple[float, str] | None = None
    ) -> _Column:
        known = np.sort(values[np.isfinite(values)])
        ranks = 1 + len(known) - np.searchsorted(known, values, side="right")
        return cls(what, units, values, ranks, len(known), baseline)

    def size(self, row: int, head: int) -> float:
        """What columns are ordered by: the value, or how far it is above its baseline."""
        value = float(self.values[row, head])
        if np.isnan(value):
            return -np.inf
        return abs(value) if self.baseline is None else value - self.baseline[0]

    def evidence(self, row: int, head: int) -> Evidence | None:
        value = float(self.values[row, head])
        if np.isnan(value):
            return None
        shown = f"{value:.3f}" if abs(value) >= 0.0005 or value == 0 else f"{value:.1e}"
        place = f"{_ordinal(int(self.ranks[row, head]))} of {self.n}"
        if self.baseline is not None:
            place += f"; {self.baseline[1]}"
        return Evidence(self.what, f"{shown} {self.units}".strip(), place)


class _Table:
    """What a model's results say of all heads, ranked once."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = results
        self.single: list[tuple[list[int], _Column]] = []
        self.labeled: list[tuple[list[int], str, int, list[_Column]]] = []
        seen: set[str] = set()  # of what several results measured, the first counts
        for result in results:
            data = result.dataset
            layers = [int(n) for n in data["layer"].values] if "layer" in data.coords else []
            for name, what, units in SINGLE:
                if name in data and name not in seen:
                    values = data[name].transpose("layer", "head").values
                    self.single.append((layers, _Column.of(what, units, values)))
            for name, dims, topic, n in LABELED:
                if name in data and name not in seen and set(dims) <= set(data[name].dims):
                    array = data[name].transpose("layer", "head", *dims)
                    if dims == ("key_class",):
                        array = array.isel(key_class=_distinct(array.values))
                    labels = itertools.product(*(array[dim].values.tolist() for dim in dims))
                    flat = array.values.reshape(*array.shape[:2], -1)
                    columns = [
                        _Column.of(
                            _label(dims, label), "", flat[..., i], _baseline(data, name, label)
                        )
                        for i, label in enumerate(labels)
                    ]
                    self.labeled.append((layers, topic, n, columns))
            seen.update(map(str, data.data_vars))
        self.behaviors = next(
            (behaviors(result) for result in results if all(name in result for name in SURFACE)),
            None,
        )

        probes = [r for r in results if "accuracy" in r or "coref_accuracy" in r]
        self.best_at = probed_names(probes)

    def topics(self, layer: int, head: int) -> dict[str, list[Evidence]]:
        """Evidence on one head by topic."""
        topics: dict[str, list[Evidence]] = {}
        for layers, column in self.single:
            if layer in layers and (evidence := column.evidence(layers.index(layer), head)):
                topics.setdefault("In short", []).append(evidence)
        for layers, topic, n, columns in self.labeled:
            if layer not in layers:
                continue
            row = layers.index(layer)
            for column in sorted(columns, key=lambda c: -c.size(row, head))[:n]:
                is_worse = column.baseline is not None and column.size(row, head) <= 0
                evidence = None if is_worse else column.evidence(row, head)
                if evidence is not None:
                    topics.setdefault(topic, []).append(evidence)
        return topics

    def summary(self, layer: int, head: int) -> str:
        """What the head does, in a sentence or two."""
        if (layer, head) in self.best_at:
            best = f" The best head for {self.best_at[layer, head]}."
        else:
            best = ""
        if self.behaviors is None:
            unknown = "Not measured: the surface metrics that would name its behavior."
            return best.strip() or unknown
        name = str(self.behaviors.sel(layer=layer, head=head).item())
        what = {
            "previous token": "Attends to the token before it.",
            "next token": "Attends to the next token.",
            "broad": "Attends broadly, almost evenly, to everything in sight.",
            OTHER: "Follows no simple pattern of position or delimiter.",
        }
        return what.get(name, f"Rests on {name}.") + best


def _card(
    table: _Table, heads: HeadMap | None, layer: int, head: int, n_exemplars: int
) -> HeadCard:
    return HeadCard(
        layer,
        head,
        table.results[0].model,
        table.summary(layer, head),
        tuple((topic, tuple(rows)) for topic, rows in table.topics(layer, head).items()),
        _nearest(table.results, heads, layer, head),
        tuple(
            str(exemplar)
            for result in table.results
            if n_exemplars and "exemplar_weight" in result
            for exemplar in result.exemplars(layer, head)[:n_exemplars]
        ),
    )


def _baseline(data: xr.Dataset, name: str, label: Sequence[object]) -> tuple[float, str] | None:
    """What a rule without attention reaches, for a probe's accuracy: a number, and in words."""
    if name == "accuracy" and "baseline" in data:
        offset = float(data["baseline"].sel(relation=label[0]))
        return None if np.isnan(offset) else (offset, f"best offset {offset:.3f}")
    if name == "coref_accuracy" and "coref_baseline" in data:
        rules = data["coref_baseline"].sel(mention_kind=label[0])
        match, sieves = (float(rules.sel(rule=rule)) for rule in ("head_match", "sieves"))
        if not np.isnan(match):
            return match, f"head match {match:.3f}, sieves {sieves:.3f}"
    return None


def _distinct(values: np.ndarray) -> list[int]:
    """The columns that do not repeat a later one: the first token may be [CLS]."""
    last = range(values.shape[-1])
    return [
        i
        for i in last
        if not any(
            np.array_equal(values[..., i], values[..., j], equal_nan=True) for j in last[i + 1 :]
        )
    ]


def _label(dims: Sequence[str], labels: Sequence[object]) -> str:
    names = [
        OFFSET_NAMES.get(str(label), str(label)) if dim == "offset" else str(label)
        for dim, label in zip(dims, labels, strict=True)
    ]
    return names[0] if len(names) == 1 else f"{names[0]} ({', '.join(names[1:])})"


def _nearest(
    results: Sequence[Result], heads: HeadMap | None, layer: int, head: int
) -> tuple[tuple[int, int, float], ...]:
    if heads is not None:
        return tuple(heads.nearest(layer, head))
    for result in results:
        if "js" in result:
            js = result["js"]
            n_layers, n_heads = js.shape[:2]
            coords = result.dataset.coords
            names = coords["layer"].values if "layer" in coords else np.arange(n_layers)
            at = [(int(name), number) for name in names for number in range(n_heads)]
            apart = js.values[names.tolist().index(layer), head].ravel()
            return tuple(nearest(apart, at, at.index((layer, head))))
    return ()


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
