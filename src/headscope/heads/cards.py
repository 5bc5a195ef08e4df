"""`Result.explain`: everything that was measured about one head, on one page.

Everything that was measured about one head, on one page.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import xarray as xr

from headscope.arguments import expect, place_of, whole_number
from headscope.errors import InputError
from headscope.heads.head_map import HeadMap, nearest_in
from headscope.heads.roles import OTHER, SURFACE, behaviors, of_probes, probed_names
from headscope.results.display import VariableDisplay, display_of, is_shown, label_of
from headscope.results.effect_data import result_of_effects
from headscope.results.result import Result


@dataclass(frozen=True, slots=True)
class CardRow:
    """One number about a head, among the other heads."""

    what: str
    value: str
    rank: str
    """Where the head stands among all, from the highest: `3rd of 72`. Beside a probe's accuracy
    also what a baseline reaches."""


@dataclass(frozen=True)
class HeadCard:
    """All evidence on one head. Prints as text; a notebook shows `html()`.

    Attributes:
        layer: 0-based.
        head: 0-based.
        model: its name.
        summary: one sentence.
        evidence: numbers by topic.
        nearest: the heads that attend most alike, with their divergence in nats.
        exemplars: its highest single weights, in words.
    """

    layer: int
    head: int
    model: str
    summary: str
    evidence: tuple[tuple[str, tuple[CardRow, ...]], ...]
    nearest: tuple[tuple[int, int, float], ...]
    exemplars: tuple[str, ...]

    @property
    def name(self) -> str:
        """`L7 H9`."""
        return f"L{self.layer} H{self.head}"

    def __str__(self) -> str:
        lines = [f"{self.name} of {self.model}", self.summary]
        for topic, rows in self.evidence:
            lines += ["", topic]
            width, room = (max(len(x) for x in column) for column in _columns(rows))
            lines += [f"  {row.what:{width}}  {row.value:{room}}  {row.rank}" for row in rows]
        if self.nearest:
            near = ", ".join(f"L{a} H{b} ({js:.3f})" for a, b, js in self.nearest)
            lines += ["", "Nearest heads (Jensen-Shannon divergence, nats)", f"  {near}"]
        if self.exemplars:
            lines += ["", "Highest weights", *(f"  {text}" for text in self.exemplars)]
        return "\n".join(lines)

    def html(self) -> str:
        """The card as a piece of HTML, without scripts; all text is escaped."""
        e = escape
        parts = [
            f'<article class="head-card" id="L{self.layer}H{self.head}">',
            f"<h3>{self.name} <small>{e(self.model)}</small></h3><p>{e(self.summary)}</p>",
        ]
        for topic, rows in self.evidence:
            cells = "".join(
                f"<tr><td>{e(r.what)}</td><td>{e(r.value)}</td><td>{e(r.rank)}</td></tr>"
                for r in rows
            )
            parts.append(f"<h4>{e(topic)}</h4><table>{cells}</table>")
        if self.nearest:
            near = "".join(
                f'<li><a href="#L{a}H{b}">L{a} H{b}</a> {js:.3f} nats</li>'
                for a, b, js in self.nearest
            )
            parts.append(f"<h4>Nearest heads</h4><ul>{near}</ul>")
        if self.exemplars:
            shown = "".join(f"<li>{e(text)}</li>" for text in self.exemplars)
            parts.append(f"<h4>Highest weights</h4><ol>{shown}</ol>")
        return "\n".join([*parts, "</article>"])

    _repr_html_ = html


def _columns(rows: Sequence[CardRow]) -> tuple[list[str], list[str]]:
    return [row.what for row in rows], [row.value for row in rows]


SINGLE = "In short"
"""The topic of variables without labels."""
FEW_LABELS = 8
"""Up to so many labels of a variable are all shown; of more, the highest few."""
MAX_SHOWN = 3


def make_card(
    results: Result | Iterable[Result | xr.DataArray],
    layer: int,
    head: int,
    *,
    heads: HeadMap | None = None,
    n_exemplars: int = 3,
) -> HeadCard:
    """Everything measured about one head, on one page; `Result.explain` says more."""
    given = _given(results)
    _check_head(given[0].dataset, layer, head)
    whole_number("n_exemplars", n_exemplars, 0)
    return _card(RankedTable(given), heads, layer, head, n_exemplars)


def make_all_cards(
    results: Result | Iterable[Result | xr.DataArray],
    *,
    heads: HeadMap | None = None,
    n_exemplars: int = 3,
) -> Iterator[HeadCard]:
    """The cards of all heads, layer by layer; heads are ranked once, not for each card."""
    given = _given(results)
    table = RankedTable(given)
    data = given[0].dataset
    for layer in data["layer"].values if "layer" in data.coords else ():
        for head in data["head"].values:
            yield _card(table, heads, int(layer), int(head), n_exemplars)


def _given(results: Result | Iterable[Result | xr.DataArray]) -> list[Result]:
    listed = [results] if isinstance(results, Result | xr.DataArray) else list(results)
    given = [result_of_effects(r) if isinstance(r, xr.DataArray) else r for r in listed]
    for result in given:
        expect("results", result, Result, "results of headscope.analyze or headscope.open")
    if not given:
        raise InputError("There is no result to explain a head from: give at least one.")
    models = {result.model for result in given}
    if len(models) > 1:
        raise InputError(f"These results are of different models: {', '.join(sorted(models))}.")
    return given


def _check_head(data: xr.Dataset, layer: int, head: int) -> None:
    for what, value in (("layer", layer), ("head", head)):
        place_of(what, value, data[what].values.tolist() if what in data.coords else [])


@dataclass(frozen=True, slots=True)
class RankedVariable:
    """One number for each head, and the rank of each head by it."""

    what: str
    known: VariableDisplay
    values: np.ndarray
    ranks: np.ndarray
    n: int
    baseline: tuple[float, str] | None = None

    @classmethod
    def of(
        cls,
        what: str,
        known: VariableDisplay,
        values: np.ndarray,
        baseline: tuple[float, str] | None = None,
    ) -> RankedVariable:
        measured = np.sort(values[np.isfinite(values)])
        ranks = 1 + len(measured) - np.searchsorted(measured, values, side="right")
        return cls(what, known, values, ranks, len(measured), baseline)

    def size(self, row: int, head: int) -> float:
        """What columns are ordered by: the value, or how far it is above its baseline."""
        value = float(self.values[row, head])
        if np.isnan(value):
            return -np.inf
        return abs(value) if self.baseline is None else value - self.baseline[0]

    def evidence(self, row: int, head: int) -> CardRow | None:
        value = float(self.values[row, head])
        if np.isnan(value):
            return None
        place = f"{_ordinal(int(self.ranks[row, head]))} of {self.n}"
        if self.baseline is not None:
            place += f"; {self.baseline[1]}"
        return CardRow(self.what, self.known.show(value), place)


@dataclass(frozen=True, slots=True)
class _Topic:
    """The columns of one variable, by its labels; those without labels stand together."""

    title: str
    layers: list[int]
    columns: list[RankedVariable]

    @property
    def most(self) -> int:
        """How many of its labels are shown."""
        return len(self.columns) if len(self.columns) <= FEW_LABELS else MAX_SHOWN


class RankedTable:
    """What a model's results say of all heads, ranked once."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = results
        self._topics: list[_Topic] = []
        seen: dict[str, np.ndarray] = {}  # of what several results measured, the first counts
        for result in results:
            data = result.dataset
            layers = [int(n) for n in data["layer"].values] if "layer" in data.coords else []
            for array in shown_variables(data):
                values = array.values
                is_again = any(np.array_equal(values, v, equal_nan=True) for v in seen.values())
                if str(array.name) not in seen and not is_again:
                    self._topics.append(_topic(data, array, layers))
                seen.setdefault(str(array.name), values)
        self.behaviors = next(
            (behaviors(result) for result in results if all(name in result for name in SURFACE)),
            None,
        )
        self.best_at = probed_names(of_probes(results))

    def topics(self, layer: int, head: int) -> dict[str, list[CardRow]]:
        """Evidence on one head by topic."""
        evidence: dict[str, list[CardRow]] = {}
        for topic in sorted(self._topics, key=lambda topic: topic.title != SINGLE):
            if layer not in topic.layers:
                continue
            row = topic.layers.index(layer)
            columns = sorted(topic.columns, key=lambda c: -c.size(row, head))[: topic.most]
            for column in columns:
                is_worse = column.baseline is not None and column.size(row, head) <= 0
                line = None if is_worse else column.evidence(row, head)
                if line is not None:
                    evidence.setdefault(topic.title, []).append(line)
        return evidence

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
    table: RankedTable, heads: HeadMap | None, layer: int, head: int, n_exemplars: int
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


