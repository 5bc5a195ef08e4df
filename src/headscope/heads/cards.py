"""Cards of heads: everything that results say about one head. Printed by `Result.card`, shown by
pages (`page.evidence`) and reports (`reporting.report`).
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
from headscope.heads.roles import corpus_roles, of_probes, probed_names, role_sentence
from headscope.results.display import VariableDisplay, counted, display_of, is_shown, label_of
from headscope.results.effect_data import result_of_effects
from headscope.results.result import Exemplar, Result

SUMMARY = "Summary"
"""Topic of variables without labels."""
MAX_LABELS = 8
"""Maximum labels of a variable that are all shown; of more, the highest `MAX_SHOWN`."""
MAX_SHOWN = 3
ACCURACIES = {
    "accuracy": ("baseline", "best offset"),
    "coref_accuracy": ("coref_baseline", "rules"),
}
"""Accuracies of probes, and the variable and name of what rules without attention reach."""


@dataclass(frozen=True, slots=True)
class CardRow:
    """One number of a head, with its rank among all heads."""

    column: RankedVariable
    number: float
    low: float | None
    high: float | None
    place: int
    typical: float | None = None
    """Median over buckets of documents, if it lies outside of the interval."""

    @property
    def what(self) -> str:
        """Title of the variable, or its label."""
        return self.column.what

    @property
    def value(self) -> str:
        """Number with its unit."""
        return self.column.display.show(self.number)

    @property
    def rank(self) -> str:
        """Rank from the highest, `3rd of 72`; beside a probe's accuracy also its baseline."""
        ending = {1: "st", 2: "nd", 3: "rd"}.get(self.place % 10, "th")
        ending = "th" if 10 <= self.place % 100 <= 20 else ending
        rank = f"{self.place}{ending} of {self.column.n}"
        if self.typical is not None:
            rank += f"; median over documents {self.column.display.show(self.typical)}"
        return f"{rank}; {self.column.baseline_text}" if self.column.baseline_text else rank

    @property
    def gain(self) -> float:
        """Difference to the baseline; the absolute number where there is no baseline."""
        baseline = self.column.baseline
        return abs(self.number) if baseline is None else self.number - baseline


@dataclass(frozen=True)
class HeadCard:
    """Everything that results say about one head. Prints as text; a notebook shows `html()`.

    Attributes:
        layer: 0-based.
        head: 0-based.
        model: name of the model.
        role: key of `heads.roles.ROLES`, "" for none, None where roles were not measured.
        sentences: the role, the best relation above its baseline, the names that probes give.
        topics: all rows, by the title of their variable.
        nearest: the heads with the most similar attention, with their divergence in nats.
        exemplars: the highest single weights.
    """

    layer: int
    head: int
    model: str
    role: str | None
    sentences: tuple[str, ...]
    topics: tuple[tuple[str, tuple[CardRow, ...]], ...]
    nearest: tuple[tuple[int, int, float], ...]
    exemplars: tuple[Exemplar, ...]

    @property
    def name(self) -> str:
        """`L7 H9`."""
        return f"L{self.layer} H{self.head}"

    @property
    def summary(self) -> str:
        """All sentences."""
        return " ".join(self.sentences)

    @property
    def evidence(self) -> list[tuple[str, list[CardRow]]]:
        """Rows by topic: the highest of variables with many labels, none below its baseline."""
        chosen = []
        for topic, rows in self.topics:
            most = len(rows) if topic == SUMMARY or len(rows) <= MAX_LABELS else MAX_SHOWN
            above = [row for row in rows if row.column.baseline is None or row.gain > 0]
            order = above if topic == SUMMARY else sorted(above, key=lambda row: -row.gain)
            if order:
                chosen.append((topic, order[:most]))
        return chosen

    def __str__(self) -> str:
        lines = [f"{self.name} of {self.model}", self.summary]
        for topic, rows in self.evidence:
            what, value = (max(len(getattr(r, name)) for r in rows) for name in ("what", "value"))
            lines += ["", topic]
            lines += [f"  {row.what:{what}}  {row.value:{value}}  {row.rank}" for row in rows]
        if self.nearest:
            near = ", ".join(f"L{a} H{b} ({js:.3f})" for a, b, js in self.nearest)
            lines += ["", "Nearest heads (Jensen-Shannon divergence, nats)", f"  {near}"]
        if self.exemplars:
            lines += ["", "Highest weights", *(f"  {exemplar}" for exemplar in self.exemplars)]
        return "\n".join(lines)

    def html(self) -> str:
        """Return the card as HTML without scripts; all text is escaped."""
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
            shown = "".join(f"<li>{e(str(exemplar))}</li>" for exemplar in self.exemplars)
            parts.append(f"<h4>Highest weights</h4><ol>{shown}</ol>")
        return "\n".join([*parts, "</article>"])

    _repr_html_ = html


