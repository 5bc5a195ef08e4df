"""Cards of all heads as a part of a page's payload."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from headscope.arguments import expect
from headscope.attention import key_stack
from headscope.errors import InputError
from headscope.heads.cards import ACCURACIES, CardRow, HeadCard, RankedTable, RankedVariable
from headscope.heads.roles import TOKEN_ROLES, corpus_roles
from headscope.metrics.exemplars import INTERVALS
from headscope.page.payload import Evidence
from headscope.page.payload_types import (
    Bounded,
    CardNumber,
    LinkedDocument,
    PageCard,
    Relation,
    SampleDocument,
)
from headscope.results.display import counted
from headscope.results.result import Exemplar, Result
from headscope.results.trace import Trace

MAX_RELATIONS = 6
MAX_EXEMPLARS = 3
MAX_NEIGHBORS = 4
AROUND = 16
"""Tokens shown on either side of an exemplar's link if its document is not shown whole."""
SHARES = ("class_share", "offset_share", *TOKEN_ROLES)
"""Variables that say where a head looks, as shares of its attention."""
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
    "proper": "antecedent of a name",
    "nominal": "antecedent of a noun",
    "pronoun": "antecedent of a pronoun",
    "xcomp": "verb of a verb",
}
"""Relations and kinds of mentions in plain words; the label follows in brackets."""


def make_evidence(results: Result | Iterable[Result], trace: Trace) -> Evidence:
    """Return the cards of all heads of the model, and their roles over the corpus.

    Raises:
        InputError: the results have other layers or heads than the trace of the page.
    """
    listed = list(results) if isinstance(results, Iterable) else [results]
    for result in listed:
        expect("evidence", result, Result, "results of headscope.analyze or headscope.open")
        data = result.blocks.get(trace.main.name, result.dataset)
        if "layer" not in data.coords or "head" not in data.coords:
            continue
        layers = {int(layer) for layer in data["layer"].values}
        if not set(trace.layers) <= layers or data.sizes["head"] != trace.n_heads:
            raise InputError(
                f"evidence is of {result.model} with {len(layers)} layers × {data.sizes['head']} "
                f"heads; the trace is of {trace.provenance.get('model')} with "
                f"{len(trace.layers)} × {trace.n_heads}. Give a run of the same model."
            )
    if not listed:
        raise InputError("evidence is an empty list: give at least one result.")
    table = RankedTable(listed, trace.main.name)
    cards = {
        f"L{layer}H{head}": _page_card(table.card(layer, head, n_exemplars=MAX_EXEMPLARS))
        for layer in trace.layers
        for head in range(trace.n_heads)
    }
    for result in listed:
        _add_samples(cards, result, trace.main.name)
    prefix = f"{listed[0].model} · "
    runs = [f"{r.title.removeprefix(prefix)}, {counted(r.n_documents)}" for r in listed]
    about = "; ".join(dict.fromkeys(runs))
    meanings = {
        _name(column): column.display.meaning
        for column in table.columns
        if column.display.meaning and column.name not in ACCURACIES
        if not column.labels or column.name in SHARES
    }
    roles: dict[str, xr.Dataset] = {}
    for result in reversed(listed):
        for name, data in result.blocks.items():
            if name in trace.blocks and (of_block := corpus_roles(data)) is not None:
                roles[name] = of_block
    return Evidence({"about": about, "meanings": meanings, "cards": cards}, roles)


