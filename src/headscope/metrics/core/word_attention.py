"""Attention between words, and the words whose parents are predicted.

Attention to a split word is the sum over its tokens, from it the mean (Clark et al. 2019, section
4.1). There, special tokens count as words and rows sum to 1. Here, rows sum to the attention to
words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from headscope.errors import ModelError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.layer_data import (
    LayerData,
    Reduction,
    Small,
    can_compile,
    per_batch,
    per_layer,
)
from headscope.text.document import ROOT
from headscope.text.tokens import NO_WORD

NOT_A_NUMBER = -2
"""Word number in heads with NaN attention."""


@per_layer
def word_weights(layer_data: LayerData) -> Tensor:
    """`document head word word`: return attention between words, for attention within one stack.

    Slot w is word w of the document. Words without tokens and padding have 0.
    """
    return _word_weights(layer_data)


def word_rows(layer_data: LayerData, queries: Tensor) -> Tensor:
    """`document head row word`: return `word_weights` of some words (`document row`)."""
    to, from_ = word_members(layer_data)
    documents = torch.arange(len(queries), device=queries.device)[:, None]
    return from_[documents, 0, queries][:, None] @ layer_data.weights @ to


@per_layer
def other_words(layer_data: LayerData) -> Tensor:
    """Return `word_weights` with 0 on the diagonal."""
    weights = _word_weights(layer_data)
    weights.diagonal(dim1=-2, dim2=-1).zero_()
    return weights


@per_batch
def has_tokens(layer_data: LayerData) -> np.ndarray:
    """`document word`: return whether the word has at least one token."""
    words = layer_data.queries.words
    has = np.zeros((len(words), _n_words(words)), dtype=bool)
    documents, tokens = np.nonzero(words >= 0)
    has[documents, words[documents, tokens]] = True
    return has


@per_batch
def word_members(layer_data: LayerData) -> tuple[Tensor, Tensor]:
    """Return matrices that sum (`document 1 token word`) and average (`… word token`) tokens."""
    words = layer_data.queries.words
    member = np.zeros((*words.shape, _n_words(words)))
    documents, tokens = np.nonzero(words >= 0)
    member[documents, tokens, words[documents, tokens]] = 1.0
    share = member / np.maximum(member.sum(1, keepdims=True), 1.0)
    to, from_ = (
        torch.from_numpy(array).to(layer_data.device, layer_data.dtype) for array in (member, share)
    )
    return to[:, None], from_.transpose(1, 2)[:, None]


def _word_weights(layer_data: LayerData) -> Tensor:
    to, from_ = (members[:, 0] for members in word_members(layer_data))
    n, n_heads, n_tokens, _ = layer_data.weights.shape
    n_words = to.shape[-1]
    # Two products for all heads of a document are faster than many small ones.
    to_words = layer_data.weights.reshape(n, n_heads * n_tokens, n_tokens) @ to
    by_token = to_words.view(n, n_heads, n_tokens, n_words).transpose(1, 2)
    between = from_ @ by_token.reshape(n, n_tokens, n_heads * n_words)
    return between.view(n, n_words, n_heads, n_words).transpose(1, 2)


def _n_words(words: np.ndarray) -> int:
    return max(1, int(words.max(initial=-1)) + 1)


@Reduction
def best_words(layer_data: LayerData) -> Small:
    """`document head word`, twice: return the other word that each word attends to most, and the
    word that attends to it most.

    Ties go to the first; -1 without attention. Raises ModelError if attention is NaN.
    """
    if can_compile(layer_data):
        from headscope.metrics.core import compiled

        weights = layer_data.weights.contiguous().numpy()
        to, from_ = map(torch.from_numpy, compiled.best_words(weights, *_word_tokens(layer_data)))
    else:
        both = [other_words(layer_data).max(axis) for axis in (-1, -2)]
        to, from_ = (
            words.masked_fill(highest <= 0, NO_WORD).masked_fill(highest.isnan(), NOT_A_NUMBER)
            for highest, words in both
        )
        to, from_ = to.int(), from_.int()
    if (to == NOT_A_NUMBER).any() or (from_ == NOT_A_NUMBER).any():
        raise ModelError(
            f"The model's attention is not a number in layer {layer_data.layer} of "
            f"{layer_data.block} attention. Check the model on this input, or its precision."
        )
    return to, from_


@per_batch
def _word_tokens(layer_data: LayerData) -> tuple[np.ndarray, np.ndarray]:
    """`document token`, `document word+1`: return tokens sorted by word, and the word starts."""
    words = layer_data.queries.words
    order = np.argsort(words, axis=1, kind="stable")
    sorted_words = np.take_along_axis(words, order, axis=1)
    numbers = np.arange(_n_words(words) + 1)
    starts = (sorted_words[:, None, :] < numbers[:, None]).sum(-1)
    return order.astype(np.int32), starts.astype(np.int32)


ALL = "all"
PUNCTUATION = "punct"
Possessive = Literal["auto", True, False]
"""Option to let the possessive particle predict instead of the word before it. `auto`: in data with
Stanford's `poss`."""
POSSESSIVE = frozenset(("poss", "nmod:poss"))
PARTICLES = frozenset(("'s", "’s", "s'", "s’", "'", "’"))


