"""What a corpus run says of each head, as a part of the payload: claims, numbers, exemplars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import xarray as xr

from headscope.arguments import expect
from headscope.errors import InputError
from headscope.heads.cards import shown_variables
from headscope.heads.head_map import nearest_in
from headscope.heads.roles import corpus_roles
from headscope.page.payload import Evidence
from headscope.results.display import display_of, label_of
from headscope.results.result import Exemplar, Result
from headscope.results.trace import Trace

MAX_RELATIONS = 6
MAX_EXEMPLARS = 3
MAX_NEIGHBORS = 4
AROUND = 16
"""Tokens shown on either side of an exemplar's link where a document is shown in part."""
CLAIMS = {
    "previous": "Reads the token before",
    "next": "Reads the next token",
    "same": "Stays on its own token",
    "equal": "Reads an equal word that stood before",
    "after": "Reads what followed an earlier equal token",
    "broad": "Reads broadly: its rows are as wide as even attention over",
    "first": "Rests on the first token",
    "special": "Rests on special tokens",
    "punctuation": "Rests on punctuation",
}
LOOKS = {"class_share": "rest", "offset_share": ""}
"""Variables that say where a head looks, a number for each label, and the label to leave out."""
TOKENS_LIKE_IT = {
    "duplicate_token": "an earlier equal token",
    "induction": "what followed an earlier equal token",
}
"""Variables that say so in one number, and to what."""
RELATIONS = {
    "advcl": "adverbial clause",
    "advmod": "adverb",
    "amod": "adjective",
    "aux": "auxiliary verb",
    "case": "preposition",
    "cc": "and, or",
    "ccomp": "clause of a verb",
    "compound": "compound",
    "conj": "words joined by and",
    "cop": "to be",
    "det": "article",
    "mark": "that, because",
    "nmod": "noun of a noun",
    "nmod:poss": "owner",
    "nsubj": "subject",
    "nummod": "number",
    "obj": "object",
    "obl": "place, time",
    "proper": "what a name refers to",
    "nominal": "what a noun refers to",
    "pronoun": "what a pronoun refers to",
    "xcomp": "verb of a verb",
}
"""Relations and kinds of mentions in plain words; the label follows in brackets."""
BASELINES = {"accuracy": ("baseline", "best offset"), "coref_accuracy": ("coref_baseline", "rules")}


class Bounded(TypedDict):
    """A value, and its interval where it has one."""

    value: float
    low: float | None
    high: float | None


class Relation(Bounded):
    """How often a head finds the right word, beside a rule without attention."""

    name: str
    baseline: float | None
    baseline_name: str


class Number(Bounded):
    """One measured number of a head."""

    name: str
    title: str
    unit: str


class Shown(TypedDict):
    """A document with its strongest link."""

    tokens: list[str]
    links: list[list[float]]


class Card(TypedDict):
    """All that is said of one head."""

    sentences: list[str]
    relations: list[Relation]
    looks: list[Number]
    numbers: list[Number]
    exemplars: list[Shown]
    neighbors: list[str]


def make_evidence(results: Result | Iterable[Result], trace: Trace) -> Evidence:
    """The cards of all heads of the model, and their roles over the corpus.

    Args:
        results: of one model: an analysis, and probes where there are any.
        trace: what they stand beside.

    Raises:
        InputError: they are of a model with other layers or heads than the trace.
    """
    given = list(results) if isinstance(results, Iterable) else [results]
    for result in given:
        expect("evidence", result, Result, "results of headscope.analyze or headscope.open")
    if not given:
        raise InputError("evidence is an empty list: give at least one result.")
    _check_shape(given, trace)
    roles: dict[str, xr.Dataset] = {}
    documents: dict[str, int] = {}
    for result in reversed(given):
        for name, data in result.blocks.items():
            if name in trace.blocks and (table := corpus_roles(data)) is not None:
                roles[name], documents[name] = table, result.n_documents
    main = trace.main.name
    tables = [_Table.of(result, main) for result in given]
    cards = {
        f"L{layer}H{head}": _card(tables, roles.get(main), documents.get(main, 0), layer, head)
        for layer in trace.layers
        for head in range(trace.n_heads)
    }
    prefix = f"{given[0].model} · "
    about = "; ".join(
        dict.fromkeys(f"{r.title.removeprefix(prefix)}, {r.n_documents:,} documents" for r in given)
    )
    meanings = {c.name: c.meaning for t in tables for c in t.numbers + t.looks if c.meaning}
    return Evidence({"about": about, "meanings": meanings, "cards": cards}, roles)


