"""Antecedents of mentions by attention, and gender bias in the choice between two candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple, get_args
from zlib import crc32

import numpy as np

from headscope.batch import Axes
from headscope.errors import UnknownName
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import SELF_BLOCKS, RatioMetric, State, SumMetric, Variable
from headscope.metrics.core.layer_data import LayerData, Reduction, Small, join_by, per_batch
from headscope.metrics.core.word_attention import OfWords, WordRows, has_tokens
from headscope.statistics.jackknife import (
    Jackknife,
    Scale,
    crossed_jackknife,
    pool,
    ratio_jackknife,
)
from headscope.text.antecedents import (
    KINDS,
    Anaphor,
    Headed,
    agree,
    anaphors,
    headed_mentions,
    traits_of,
)
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
        (numerator,) = _found(self.candidates)(layer_data)
        asked = _mentions(layer_data)
        cases = np.zeros((len(layer_data.batch), len(MENTION_KINDS)))
        np.add.at(cases, asked.document[asked.counts], asked.kinds[asked.counts])
        denominator = torch.from_numpy(cases)[:, None].to(numerator.device).expand_as(numerator)
        return numerator, denominator, denominator[..., 0]

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Number of right mentions."""
        return (_found(self.candidates),)


class _Mentions(NamedTuple):
    """Mentions of a batch, one entry each."""

    document: np.ndarray
    word: np.ndarray
    """Head word."""
    kinds: np.ndarray
    """`mention kind`: memberships."""
    cluster: np.ndarray
    """Number of the cluster, not the same in two documents."""
    counts: np.ndarray
    """True for mentions that have an antecedent and are not another window's."""


@per_batch
def _mentions(layer_data: LayerData) -> _Mentions:
    has, asking = has_tokens(layer_data), has_tokens(layer_data, asking=True)
    first: dict[tuple[int, str], tuple[int, int]] = {}
    """By document and cluster: its number, and its first head word."""
    rows = []
    for row, document in enumerate(layer_data.batch.documents):
        for mention in headed_mentions(document, has[row].tolist()):
            word, key = mention.head_word, (row, mention.mention.cluster)
            number, start = first.setdefault(key, (len(first), word))
            rows.append((row, word, number, start < word and asking[row, word], *_kinds(mention)))
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4 + len(MENTION_KINDS)).T
    documents, words, clusters, counts, *kinds = columns
    return _Mentions(documents, words, np.stack(kinds, 1), clusters, counts > 0)


@cache
def _found(candidates: Candidates) -> OfWords:
    """`document head kind`, float64: number of mentions that attend most to an antecedent."""

    def read(words: WordRows) -> Small:
        layer_data, n_words = words.layer_data, words.weights.shape[-1]
        all_mentions = _mentions(layer_data)
        entries = words.entries(all_mentions.document, all_mentions.word)
        here = np.flatnonzero(all_mentions.counts & (entries >= 0))
        document, word, kinds, cluster, _ = (column[here] for column in all_mentions)
        weights = words.weights[entries[here]]
        found = torch.zeros(
            (len(layer_data.batch), layer_data.n_heads, len(MENTION_KINDS)), dtype=torch.float64
        )
        if len(here):
            members = has_tokens(layer_data)
            allowed = members[document] & (np.arange(n_words) != word[:, None])
            if candidates == "mentions":
                members = np.zeros_like(members)
                members[all_mentions.document, all_mentions.word] = True
                allowed = members[document] & (np.arange(n_words) < word[:, None])
            highest, best = (weights * torch.from_numpy(allowed).to(weights)[:, None]).max(-1)
            guess, pairs = best.cpu().numpy(), all_mentions.cluster * n_words + all_mentions.word
            is_right = np.isin(cluster[:, None] * n_words + guess, pairs) & (guess < word[:, None])
            is_right &= (highest > 0).cpu().numpy()
            right = torch.from_numpy(is_right[..., None] * kinds[:, None]).double()
            found.index_add_(0, torch.from_numpy(document), right)
        return (found.to(weights.device),)

    return OfWords(read, join_by("sum"))


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
        batch = layer_data.batch
        right = np.zeros((len(batch), len(MENTION_KINDS), len(RULES)))
        cases = np.zeros((len(batch), len(MENTION_KINDS)))
        for row, mentions in enumerate(document_anaphors(layer_data)):
            for anaphor in mentions:
                kinds = np.array(_kinds(anaphor.mention))
                cases[row] += kinds
                guesses = guess(batch.documents[row], anaphor)
                right[row] += kinds[:, None] * [guesses[r] in anaphor.antecedents for r in RULES]
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
    """Return the anaphors of each document, without those of other windows; empty if the batch has
    no documents.
    """
    has, asking = has_tokens(layer_data), has_tokens(layer_data, asking=True)
    return [
        [a for a in anaphors(document, has[row].tolist()) if asking[row, a.mention.head_word]]
        for row, document in enumerate(layer_data.batch.documents)
    ]