def _add_samples(cards: dict[str, PageCard], result: Result, block: str) -> None:
    """Add a document for each fifth of the scale to the cards, if the run kept samples."""
    samples = result.states.get(block, {}).get("head_samples")
    if samples is None:
        return
    stack = key_stack(block, next(iter(result.documents.values())).tokens)
    for at, layer in enumerate(result.blocks[block]["layer"].values.tolist()):
        for head in range(samples.sizes["head"]):
            card = cards.get(f"L{layer}H{head}")
            kept = {str(n): a.values for n, a in samples.isel(layer=at, head=head).items()}
            counts = kept["histogram"].reshape(INTERVALS, -1).sum(1)
            found: list[SampleDocument] = []
            for fifth in reversed(range(INTERVALS)):
                number = int(kept["document"][fifth, 0])
                if card is None or number < 0:
                    continue
                length = int(kept["length"][fifth, 0])
                tokens = result.documents[number].tokens[stack][:length]
                keys, weights = kept["keys"][fifth, 0], kept["weights"][fifth, 0]
                # The weight that the sample was chosen by: first row and column left out.
                off = np.where((keys > 0) & (np.arange(len(keys)) > 0)[:, None], weights, 0)
                query, rank = np.unravel_index(off.argmax(), off.shape)
                weight = float(off[query, rank])
                document, key = result.documents[number], int(keys[query, rank])
                link = Exemplar(weight, document, int(query), key, tokens, tokens)
                share = float(counts[fifth] / counts.sum())
                found.append({**_linked(link), "share": round(share, 4)})
            if card is not None and found:
                card["samples"] = found


def _page_card(card: HeadCard) -> PageCard:
    rows = [row for _, of_topic in card.topics for row in of_topic]
    accuracies = [r for r in rows if r.column.name in ACCURACIES and r.gain > 0]
    relations = [row for row in accuracies if "all" not in row.column.labels.values()]
    relations.sort(key=lambda row: -row.gain)
    others = [row for row in rows if row.column.name not in ACCURACIES]
    shares = [
        row
        for row in others
        if row.column.name in SHARES
        and "rest" not in row.column.labels.values()  # says nothing about a head
        and (row.column.values > 0).any()  # a causal head cannot attend to the next token
    ]
    shares.sort(key=lambda row: SHARES.index(row.column.name))
    numbers = [row for row in others if not row.column.labels and row.column.name not in SHARES]
    return {
        "sentences": list(card.sentences),
        "relations": [_relation(row) for row in relations[:MAX_RELATIONS]],
        "looks": [_number(row) for row in shares],
        "numbers": [_number(row) for row in numbers],
        "exemplars": [_linked(exemplar) for exemplar in card.exemplars],
        "neighbors": [f"L{a}H{b}" for a, b, _ in card.nearest[:MAX_NEIGHBORS]],
    }


def _bounded(row: CardRow) -> Bounded:
    low, high = (None if n is None else float(f"{n:.4g}") for n in (row.low, row.high))
    return {"value": float(f"{row.number:.4g}"), "low": low, "high": high}


def _relation(row: CardRow) -> Relation:
    labels = row.column.labels
    label = labels.get("relation") or labels.get("mention_kind", row.column.name)
    name = f"{RELATIONS[label]} ({label})" if label in RELATIONS else label
    if labels.get("direction") == "head":
        name += ", from its parent"
    baseline = row.column.baseline
    return {
        "name": name,
        **_bounded(row),
        "baseline": None if baseline is None else float(f"{baseline:.4g}"),
        "baseline_name": ACCURACIES[row.column.name][1],
    }


def _number(row: CardRow) -> CardNumber:
    column = row.column
    unit = "share" if column.display.is_share else column.display.units
    title = row.what if column.labels or column.name not in SHARES else column.display.short_title
    return {"name": _name(column), "title": title, **_bounded(row), "unit": unit}


def _name(column: RankedVariable) -> str:
    return "/".join([column.name, *column.labels.values()])


def _linked(exemplar: Exemplar) -> LinkedDocument:
    """Return the document around a link; for cross-attention both sequences, joined."""
    tokens, key = exemplar.query_tokens, exemplar.key
    if exemplar.query_tokens != exemplar.key_tokens:
        tokens, key = (*tokens, "⏐", *exemplar.key_tokens), key + len(tokens) + 1
    start = max(0, min(exemplar.query, key) - AROUND)
    stop = min(len(tokens), max(exemplar.query, key) + AROUND + 1)
    link = (exemplar.query - start, key - start, round(exemplar.weight, 4))
    return {"tokens": list(tokens[start:stop]), "links": [link]}
