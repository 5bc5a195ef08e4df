"""Documents in which heads pay their highest weights, and the cards of all heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.heads.explain import explain_heads
from headscope.heads.head_map import HeadMap
from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject
from headscope.reporting.variables import numbers
from headscope.results.result import Exemplar

PER_CARD = 3
AROUND = 20
"""Tokens of a long document that are shown on either side of an arc."""
LONGEST = 80


class Documents:
    """Token lists that arcs refer to by number, each stored once."""

    def __init__(self) -> None:
        self.tokens: list[list[str]] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def add(self, tokens: tuple[str, ...]) -> int:
        """The number of these tokens."""
        if tokens not in self._numbers:
            self._numbers[tokens] = len(self.tokens)
            self.tokens.append(list(tokens))
        return self._numbers[tokens]

    def arc(self, exemplar: Exemplar) -> dict[str, Any]:
        """An exemplar as numbers; of a long document the part around the arc."""
        query, key = exemplar.query, exemplar.key
        if exemplar.query_tokens != exemplar.key_tokens:  # attention across
            both = (*exemplar.query_tokens, "⏐", *exemplar.key_tokens)
            key += len(exemplar.query_tokens) + 1
        else:
            both = exemplar.query_tokens
        start = stop = 0
        if len(both) > LONGEST:
            start = max(0, min(query, key) - AROUND)
            stop = min(len(both), max(query, key) + AROUND + 1)
            if stop - start > LONGEST * 2:
                start = stop = 0
        shown = both[start:stop] if stop else both
        return {
            "weight": numbers(exemplar.weight),
            "document": self.add(tuple(shown)),
            "query": query - start,
            "key": key - start,
        }


def make_cards(
    subject: Subject, heads: HeadMap | None, documents: Documents
) -> list[dict[str, Any]]:
    """Everything known about each head of a subject, layer by layer."""
    source = subject.result("exemplar_weight")
    made = []
    for card in explain_heads(subject.results, heads=heads, n_exemplars=0):
        found = source.exemplars(card.layer, card.head)[:PER_CARD] if source is not None else []
        made.append(
            {
                "layer": card.layer,
                "head": card.head,
                "summary": card.summary,
                "evidence": [
                    [topic, [[row.what, row.value, row.rank] for row in rows]]
                    for topic, rows in card.evidence
                ],
                "nearest": [[layer, head, numbers(js)] for layer, head, js in card.nearest],
                "exemplars": [documents.arc(exemplar) for exemplar in found],
            }
        )
    return made


def exemplar_figure(
    subjects: Sequence[Subject],
    chosen: Mapping[int, Mapping[tuple[int, int], str]],
    documents: Documents,
) -> Figure | None:
    """The highest weights of heads that the findings name, with their arcs.

    Args:
        subjects: of the report.
        chosen: by subject, heads and why they are shown.
        documents: where tokens go.
    """
    panels = []
    for number, heads in chosen.items():
        source = subjects[number].result("exemplar_weight")
        if source is None:
            continue
        shown = []
        for (layer, head), why in heads.items():
            found = source.exemplars(layer, head)[:PER_CARD]
            if found:
                arcs = [documents.arc(exemplar) for exemplar in found]
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
