"""Heads as antecedent finders: does a mention attend most to what it refers to?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from headscope.batch import Axes
from headscope.deferred import torch
from headscope.errors import UnknownName
from headscope.measuring.contract import SELF_BLOCKS, State, Variable
from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Reading
from headscope.measuring.word_attention import has_tokens, word_rows
from headscope.text.agreement import agree, traits_of
from headscope.text.antecedents import KINDS, Anaphor, anaphors
from headscope.text.document import Document

if TYPE_CHECKING:
    from torch import Tensor

Candidates = Literal["mentions", "words"]
"""Which words may be the antecedent: head words of earlier mentions, or any other word."""

MENTION_KINDS = ("all", *KINDS)
RULES = ("nearest", "head_match", "sieves")


@dataclass(frozen=True)
class CorefAccuracy(RatioMetric):
    """How often a mention attends most to an antecedent of its own.

    For each mention with an antecedent, the candidates are the head words of the mentions before
    it (with `candidates="words"`, all other words). The mention is right if, of the candidates,
    its head word attends most to the head word of one of its antecedents; if it attends to no
    candidate, it is wrong. Attention is between words: to a split word the sum over its tokens,
    from it the mean. By kind of mention: pronoun, proper, nominal.

    Clark et al. 2019, section 4.3 and Table 2, who did not release this analysis.
    """

    name = "coref_accuracy"
    title = "Finds the antecedent"
    short_title = "Finds antecedents"
    equation = r"\underset{j \neq i}{\text{arg max}}\; a_{ij} \in \text{antecedents}(i)"
    paper = "Clark et al. 2019, section 4.3, Table 2"
    units = "share of mentions"
    format = ".1%"
    order = 280
    counts = "mentions"
    needs = frozenset(("mentions",))
    blocks = SELF_BLOCKS
    is_default = False
    has_layer_ratio = False
    dims = ("mention_kind",)
    denominator_dims = ("mention_kind",)

    candidates: Candidates = "mentions"

    def __post_init__(self) -> None:
        if self.candidates not in get_args(Candidates):
            raise UnknownName.of("candidates", self.candidates, get_args(Candidates))

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Kinds of mentions, and all of them."""
        return {"mention_kind": MENTION_KINDS}

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Right mentions; mentions; the same of all kinds."""
        key = ("coref masks", self.candidates)
        queries, allowed, right, kinds = reading.of_batch(key, lambda: self._masks(reading))
        highest, best = (word_rows(reading, queries) * allowed[:, None]).max(-1)
        is_right = right[:, None].expand(-1, reading.n_heads, -1, -1).gather(3, best[..., None])
        is_found = is_right[..., 0] & (highest > 0)
        numerator = is_found.double() @ kinds
        denominator = kinds.sum(1)[:, None].expand_as(numerator)
        return numerator, denominator, denominator[..., 0]

    def _masks(self, reading: Reading) -> tuple[Tensor, ...]:
        """`document mention`: the head word. `document mention word`: is it a candidate, an
        antecedent? `document mention kind`: is it of the kind?
        """
        by_document = document_anaphors(reading)
        has = has_tokens(reading)
        shape = len(by_document), max([1, *map(len, by_document)])
        queries = np.zeros(shape, dtype=np.int64)
        allowed = np.zeros((*shape, has.shape[1]))
        right = np.zeros((*shape, has.shape[1]), dtype=bool)
        kinds = np.zeros((*shape, len(MENTION_KINDS)))
        for row, of_document in enumerate(by_document):
            for number, anaphor in enumerate(of_document):
                queries[row, number] = anaphor.mention.head_word
                if self.candidates == "words":
                    allowed[row, number] = has[row]
                    allowed[row, number, anaphor.mention.head_word] = 0
                else:
                    allowed[row, number, [other.head_word for other in anaphor.candidates]] = 1
                right[row, number, list(anaphor.antecedents)] = True
                kinds[row, number] = _kinds(anaphor)
        tensors = (
            torch.from_numpy(array).to(reading.device) for array in (queries, allowed, right, kinds)
        )
        queries_, allowed_, right_, kinds_ = tensors
        return queries_, allowed_.to(reading.dtype), right_, kinds_


@dataclass(frozen=True)
class CorefBaseline(RatioMetric):
    """How often a simple rule finds an antecedent.

    `nearest`: the nearest mention before. `head_match`: the nearest with the same head word;
    none is wrong. `sieves`: the nearest mention in the first of four sieves that has one: the
    same words; the same head word; agreement in number, gender and person
    (`headscope.text.agreement`); any. Words are compared in lower case. `coref_cases` counts
    the mentions.

    Clark et al. 2019, section 4.3 and Table 2: the rule-based system is after Lee et al.
    2011's.
    """

    name = "coref_baseline"
    title = "A rule finds the antecedent"
    short_title = "Rules"
    paper = "Clark et al. 2019, section 4.3, Table 2"
    units = "share of mentions"
    format = ".1%"
    order = 281
    counts = "mentions"
    needs = frozenset(("mentions",))
    scope = "text"
    blocks = SELF_BLOCKS
    is_default = False
    dims = ("mention_kind", "rule")
    denominator_dims = ("mention_kind",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Kinds of mentions and rules."""
        return {"mention_kind": MENTION_KINDS, "rule": RULES}

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Right mentions of each rule; mentions; the same of all kinds."""
        by_document = document_anaphors(reading)
        right = np.zeros((len(by_document), len(MENTION_KINDS), len(RULES)))
        cases = np.zeros((len(by_document), len(MENTION_KINDS)))
        for row, (document, of_document) in enumerate(
            zip(reading.batch.documents, by_document, strict=False)
        ):
            for anaphor in of_document:
                kinds = _kinds(anaphor)
                cases[row] += kinds
                guesses = guess(document, anaphor)
                is_right = [guesses[rule] in anaphor.antecedents for rule in RULES]
                right[row] += kinds[:, None] * np.array(is_right)
        return torch.from_numpy(right), torch.from_numpy(cases), torch.from_numpy(cases[:, 0])

    def variables(self) -> tuple[Variable, ...]:
        """Also how many mentions there are of each kind."""
        cases = self.variable(
            "coref_cases", ("mention_kind",), title="", units="mentions", format=".0f"
        )
        return (*super().variables(), cases)

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The ratio, and the mentions of each kind."""
        return {**super().finalize(state, axes), "coref_cases": state["denominator"].sum(0)}