def _check_shape(results: Sequence[Result], trace: Trace) -> None:
    for result in results:
        data = result.blocks.get(trace.main.name, result.dataset)
        if "layer" not in data.coords or "head" not in data.coords:
            continue
        layers = {int(layer) for layer in data["layer"].values}
        if not set(trace.layers) <= layers or data.sizes["head"] != trace.n_heads:
            raise InputError(
                f"evidence is of {result.model} with {len(layers)} layers × {data.sizes['head']} "
                f"heads; the trace is of {trace.provenance.get('model')} with {len(trace.layers)} × "
                f"{trace.n_heads}. Give a run of the same model."
            )


@dataclass(frozen=True, eq=False)
class _Column:
    """One number for each head, with its interval where there is one; all `layer head`."""

    name: str
    title: str
    unit: str
    values: np.ndarray
    bounds: np.ndarray | None
    """`bound layer head`."""
    baseline: float | None = None
    baseline_name: str = ""
    meaning: str = ""

    def at(self, row: int, head: int) -> Bounded:
        """The value of a head, with its interval."""
        value = _rounded(float(self.values[row, head]))
        if self.bounds is None or np.isnan(self.bounds[:, row, head]).any():
            return {"value": value, "low": None, "high": None}
        low, high = (_rounded(float(bound)) for bound in self.bounds[:, row, head])
        return {"value": value, "low": low, "high": high}


@dataclass(frozen=True, eq=False)
class _Table:
    """What one result says of all heads of a block."""

    result: Result
    block: str
    data: xr.Dataset
    layers: list[int]
    looks: list[_Column]
    numbers: list[_Column]
    relations: list[_Column]

    @classmethod
    def of(cls, result: Result, block: str) -> _Table:
        data = result.blocks.get(block, result.dataset)
        layers = [int(n) for n in data["layer"].values] if "layer" in data.coords else []
        looks = list(_looks(data))
        numbers = [c for c in _numbers(data) if c.name not in TOKENS_LIKE_IT]
        return cls(result, block, data, layers, looks, numbers, list(_relations(data)))


def _card(
    tables: Sequence[_Table], roles: xr.Dataset | None, n_documents: int, layer: int, head: int
) -> Card:
    relations: list[Relation] = []
    looks: dict[str, Number] = {}
    numbers: dict[str, Number] = {}
    exemplars: list[Shown] = []
    for table in tables:
        if layer not in table.layers:
            continue
        row = table.layers.index(layer)
        for column in table.relations:
            measured = column.at(row, head)
            if measured["value"] > (column.baseline or 0.0):
                relation: Relation = {
                    "name": column.name,
                    **measured,
                    "baseline": column.baseline,
                    "baseline_name": column.baseline_name,
                }
                relations.append(relation)
        for kept, columns in ((looks, table.looks), (numbers, table.numbers)):
            for column in columns:
                measured = column.at(row, head)
                if not math.isnan(measured["value"]):
                    number: Number = {
                        "name": column.name,
                        "title": column.title,
                        **measured,
                        "unit": column.unit,
                    }
                    kept.setdefault(column.name, number)
        if "exemplar_weight" in table.data:
            examples = table.result.exemplars(layer, head, table.block)
            exemplars += [_shown(exemplar) for exemplar in examples[:MAX_EXEMPLARS]]
    relations.sort(key=lambda relation: (relation["baseline"] or 0.0) - relation["value"])
    sentences = _role_claim(roles, layer, head, n_documents)
    sentences += [_relation_claim(r) for r in relations[:1] if _is_above(r)]
    return {
        "sentences": sentences,
        "relations": relations[:MAX_RELATIONS],
        "looks": list(looks.values()),
        "numbers": list(numbers.values()),
        "exemplars": exemplars,
        "neighbors": _neighbors(tables, layer, head),
    }


def _role_claim(roles: xr.Dataset | None, layer: int, head: int, n_documents: int) -> list[str]:
    if roles is None:
        return []
    row = roles["layer"].values.tolist().index(layer)
    role, share = str(roles["role"].values[row, head]), float(roles["share"].values[row, head])
    over = f"over {n_documents:,} documents"
    if not role:
        return [f"Follows no simple pattern of place or word {over}."]
    if role == "broad":
        return [f"{CLAIMS[role]} {100 * share:.0f} % of the words in sight, {over}."]
    return [f"{CLAIMS[role]}: {100 * share:.0f} % of its attention {over}."]


def _is_above(relation: Relation) -> bool:
    """Does the interval lie above what the rule reaches?"""
    return relation["low"] is not None and relation["low"] > (relation["baseline"] or 0.0)


