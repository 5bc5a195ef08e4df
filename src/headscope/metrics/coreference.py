"""Antecedents of mentions by attention, and gender bias in the choice between two candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args
from zlib import crc32

import numpy as np

from headscope.batch import Axes
from headscope.errors import UnknownName
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import SELF_BLOCKS, RatioMetric, State, SumMetric, Variable
from headscope.metrics.core.layer_data import LayerData, per_batch
from headscope.metrics.core.word_attention import has_tokens, word_rows
from headscope.statistics.jackknife import (
    Jackknife,
    Scale,
    crossed_jackknife,
    pool,
    ratio_jackknife,
)
from headscope.text.antecedents import KINDS, Anaphor, agree, anaphors, traits_of
from headscope.text.document import Document

Candidates = Literal["mentions", "words"]
"""Candidates for the antecedent: head words of earlier mentions, or all other words."""

MENTION_KINDS = ("all", *KINDS)
RULES = ("nearest", "head_match", "sieves")


@dataclass(frozen=True)
class CorefAccuracy(RatioMetric):
    """Share of mentions that attend most to one of their antecedents.

    For each mention with an antecedent, the candidates are the head words of the mentions before it
    (with `candidates="words"`, all other words). The mention is right if, of the candidates, its
    head word attends most to the head word of one of its antecedents; if it attends to no
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
    axis_labels = {"mention_kind": MENTION_KINDS}

    candidates: Candidates = "mentions"

    def __post_init__(self) -> None:
        UnknownName.check("candidates", self.candidates, get_args(Candidates))

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return right mentions, mentions, and mentions of all kinds."""
        queries, allowed, right, kinds = _masks(layer_data, self.candidates)
        highest, best = (word_rows(layer_data, queries) * allowed[:, None]).max(-1)
        is_right = right[:, None].expand(-1, layer_data.n_heads, -1, -1).gather(3, best[..., None])
        is_found = is_right[..., 0] & (highest > 0)
        numerator = is_found.double() @ kinds
        denominator = kinds.sum(1)[:, None].expand_as(numerator)
        return numerator, denominator, denominator[..., 0]


@per_batch
def _masks(layer_data: LayerData, candidates: Candidates) -> tuple[Tensor, ...]:
    """Return head words (`document mention`), candidates and antecedents (`document mention
    word`), and kinds (`document mention kind`).
    """
    by_document = document_anaphors(layer_data)
    has = has_tokens(layer_data)
    shape = len(by_document), max([1, *map(len, by_document)])
    queries = np.zeros(shape, dtype=np.int64)
    allowed = np.zeros((*shape, has.shape[1]))
    right = np.zeros((*shape, has.shape[1]), dtype=bool)
    kinds = np.zeros((*shape, len(MENTION_KINDS)))
    for row, document in enumerate(by_document):
        for number, anaphor in enumerate(document):
            queries[row, number] = anaphor.mention.head_word
            if candidates == "words":
                allowed[row, number] = has[row]
                allowed[row, number, anaphor.mention.head_word] = 0
            else:
                allowed[row, number, [other.head_word for other in anaphor.candidates]] = 1
            right[row, number, list(anaphor.antecedents)] = True
            kinds[row, number] = _kinds(anaphor)
    tensors = (
        torch.from_numpy(array).to(layer_data.device) for array in (queries, allowed, right, kinds)
    )
    queries_, allowed_, right_, kinds_ = tensors
    return queries_, allowed_.to(layer_data.dtype), right_, kinds_


@dataclass(frozen=True)
class CorefBaseline(RatioMetric):
    """Share of mentions whose antecedent a simple rule finds.

    `nearest`: the nearest mention before. `head_match`: the nearest with the same head word; none
    is wrong. `sieves`: the nearest mention in the first of four sieves that has one: the same
    words; the same head word; agreement in number, gender and person
    (`headscope.text.antecedents`); any. Words are compared in lower case. `coref_cases` counts the
    mentions.

    Clark et al. 2019, section 4.3 and Table 2: the rule-based system is after Lee et al. 2011's.
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
    axis_labels = {"mention_kind": MENTION_KINDS, "rule": RULES}

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return right mentions of each rule, mentions, and mentions of all kinds."""
        by_document = document_anaphors(layer_data)
        right = np.zeros((len(by_document), len(MENTION_KINDS), len(RULES)))
        cases = np.zeros((len(by_document), len(MENTION_KINDS)))
        for row, (document, mentions) in enumerate(
            zip(layer_data.batch.documents, by_document, strict=False)
        ):
            for anaphor in mentions:
                kinds = _kinds(anaphor)
                cases[row] += kinds
                guesses = guess(document, anaphor)
                is_right = [guesses[rule] in anaphor.antecedents for rule in RULES]
                right[row] += kinds[:, None] * np.array(is_right)
        return torch.from_numpy(right), torch.from_numpy(cases), torch.from_numpy(cases[:, 0])

    def variables(self) -> tuple[Variable, ...]:
        """Return the ratio, and the mentions of each kind."""
        cases = self.variable(
            "coref_cases", ("mention_kind",), title="", units="mentions", format=".0f"
        )
        return (*super().variables(), cases)

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return the ratio, and the mentions of each kind."""
        return {**super().finalize(state, axes), "coref_cases": state["denominator"].sum(0)}


