"""Attention between words, and the words whose parents are predicted.

Attention to a split word is the sum over its tokens, from it the mean (Clark et al. 2019, section
4.1). There, special tokens count as words and rows sum to 1. Here, rows sum to the attention to
words.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headscope.errors import ModelError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.layer_data import (
    BlockReader,
    LayerData,
    Reduction,
    Small,
    per_batch,
    per_layer,
)
from headscope.text.document import ROOT
from headscope.text.tokens import NO_WORD


@per_layer
def word_weights(layer_data: LayerData) -> Tensor:
    """`document head word word`: return attention between words, for attention within one stack.

    Slot w is word w of the document. Words without tokens and padding have 0.
    """
    to, from_ = (members[:, 0] for members in word_members(layer_data))
    n, n_heads, n_tokens, _ = layer_data.weights.shape
    n_words = to.shape[-1]
    # Two products for all heads of a document are faster than many small ones.
    to_words = layer_data.weights.reshape(n, n_heads * n_tokens, n_tokens) @ to
    by_token = to_words.view(n, n_heads, n_tokens, n_words).transpose(1, 2)
    between = from_ @ by_token.reshape(n, n_tokens, n_heads * n_words)
    return between.view(n, n_words, n_heads, n_words).transpose(1, 2)


def other_words(layer_data: LayerData) -> Tensor:
    """Return `word_weights` with 0 on the diagonal."""
    weights = word_weights(layer_data)
    return weights * (1 - torch.eye(weights.shape[-1]).to(weights))


@per_batch
def has_tokens(layer_data: LayerData, *, asking: bool = False) -> np.ndarray:
    """`document word`: return whether the word has at least one token, or one that asks."""
    words, context = layer_data.queries.words, layer_data.queries.context
    has = np.zeros((len(words), _n_words(words)), dtype=bool)
    is_read = words >= 0 if context is None or not asking else (words >= 0) & ~context
    documents, tokens = np.nonzero(is_read)
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


def _n_words(words: np.ndarray) -> int:
    return max(1, int(words.max(initial=-1)) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class WordRows:
    """Attention from some words of a batch, one entry each, sorted by document and word."""

    layer_data: LayerData
    """Block of rows in which these words end."""
    document: np.ndarray
    word: np.ndarray
    weights: Tensor
    """`entry head word`, 0 from a word to itself."""

    def entries(self, document: np.ndarray, word: np.ndarray) -> np.ndarray:
        """Return the entry of each of these words, -1 for those that end in other blocks."""
        n_words = self.weights.shape[-1]
        known, wanted = (d * n_words + w for d, w in ((self.document, self.word), (document, word)))
        entry = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        is_here = known[entry] == wanted if len(known) else np.zeros(len(wanted), dtype=bool)
        return np.where(is_here, entry, -1)


class OfWords(Reduction):
    """Reduction of attention between words: `function` gets the `WordRows` of each block."""

    @classmethod
    def start(cls, first: LayerData, reductions: Sequence[Reduction]) -> BlockReader:
        """Return a reader that keeps words whose tokens are in two blocks."""
        return _WordReader(cls, reductions)


class _WordReader(BlockReader):
    """Reader of blocks that keeps the rows of a word until its last token."""

    def __init__(self, kind: type[Reduction], reductions: Sequence[Reduction]) -> None:
        super().__init__(kind, reductions)
        self._open: dict[int, Tensor] = {}
        """Sums of rows by document and word, of words with tokens in later blocks."""

    def read_all(self, block: LayerData) -> dict[Reduction, Small]:
        """Compute the reductions of the words that end in a block."""
        words = self._ended(block)
        return {reduction: reduction.function(words) for reduction in self._reductions}

    def _ended(self, block: LayerData) -> WordRows:
        words, weights = block.queries.words, block.weights
        counts, last = _word_tokens(block)
        n_words = counts.shape[1]
        to = np.where(words[:, : block.n_keys] < 0, n_words, words[:, : block.n_keys])
        index = torch.from_numpy(to).to(weights.device)[:, None, None].expand_as(weights)
        by_token = weights.new_zeros((*weights.shape[:3], n_words + 1))
        by_token = by_token.scatter_add_(3, index, weights)[..., :n_words].transpose(1, 2)
        documents, tokens = np.nonzero(words[:, block.rows] >= 0)
        owners = documents * n_words + words[:, block.rows][documents, tokens]
        known, entry = np.unique(owners, return_inverse=True)
        sums = weights.new_zeros((len(known), block.n_heads, n_words))
        sums.index_add_(0, torch.from_numpy(entry).to(sums.device), by_token[documents, tokens])
        for at in np.flatnonzero(np.isin(known, [*self._open])):
            sums[at] += self._open.pop(int(known[at]))
        document, word = np.divmod(known, n_words)
        is_ended = last[document, word] < block.rows.stop
        for at in np.flatnonzero(~is_ended):
            self._open[int(known[at])] = sums[at].clone()
        sums, document, word = sums[is_ended], document[is_ended], word[is_ended]
        sums[np.arange(len(word)), :, word] = 0
        sums /= torch.from_numpy(counts[document, word]).to(sums)[:, None, None]
        if sums.isnan().any():
            raise ModelError(
                f"The model's attention is not a number in layer {block.layer} of "
                f"{block.block} attention. Check the model on this input, or its precision."
            )
        return WordRows(block, document, word, sums)


@per_batch
def _word_tokens(layer_data: LayerData) -> tuple[np.ndarray, np.ndarray]:
    """`document word`, twice: return the number of tokens, and the position of the last."""
    words = layer_data.queries.words
    counts, last = np.zeros((2, len(words), _n_words(words)), dtype=np.int64)
    documents, tokens = np.nonzero(words >= 0)
    np.add.at(counts, (documents, words[documents, tokens]), 1)
    last[documents, words[documents, tokens]] = tokens  # the last assignment counts
    return counts, last


def _best_words(words: WordRows) -> Small:
    """`document head word`: return the other word that each word attends to most; the word that
    attends to it most; and with what weight. Ties go to the first; -1 without attention.
    """
    weights, batch = words.weights, words.layer_data.batch
    shape = len(batch), *weights.shape[1:]
    to, from_ = torch.full((2, *shape), NO_WORD, dtype=torch.int32, device=weights.device)
    most = weights.new_zeros(shape)
    if len(weights):
        highest, best = weights.max(-1)
        found = best.masked_fill(highest <= 0, NO_WORD).int()
        to[words.document, :, words.word] = found
    starts = np.searchsorted(words.document, np.arange(len(batch) + 1))
    for row, (start, stop) in enumerate(itertools.pairwise(starts)):
        if start < stop:
            most[row], best = weights[start:stop].max(0)
            numbers = torch.from_numpy(words.word[start:stop]).to(best.device)
            from_[row] = numbers[best].masked_fill(most[row] <= 0, NO_WORD)
    return to, from_, most


def _join_best_words(parts: Sequence[Small], _starts: Sequence[int]) -> Small:
    """Return the words of all blocks; each attends in one of them."""
    to, from_, most = map(torch.stack, zip(*parts, strict=True))
    highest = most.amax(0)
    after_all = to.shape[-1]
    first = from_.masked_fill((most < highest) | (from_ < 0), after_all).amin(0)
    return to.amax(0), first.masked_fill(highest <= 0, NO_WORD), highest


best_words = OfWords(_best_words, _join_best_words)


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
    token or that another window counts, with an unknown parent (cut or not read), and by default
    punctuation.
    """
    batch, trees = layer_data.batch, layer_data.queries
    has = has_tokens(layer_data)
    parents = np.full(has.shape, ROOT - 1, dtype=np.int64)
    relations = np.full(has.shape, -1, dtype=np.int64)
    documents, tokens = np.nonzero((trees.words >= 0) & trees.is_parsed[:, None])
    words = trees.words[documents, tokens]
    parents[documents, words] = trees.parents[documents, tokens]
    relations[documents, words] = trees.relations[documents, tokens]
    counted = has_tokens(layer_data, asking=True) & trees.is_parsed[:, None] & (parents >= ROOT)
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