def _relation_claim(relation: Relation) -> str:
    claim = (
        f"Finds {relation['name']} in {relation['value']:.1%} [{relation['low']:.1%}, "
        f"{relation['high']:.1%}] of cases"
    )
    if relation["baseline"] is None:
        return f"{claim}."
    return f"{claim}; {relation['baseline_name']}: {relation['baseline']:.1%}."


def _relations(data: xr.Dataset) -> Iterator[_Column]:
    """Accuracies of a probe: of each relation and direction."""
    for name, (baseline, baseline_name) in BASELINES.items():
        if name not in data:
            continue
        heads = ("layer", "head")
        table = data[name].stack(case=[dim for dim in data[name].dims if dim not in heads])
        interval = f"{name}_interval"
        bounds = (
            data[interval].stack(case=table["case"].to_index().names) if interval in data else None
        )
        for case in range(table.sizes["case"]):
            here = table.isel(case=case)
            labels = {str(dim): str(here[dim].item()) for dim in table["case"].to_index().names}
            label = labels.get("relation") or labels.get("mention_kind", name)
            if label == "all":
                continue
            rule = math.nan
            if baseline in data:
                axes = {dim: labels[dim] for dim in ("relation", "mention_kind") if dim in labels}
                rule = float(data[baseline].sel(axes).max())
            shown = f"{RELATIONS[label]} ({label})" if label in RELATIONS else label
            if labels.get("direction") == "head":
                shown += ", from its parent"
            yield _Column(
                shown,
                shown,
                "share",
                here.transpose(*heads).values,
                None
                if bounds is None
                else bounds.isel(case=case).transpose("bound", *heads).values,
                None if math.isnan(rule) else _rounded(rule),
                baseline_name,
            )


def _numbers(data: xr.Dataset) -> Iterator[_Column]:
    """The variables that are one number for each head."""
    for array in shown_variables(data):
        if array.ndim > 2:
            continue
        known = display_of(array)
        interval = f"{array.name}_interval"
        yield _Column(
            str(array.name),
            known.title,
            "share" if known.is_share else known.units,
            array.transpose("layer", "head").values,
            data[interval].transpose("bound", "layer", "head").values if interval in data else None,
            meaning=known.meaning,
        )


def _looks(data: xr.Dataset) -> Iterator[_Column]:
    """Where attention goes, in shares: to the first token, the one before, or an equal one."""
    for name, left_out in LOOKS.items():
        if name not in data:
            continue
        array, interval = data[name], data.get(f"{name}_interval")
        (dim,) = (str(dim) for dim in array.dims if dim not in ("layer", "head"))
        seen: list[np.ndarray] = []
        for label in array[dim].values:
            values = array.sel({dim: label}).transpose("layer", "head").values
            # [CLS] is the first token in BERT; no causal head can read the next one.
            is_said = any(np.array_equal(values, other, equal_nan=True) for other in seen)
            if str(label) == left_out or is_said or not np.any(values > 0):
                continue
            seen.append(values)
            bounds = None if interval is None else interval.sel({dim: label})
            yield _Column(
                f"{name}/{label}",
                label_of(dim, label),
                "share",
                values,
                None if bounds is None else bounds.transpose("bound", "layer", "head").values,
                meaning=display_of(array).meaning,
            )
    for column in _numbers(data):
        if column.name in TOKENS_LIKE_IT:
            yield replace(column, title=TOKENS_LIKE_IT[column.name])


def _shown(exemplar: Exemplar) -> Shown:
    """The document around the link; of cross-attention both sequences, one after the other."""
    tokens, key = exemplar.query_tokens, exemplar.key
    if exemplar.query_tokens != exemplar.key_tokens:
        tokens, key = (*tokens, "⏐", *exemplar.key_tokens), key + len(tokens) + 1
    start = max(0, min(exemplar.query, key) - AROUND)
    stop = min(len(tokens), max(exemplar.query, key) + AROUND + 1)
    link = [exemplar.query - start, key - start, round(exemplar.weight, 4)]
    return {"tokens": list(tokens[start:stop]), "links": [link]}


def _neighbors(tables: Sequence[_Table], layer: int, head: int) -> list[str]:
    """The heads that attend most alike, by their divergence where the run measured it."""
    data = next((table.data for table in tables if "js" in table.data), None)
    near = [] if data is None else nearest_in(data, layer, head)
    return [f"L{a}H{b}" for a, b, _ in near[:MAX_NEIGHBORS]]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