def guess(document: Document, anaphor: Anaphor) -> dict[str, int | None]:
    """Return the head word that each rule takes for the antecedent, or None."""
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


@per_batch
def document_anaphors(layer_data: LayerData) -> list[list[Anaphor]]:
    """Return the anaphors of each document; empty if the batch has no documents."""
    batch, has = layer_data.batch, has_tokens(layer_data)
    by_document = [
        anaphors(document, has[row].tolist()) for row, document in enumerate(batch.documents)
    ]
    return by_document + [[] for _ in range(len(batch) - len(by_document))]


def _kinds(anaphor: Anaphor) -> np.ndarray:
    return np.array([kind in ("all", anaphor.mention.kind) for kind in MENTION_KINDS], dtype=float)


CONDITION = "condition"
"""Key in `Document.meta` of a document's condition (one of `CONDITIONS`)."""
CONDITIONS = ("pro", "anti")
CANDIDATES = ("true", "other")
N_OCCUPATIONS = 256
"""Cells that occupations are hashed into; few of WinoBias's 40 share one."""


@dataclass(frozen=True)
class Bias(SumMetric):
    """Increase of a pronoun's attention to its antecedent that fits a stereotype.

    In each sentence a pronoun has a true antecedent and another candidate. Sentences come in pairs
    that differ in the pronoun's gender, which fits the stereotype of the true antecedent (`pro`) or
    of the other candidate (`anti`). `bias_attention` is the mean attention from the pronoun to
    each; `bias_preference` the true one's share of the attention to both (a ratio of sums);
    `bias_accuracy` the share of pronouns that attend more to the true one; the gaps are pro minus
    anti: 0 without bias. Attention is between words. Sentences with the same two candidates are in
    the same bucket. Pairs share occupations, so intervals are by occupation, crossed: each case
    counts for both of its candidates (`Jackknife.crossed`).

    Clark et al. 2019, section 4.3, for the data of WinoBias (Zhao et al. 2018); the use case is
    that of Vig 2019, section 2.1.
    """

    name = "bias"
    title = "Preference for the antecedent"
    short_title = "Preference"
    paper = "Clark et al. 2019, section 4.3; Vig 2019, section 2.1"
    units = "share"
    format = ".1%"
    order = 290
    counts = "pronouns"
    needs = frozenset(("mentions",))
    blocks = SELF_BLOCKS
    is_default = False
    axis_labels = {"condition": CONDITIONS, "candidate": CANDIDATES}
    arrays = {
        "attention": ("bucket", "head", "condition", "candidate"),
        "right": ("bucket", "head", "condition"),
        "cases": ("bucket", "condition"),
        "count": ("bucket", "head"),
        "occupation_attention": ("half", "occupation", "head", "condition", "candidate"),
        "occupation_right": ("half", "occupation", "head", "condition"),
        "occupation_cases": ("half", "occupation", "condition"),
    }

    def axis_sizes(self, n_heads: int, axes: Axes) -> dict[str, int]:
        """Return the lengths of the axes of a state."""
        return super().axis_sizes(n_heads, axes) | {"half": 2, "occupation": N_OCCUPATIONS}

    def add(self, state: State, layer_data: LayerData) -> None:
        """Add attention to both candidates, and the preferred one, by bucket and occupation."""
        batch = layer_data.batch
        rows, conditions, masks, queries, index, occupations = _cases(layer_data)
        if not len(rows):
            return
        between = word_rows(layer_data, queries)[:, :, None]  # document head 1 pronoun word
        to = (between * masks[:, None]).sum(-1).double()  # document head candidate pronoun
        attention = to[index[0], :, :, index[1]].cpu().numpy()  # case head candidate
        is_right = attention[..., 0] > attention[..., 1]
        buckets = batch.buckets[rows]
        for case, (bucket, condition) in enumerate(zip(buckets, conditions, strict=True)):
            state["attention"][bucket, :, condition] += attention[case]
            state["right"][bucket, :, condition] += is_right[case]
            state["cases"][bucket, condition] += 1
            state["count"][bucket] += 1
            half = batch.axes.units[bucket] % 2
            for occupation in occupations[case]:
                state["occupation_attention"][half, occupation, :, condition] += attention[case]
                state["occupation_right"][half, occupation, :, condition] += is_right[case]
                state["occupation_cases"][half, occupation, condition] += 1

    def variables(self) -> tuple[Variable, ...]:
        """Return attention, preference and accuracy by condition, and their gaps."""
        heads = ("layer", "head")
        by_condition = ("condition", *heads)
        attention = {"title": "Attention to the candidates", "units": "share of attention"}
        equation = r"\frac{\sum a_{\text{true}}}{\sum a_{\text{true}} + a_{\text{other}}}"
        accuracy = {"title": "Attends more to the antecedent", "short_title": "Accuracy"}
        gap = {"equation": "", "units": "difference of shares"}
        cases = {"title": "", "units": "pronouns", "format": ".0f"}
        candidates = ("condition", "candidate", *heads)
        return (
            self.variable("bias_attention", candidates, short_title="Attention", **attention),
            self.variable("bias_preference", by_condition, equation=equation),
            self.variable("bias_accuracy", by_condition, **accuracy),
            self.variable(
                "bias_preference_gap", heads, title="Gap of preference, pro − anti", **gap
            ),
            self.variable("bias_accuracy_gap", heads, title="Gap of accuracy, pro − anti", **gap),
            self.variable("bias_cases", ("condition",), **cases),
        )

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return the values over all buckets."""
        ratios = self.jackknives(state, axes, np.arange(state["cases"].shape[1]))
        values = {name: estimate.value for name, estimate in ratios.items()}
        return {**values, "bias_cases": state["cases"][0].sum(0)}

    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Return the jackknife of each ratio; gaps are paired, because pairs share a bucket.

        A group of documents has sums of its buckets alone, and intervals over pairs.
        """
        is_measured = state["count"].sum(1) > 0
        sums = [pool(state[name], units, 1) for name in ("attention", "right", "cases")]
        ratios = self._ratios(is_measured, ratio_jackknife, *sums)
        names = ("occupation_attention", "occupation_right", "occupation_cases")
        sums = [np.moveaxis(state[name].sum(1), 1, 0) for name in names]
        if sums[2].sum() != 2 * state["cases"].sum():
            return ratios
        crossed = self._ratios(is_measured, crossed_jackknife, *sums)
        return {name: replace(of, crossed=crossed[name]) for name, of in ratios.items()}

    def _ratios(
        self,
        is_measured: np.ndarray,
        jackknife: Callable[[np.ndarray, np.ndarray, Scale], Jackknife],
        attention: np.ndarray,
        right: np.ndarray,
        cases: np.ndarray,
    ) -> dict[str, Jackknife]:
        """Return the jackknife of each ratio, from sums by cluster: `cluster layer …`."""
        attention, right = attention.transpose(0, 3, 4, 1, 2), right.transpose(0, 3, 1, 2)
        cases = np.where(is_measured, cases.transpose(0, 2, 1)[..., None], 0.0)
        preference = jackknife(attention[:, :, 0], attention.sum(2), "logit")
        accuracy = jackknife(right, cases, "logit")
        return {
            "bias_attention": jackknife(attention, cases[:, :, None], "logit"),
            "bias_preference": preference,
            "bias_accuracy": accuracy,
            "bias_preference_gap": preference.at(0) - preference.at(1),
            "bias_accuracy_gap": accuracy.at(0) - accuracy.at(1),
        }