@dataclass(frozen=True, slots=True, eq=False)
class DepCases:
    """Words of a batch that count, one entry each."""

    document: np.ndarray
    """Row of the document in the batch."""
    query: np.ndarray
    """Predicting word: the word itself, or the possessive particle after it."""
    parent: np.ndarray
    """Parent of the word; negative for the root."""
    relation: np.ndarray
    """Number in `Axes.relations`; `len(Axes.relations)` for a word without a relation."""
    bucket: np.ndarray
    has_target: np.ndarray
    """True if the parent is a word that the model reads."""

    def visible(self, *, is_causal: bool) -> np.ndarray:
        """`direction case`: true if a word can attend to its parent, and the parent to it."""
        sides = np.stack((self.parent < self.query, self.parent > self.query))
        return self.has_target & (sides | (not is_causal))


@per_batch
def dep_cases(layer_data: LayerData, *, punctuation: bool, possessive: Possessive) -> DepCases:
    """Return the words of a batch that count, the root included. Left out are words without a
    token, with an unknown parent (cut or not read), and by default punctuation.
    """
    batch, trees = layer_data.batch, layer_data.queries
    has = has_tokens(layer_data)
    parents = np.full(has.shape, ROOT - 1, dtype=np.int64)
    relations = np.full(has.shape, -1, dtype=np.int64)
    documents, tokens = np.nonzero((trees.words >= 0) & trees.is_parsed[:, None])
    words = trees.words[documents, tokens]
    parents[documents, words] = trees.parents[documents, tokens]
    relations[documents, words] = trees.relations[documents, tokens]
    counted = has & trees.is_parsed[:, None] & (parents >= ROOT)
    if batch.is_cut is not None:
        last = has.shape[1] - 1 - has[:, ::-1].argmax(axis=1)
        counted &= ~(batch.is_cut[:, None] & (parents > last[:, None]))
    names = batch.axes.relations
    if not punctuation and PUNCTUATION in names:
        counted &= relations != names.index(PUNCTUATION)
    document, word = np.nonzero(counted)
    parent = parents[document, word]
    inside = np.clip(parent, 0, has.shape[1] - 1)
    query = word.copy()
    is_possessive = "poss" in names if possessive == "auto" else possessive
    if is_possessive:
        after = np.zeros(has.shape, dtype=bool)  # the next word is a particle with a token
        for row, text in enumerate(batch.documents):
            for number, form in enumerate(text.words[1 : has.shape[1]]):
                after[row, number] = form.lower() in PARTICLES and has[row, number + 1]
        owned = [number for number, name in enumerate(names) if name in POSSESSIVE]
        query[after[document, word] & np.isin(relations[document, word], owned)] += 1
    relation = relations[document, word]
    return DepCases(
        document=document,
        query=query,
        parent=parent,
        relation=np.where(relation < 0, len(names), relation),
        bucket=np.asarray(batch.buckets, dtype=np.int64)[document],
        has_target=(parent >= 0) & (parent < has.shape[1]) & has[document, inside],
    )


def add_cases(by_relation: np.ndarray, total: np.ndarray, cases: DepCases, rows: Tensor) -> None:
    """Add the rows (`case …`) to `bucket relation …` and `bucket …`, in place."""
    rows = rows.double()
    torch.from_numpy(total).index_add_(0, torch.from_numpy(cases.bucket), rows)
    n_relations = by_relation.shape[1]
    has = cases.relation < n_relations
    bins = torch.from_numpy((cases.bucket * n_relations + cases.relation)[has])
    flat = torch.from_numpy(by_relation).view(-1, *by_relation.shape[2:])
    flat.index_add_(0, bins, rows if has.all() else rows[torch.from_numpy(has)])
