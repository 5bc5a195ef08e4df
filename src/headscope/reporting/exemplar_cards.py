"""The cards of all heads, and the documents in which heads pay their highest weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from headscope.heads.explain import explain_heads
from headscope.heads.head_map import HeadMap
from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject
from headscope.reporting.variables import Number, rounded
from headscope.results.result import Exemplar

PER_CARD = 3
"""Exemplars on a card."""
AROUND = 20
"""Tokens shown on either side of an arc where a document is shown in part."""
LONGEST = 80
"""Tokens up to which a document is shown whole."""


class Arc(TypedDict):
    """A weight from a query to a key, by their places in a numbered document."""

    weight: Number
    document: int
    query: int
    key: int


class Card(TypedDict):
    """Everything known about one head."""

    layer: int
    head: int
    summary: str
    evidence: list[list[str | list[list[str]]]]
    nearest: list[list[Number]]
    exemplars: list[Arc]


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


def make_cards(subject: Subject, heads: HeadMap | None, documents: Documents) -> list[Card]:
    """The cards of all heads of a subject, layer by layer."""
    source = subject.result("exemplar_weight")
    cards: list[Card] = []
    for card in explain_heads(subject.results, heads=heads, n_exemplars=0):
        exemplars = source.exemplars(card.layer, card.head)[:PER_CARD] if source else []
        cards.append(
            {
                "layer": card.layer,
                "head": card.head,
                "summary": card.summary,
                "evidence": [
                    [topic, [[row.what, row.value, row.rank] for row in rows]]
                    for topic, rows in card.evidence
                ],
                "nearest": [[layer, head, rounded(js)] for layer, head, js in card.nearest],
                "exemplars": [documents.arc(exemplar) for exemplar in exemplars],
            }
        )
    return cards


def exemplar_figure(
    subjects: Sequence[Subject],
    chosen: Mapping[int, Mapping[tuple[int, int], str]],
    documents: Documents,
) -> Figure | None:
    """The highest weights of notable heads, as arcs.

    Args:
        subjects: the subjects of the report.
        chosen: for each subject, by its number, the heads to show and why.
        documents: takes the tokens that arcs refer to.
    """
    panels = []
    for number, heads in chosen.items():
        source = subjects[number].result("exemplar_weight")
        if source is None:
            continue
        shown = []
        for (layer, head), why in heads.items():
            exemplars = source.exemplars(layer, head)[:PER_CARD]
            if exemplars:
                arcs = [documents.arc(exemplar) for exemplar in exemplars]
                shown.append({"layer": layer, "head": head, "why": why, "exemplars": arcs})
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