def _baseline(
    data: xr.Dataset, name: str, labels: Mapping[str, object]
) -> tuple[float, str] | None:
    """What rules without attention reach, beside an accuracy of a probe; and in words."""
    if name == "accuracy" and "baseline" in data:
        offset = float(data["baseline"].sel(relation=labels["relation"]))
        return None if np.isnan(offset) else (offset, f"best offset {_percent(offset)}")
    if name == "coref_accuracy" and "coref_baseline" in data:
        rules = data["coref_baseline"].sel(mention_kind=labels["mention_kind"])
        match, sieves = (float(rules.sel(rule=rule)) for rule in ("head_match", "sieves"))
        if not np.isnan(match):
            return match, f"head match {_percent(match)}, sieves {_percent(sieves)}"
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


def shown_variables(data: xr.Dataset) -> list[xr.DataArray]:
    """The variables over layer and head that have a heading, as their metrics order them."""
    arrays = [
        array
        for array in data.data_vars.values()
        if {"layer", "head"} <= set(map(str, array.dims)) and is_shown(array)
    ]
    return sorted(arrays, key=lambda array: display_of(array).order)


def _topic(data: xr.Dataset, array: xr.DataArray, layers: list[int]) -> _Topic:
    known = display_of(array)
    dims = [str(dim) for dim in reversed(array.dims) if dim not in ("layer", "head")]
    array = array.transpose("layer", "head", *dims)
    if not dims:
        return _Topic(SINGLE, layers, [RankedVariable.of(known.title, known, array.values)])
    if dims == ["key_class"]:
        array = array.isel(key_class=_distinct(array.values))
    labels = itertools.product(*(array[dim].values.tolist() for dim in dims))
    flat = array.values.reshape(*array.shape[:2], -1)
    name = str(array.name)
    columns = [
        RankedVariable.of(
            _label(dims, label),
            known,
            flat[..., i],
            _baseline(data, name, dict(zip(dims, label, strict=True))),
        )
        for i, label in enumerate(labels)
    ]
    return _Topic(known.title, layers, columns)


def _label(dims: Sequence[str], labels: Sequence[object]) -> str:
    names = [label_of(dim, label) for dim, label in zip(dims, labels, strict=True)]
    return names[0] if len(names) == 1 else f"{names[0]} ({', '.join(names[1:])})"


def _nearest(
    results: Sequence[Result], heads: HeadMap | None, layer: int, head: int
) -> tuple[tuple[int, int, float], ...]:
    if heads is not None:
        return tuple(heads.nearest(layer, head))
    data = next((result.dataset for result in results if "js" in result), None)
    return () if data is None else tuple(nearest_in(data, layer, head))


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