def _kinds(mention: Headed) -> list[bool]:
    return [kind in ("all", mention.kind) for kind in MENTION_KINDS]


CONDITION = "condition"
"""Key in `Document.meta` of a document's condition (one of `CONDITIONS`)."""
CONDITIONS = ("pro", "anti")
CANDIDATES = ("true", "other")
N_OCCUPATIONS = 256
"""Cells that occupations are hashed into; few of WinoBias's 40 share one."""


class _Case(NamedTuple):
    """Pronoun with a true antecedent and another candidate."""

    document: int
    number: int
    """Number in its document."""
    condition: int
    word: int
    candidates: tuple[set[int], set[int]]
    """Head words of the true antecedent and of the other candidate."""
    occupations: tuple[int, int]


@per_batch
def _cases(layer_data: LayerData) -> list[_Case]:
    cases = []
    for row, mentions in enumerate(document_anaphors(layer_data)):
        document = layer_data.batch.documents[row]
        condition = document.meta.get(CONDITION)
        if condition not in CONDITIONS:
            continue
        pronouns = [
            (a.mention.head_word, rivals(a)) for a in mentions if a.mention.kind == "pronoun"
        ]
        both = [(word, candidates) for word, candidates in pronouns if all(candidates)]
        for number, (word, (true, other)) in enumerate(both):
            occupations = _occupation(document, true), _occupation(document, other)
            at = row, number, CONDITIONS.index(condition), word
            cases.append(_Case(*at, (true, other), occupations))
    return cases


def _candidate_sums(words: WordRows) -> Small:
    """`document head pronoun candidate`, float64: attention to the words of each candidate."""
    cases = _cases(words.layer_data)
    places = np.array([(case.document, case.word) for case in cases], dtype=np.int64)
    entries = words.entries(*places.reshape(-1, 2).T)
    shape = len(words.layer_data.batch), words.layer_data.n_heads
    n_pronouns = 1 + max((case.number for case in cases), default=0)
    paid = words.weights.new_zeros((*shape, n_pronouns, len(CANDIDATES)), dtype=torch.float64)
    for case, entry in zip(cases, entries, strict=True):
        if entry >= 0:
            for number, candidate in enumerate(case.candidates):
                to = words.weights[entry][:, sorted(candidate)].sum(-1)
                paid[case.document, :, case.number, number] = to.double()
    return (paid,)


_to_candidates = OfWords(_candidate_sums, join_by("sum"))


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
    reductions = (_to_candidates,)
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
        batch, cases = layer_data.batch, _cases(layer_data)
        (paid,) = _to_candidates(layer_data)
        for row, number, condition, _, _, occupations in cases:
            attention = paid[row, :, number].cpu().numpy()  # head candidate
            is_right = attention[:, 0] > attention[:, 1]
            bucket = batch.buckets[row]
            state["attention"][bucket, :, condition] += attention
            state["right"][bucket, :, condition] += is_right
            state["cases"][bucket, condition] += 1
            state["count"][bucket] += 1
            half = batch.axes.units[bucket] % 2
            for occupation in occupations:
                state["occupation_attention"][half, occupation, :, condition] += attention
                state["occupation_right"][half, occupation, :, condition] += is_right
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


def _occupation(document: Document, head_words: set[int]) -> int:
    return crc32(document.words[min(head_words)].lower().encode()) % N_OCCUPATIONS