def make_card(
    results: Result | Iterable[Result | xr.DataArray],
    layer: int,
    head: int,
    *,
    heads: HeadMap | None = None,
    n_exemplars: int = 3,
) -> HeadCard:
    """See `Result.card`."""
    listed = _listed(results)
    data = listed[0].dataset
    for what, value in (("layer", layer), ("head", head)):
        place_of(what, value, data[what].values.tolist() if what in data.coords else [])
    whole_number("n_exemplars", n_exemplars, 0)
    return RankedTable(listed).card(layer, head, heads=heads, n_exemplars=n_exemplars)


def make_all_cards(
    results: Result | Iterable[Result | xr.DataArray],
    *,
    heads: HeadMap | None = None,
    n_exemplars: int = 3,
) -> Iterator[HeadCard]:
    """Yield the cards of all heads, layer by layer. Heads are ranked once."""
    table = RankedTable(_listed(results))
    data = table.datasets[0]
    for layer in data["layer"].values if "layer" in data.coords else ():
        for head in data["head"].values:
            yield table.card(int(layer), int(head), heads=heads, n_exemplars=n_exemplars)


def _listed(results: Result | Iterable[Result | xr.DataArray]) -> list[Result]:
    listed = [results] if isinstance(results, Result | xr.DataArray) else list(results)
    checked = [result_of_effects(r) if isinstance(r, xr.DataArray) else r for r in listed]
    for result in checked:
        expect("results", result, Result, "results of headscope.analyze or headscope.open")
    if not checked:
        raise InputError("There is no result to make a card from: give at least one.")
    models = {result.model for result in checked}
    if len(models) > 1:
        raise InputError(f"These results are of different models: {', '.join(sorted(models))}.")
    return checked


@dataclass(frozen=True, slots=True, eq=False)
class RankedVariable:
    """One number for each head, `layer head`, and the rank of each head by it."""

    name: str
    """Name of the variable."""
    labels: Mapping[str, str]
    """Its label on each further axis."""
    what: str
    display: VariableDisplay
    layers: list[int]
    values: np.ndarray
    bounds: np.ndarray | None
    """`bound layer head`."""
    typical: np.ndarray | None
    """Median over buckets of documents."""
    ranks: np.ndarray
    n: int
    baseline: float | None = None
    baseline_text: str = ""

    @property
    def topic(self) -> str:
        """Heading in a card."""
        return self.display.title if self.labels else SUMMARY

    def row(self, layer: int, head: int) -> CardRow | None:
        """Return the row of one head; None if the number was not measured for it."""
        if layer not in self.layers or head >= self.values.shape[1]:
            return None
        index = self.layers.index(layer), head
        number = float(self.values[index])
        if np.isnan(number):
            return None
        low = high = None
        if self.bounds is not None and not np.isnan(self.bounds[(slice(None), *index)]).any():
            low, high = (float(bound[index]) for bound in self.bounds)
        typical = None
        if low is not None and high is not None and self.typical is not None:
            middle = float(self.typical[index])
            typical = middle if middle < low or middle > high else None
        return CardRow(self, number, low, high, int(self.ranks[index]), typical)


class RankedTable:
    """All numbers that a model's results have for the heads of one block, ranked once. If several
    results measured a variable, the first counts.
    """

    def __init__(self, results: Sequence[Result], block: str | None = None) -> None:
        self.results = results
        self.datasets = [result.blocks.get(block or "", result.dataset) for result in results]
        self._block = block
        by_corpus = (
            (corpus_roles(data), r) for data, r in zip(self.datasets, results, strict=True)
        )
        self.roles: xr.Dataset | None
        self.roles, self._measured_by = next(
            (found for found in by_corpus if found[0] is not None), (None, results[0])
        )
        self.columns: list[RankedVariable] = []
        seen: dict[str, np.ndarray] = {}
        for data in self.datasets:
            for array in shown_variables(data):
                values = array.values
                is_again = any(np.array_equal(values, v, equal_nan=True) for v in seen.values())
                if str(array.name) not in seen and not is_again:
                    self.columns += _columns(data, array)
                seen.setdefault(str(array.name), values)
        self._best_at = probed_names(of_probes(results))

    def card(
        self, layer: int, head: int, *, heads: HeadMap | None = None, n_exemplars: int = 3
    ) -> HeadCard:
        """Return the card of one head."""
        topics: dict[str, list[CardRow]] = {}
        for column in sorted(self.columns, key=lambda column: column.topic != SUMMARY):
            row = column.row(layer, head)
            if row is not None:
                topics.setdefault(column.topic, []).append(row)
        role, sentences = self._sentences(layer, head, itertools.chain(*topics.values()))
        with_js = next((data for data in self.datasets if "js" in data), None)
        nearest = [] if with_js is None else nearest_in(with_js, layer, head)
        nearest = nearest if heads is None else heads.nearest(layer, head)
        return HeadCard(
            layer,
            head,
            self.results[0].model,
            role,
            tuple(sentences),
            tuple((topic, tuple(rows)) for topic, rows in topics.items()),
            tuple(nearest),
            tuple(
                exemplar
                for data, result in zip(self.datasets, self.results, strict=True)
                if n_exemplars and "exemplar_weight" in data and layer in data["layer"].values
                for exemplar in result.exemplars(layer, head, self._block)[:n_exemplars]
            ),
        )

    def _sentences(
        self, layer: int, head: int, rows: Iterable[CardRow]
    ) -> tuple[str | None, list[str]]:
        role, sentences = None, []
        if self.roles is not None and layer in self.roles["layer"].values:
            named = self.roles.sel(layer=layer).isel(head=head)
            role = str(named["role"].item())
            over = f"over {counted(self._measured_by.n_documents)}"
            sentences.append(role_sentence(role, float(named["share"]), over))
        above = [
            row
            for row in rows
            if row.column.name in ACCURACIES
            and row.low is not None
            and row.low > (row.column.baseline or 0.0)
        ]
        if above:
            best = max(above, key=lambda row: row.gain)
            share, low, high = (_percent(n or 0.0) for n in (best.number, best.low, best.high))
            baseline = "" if best.column.baseline is None else f"; {best.column.baseline_text}"
            sentences.append(f"Finds {best.what} in {share} [{low}, {high}] of cases{baseline}.")
        if (layer, head) in self._best_at:
            sentences.append(f"The best head for {self._best_at[layer, head]}.")
        if not sentences:
            sentences.append("Role not measured: run analyze with the surface metrics.")
        return role, sentences