def guess(document: Document, anaphor: Anaphor) -> dict[str, int | None]:
    """The head word that each rule takes for the antecedent; None for none."""
    mention, candidates = anaphor.mention, anaphor.candidates
    same_text = [c.head_word for c in candidates if c.text == mention.text]
    same_head = [c.head_word for c in candidates if c.form == mention.form]
    sieved = same_text or same_head
    if not sieved:
        traits = traits_of(document, mention)
        sieved = [c.head_word for c in candidates if agree(traits, traits_of(document, c))]
    nearest = [c.head_word for c in candidates]
    return {
        "nearest": nearest[-1],
        "head_match": same_head[-1] if same_head else None,
        "sieves": (sieved or nearest)[-1],
    }


def document_anaphors(reading: Reading) -> list[list[Anaphor]]:
    """For each document of a batch; empty if the attention came without documents."""
    batch = reading.batch

    def make() -> list[list[Anaphor]]:
        has = has_tokens(reading)
        known = [
            anaphors(document, has[row].tolist()) for row, document in enumerate(batch.documents)
        ]
        return known + [[] for _ in range(len(batch) - len(known))]

    return batch.once(("anaphors", reading.block), make)


def _kinds(anaphor: Anaphor) -> np.ndarray:
    return np.array([kind in ("all", anaphor.mention.kind) for kind in MENTION_KINDS], dtype=float)