def rivals(anaphor: Anaphor) -> tuple[set[int], set[int]]:
    """Return head words of a pronoun's antecedents and of other candidates, without pronouns."""
    cluster = anaphor.mention.mention.cluster
    nouns = [c for c in anaphor.candidates if c.kind != "pronoun"]
    true = {c.head_word for c in nouns if c.mention.cluster == cluster}
    return true, {c.head_word for c in nouns if c.mention.cluster != cluster} - true


@per_batch
def _cases(
    layer_data: LayerData,
) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor, list[Tensor], list[tuple[int, int]]]:
    """Return documents and conditions by case, masks of candidates (`document candidate pronoun
    word`), pronouns (`document pronoun`), the indices of cases in these, and occupations by case.
    """
    batch = layer_data.batch
    case_list: list[tuple[int, int, int, int, set[int], set[int]]] = []
    for row, document in enumerate(document_anaphors(layer_data)):
        condition = batch.documents[row].meta.get(CONDITION) if document else None
        if condition in CONDITIONS:
            pronouns = [
                (a.mention.head_word, *rivals(a)) for a in document if a.mention.kind == "pronoun"
            ]
            cases = [case for case in pronouns if case[1] and case[2]]
            case_list += [
                (row, CONDITIONS.index(condition), n, *case) for n, case in enumerate(cases)
            ]
    n_words = has_tokens(layer_data).shape[1]
    most = 1 + max((case[2] for case in case_list), default=0)
    queries = np.zeros((len(batch), most), dtype=np.int64)
    masks = np.zeros((len(batch), 2, most, n_words))
    for row, _, number, query, true, other in case_list:
        queries[row, number] = query
        masks[row, 0, number, list(true)] = 1
        masks[row, 1, number, list(other)] = 1
    numbered = np.array([case[:3] for case in case_list], dtype=np.int64).reshape(-1, 3)
    rows, conditions, numbers = numbered.T
    device = layer_data.device
    return (
        rows,
        conditions,
        torch.from_numpy(masks).to(device, layer_data.dtype),
        torch.from_numpy(queries).to(device),
        [torch.from_numpy(index).to(device) for index in (rows, numbers)],
        [
            (_occupation(batch.documents[row], true), _occupation(batch.documents[row], other))
            for row, _, _, _, true, other in case_list
        ],
    )


def _occupation(document: Document, head_words: set[int]) -> int:
    return crc32(document.words[min(head_words)].lower().encode()) % N_OCCUPATIONS