def shown_variables(data: xr.Dataset) -> list[xr.DataArray]:
    """Return the variables over layer and head that have a title, in the order of their metrics."""
    arrays = [
        array
        for array in data.data_vars.values()
        if {"layer", "head"} <= set(map(str, array.dims)) and is_shown(array)
    ]
    return sorted(arrays, key=lambda array: display_of(array).order)


def _columns(data: xr.Dataset, array: xr.DataArray) -> Iterator[RankedVariable]:
    name, display = str(array.name), display_of(array)
    layers = [int(n) for n in data["layer"].values] if "layer" in data.coords else []
    dims = [str(dim) for dim in reversed(array.dims) if dim not in ("layer", "head")]
    array = array.transpose("layer", "head", *dims)
    others = [
        None if other is None else other.transpose(..., "layer", "head", *dims)
        for other in (data.get(f"{name}_interval"), data.get(f"{name}_typical"))
    ]
    if dims == ["key_class"]:  # a class may repeat a later one: the first token may be [CLS]
        values, numbers = array.values, range(array.shape[-1])
        is_same = [[np.array_equal(values[..., i], values[..., j], equal_nan=True)
                    for j in numbers[i + 1 :]] for i in numbers]  # fmt: skip
        distinct = [i for i in numbers if not any(is_same[i])]
        array = array.isel(key_class=distinct)
        others = [other if other is None else other.isel(key_class=distinct) for other in others]
    flat = array.values.reshape(*array.shape[:2], -1)
    bounds, middle = (
        None if other is None else other.values.reshape(*other.shape[: other.ndim - len(dims)], -1)
        for other in others
    )
    labels = itertools.product(*(array[dim].values.tolist() for dim in dims))
    for i, label in enumerate(labels):
        values = flat[..., i]
        measured = np.sort(values[np.isfinite(values)])
        names = [label_of(dim, text) for dim, text in zip(dims, label, strict=True)]
        by_dim = {dim: str(text) for dim, text in zip(dims, label, strict=True)}
        if len(names) > 1:
            what = f"{names[0]} ({', '.join(names[1:])})"
        else:
            what = names[0] if names else display.title
        baseline, text = _baseline(data, name, by_dim)
        yield RankedVariable(
            name,
            by_dim,
            what,
            display,
            layers,
            values,
            None if bounds is None else bounds[..., i],
            None if middle is None else middle[..., i],
            1 + len(measured) - np.searchsorted(measured, values, side="right"),
            len(measured),
            baseline,
            text,
        )


def _baseline(data: xr.Dataset, name: str, labels: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the accuracy of the best rule without attention, and all rules in words."""
    if name not in ACCURACIES or ACCURACIES[name][0] not in data:
        return None, ""
    axes = {dim: labels[dim] for dim in ("relation", "mention_kind") if dim in labels}
    rules = data[ACCURACIES[name][0]].sel(axes)
    best = float(rules.max())
    if np.isnan(best):
        return None, ""
    if "rule" not in rules.dims:
        return best, f"{ACCURACIES[name][1]} {_percent(best)}"
    words = (f"{str(rule).replace('_', ' ')} {_percent(float(rules.sel(rule=rule)))}"
             for rule in rules["rule"].values)  # fmt: skip
    return best, ", ".join(words)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
