"""Attention between words: to a split word the sum over its tokens, from it the mean.

Clark et al. 2019, section 4.1. There rows still sum to 1, because special tokens and tokens
outside all words count as words. Here these are left out: a row sums to the attention to words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headscope.deferred import torch
from headscope.errors import ModelError
from headscope.measuring.kernels import can_compile
from headscope.measuring.reading import Digest, Reading, Small
from headscope.text.align import NO_WORD

if TYPE_CHECKING:
    from torch import Tensor

NOT_A_NUMBER = -2
"""In place of a word, in heads whose attention is not a number."""


def word_weights(reading: Reading) -> Tensor:
    """`document head word word`: attention from each word to each; slot w is word w of the
    document, and rows and columns of words without tokens (and of padding) are 0.

    Shared by the metrics of a layer. For attention within one stack.
    """
    return reading.once("word_weights", lambda: _word_weights(reading))


def word_rows(reading: Reading, queries: Tensor) -> Tensor:
    """`document head row word`: only those rows of `word_weights` that are asked for.

    Args:
        reading: one layer.
        queries: `document row`, the words' numbers.
    """
    to, from_ = word_members(reading)
    documents = torch.arange(len(queries), device=queries.device)[:, None]
    return from_[documents, 0, queries][:, None] @ reading.weights @ to


def other_words(reading: Reading) -> Tensor:
    """`word_weights` without the attention of words to themselves, which is 0 here."""

    def make() -> Tensor:
        weights = _word_weights(reading)
        weights.diagonal(dim1=-2, dim2=-1).zero_()
        return weights

    return reading.once("other_words", make)


def has_tokens(reading: Reading) -> np.ndarray:
    """`document word`: does the word stand in this document, with at least one token?"""
    words = reading.queries.words

    def make() -> np.ndarray:
        has = np.zeros((len(words), _n_words(words)), dtype=bool)
        documents, tokens = np.nonzero(words >= 0)
        has[documents, words[documents, tokens]] = True
        return has

    return reading.batch.once(("has_tokens", reading.block), make)


def word_members(reading: Reading) -> tuple[Tensor, Tensor]:
    """`document 1 token word` to sum what goes to each word, and `document 1 word token` to
    take the mean of what comes from each.
    """
    words = reading.queries.words

    def make() -> tuple[Tensor, Tensor]:
        member = np.zeros((*words.shape, _n_words(words)))
        documents, tokens = np.nonzero(words >= 0)
        member[documents, tokens, words[documents, tokens]] = 1.0
        share = member / np.maximum(member.sum(1, keepdims=True), 1.0)
        to, from_ = (
            torch.from_numpy(array).to(reading.device, reading.dtype) for array in (member, share)
        )
        return to[:, None], from_.transpose(1, 2)[:, None]

    return reading.of_batch("word members", make)


def _word_weights(reading: Reading) -> Tensor:
    to, from_ = (members[:, 0] for members in word_members(reading))
    n, n_heads, n_tokens, _ = reading.weights.shape
    n_words = to.shape[-1]
    # Two products for all heads of a document: many small products take longer.
    to_words = reading.weights.reshape(n, n_heads * n_tokens, n_tokens) @ to
    by_token = to_words.view(n, n_heads, n_tokens, n_words).transpose(1, 2)
    between = from_ @ by_token.reshape(n, n_tokens, n_heads * n_words)
    return between.view(n, n_words, n_heads, n_words).transpose(1, 2)


def _n_words(words: np.ndarray) -> int:
    return max(1, int(words.max(initial=-1)) + 1)


@Digest
def best_words(reading: Reading) -> Small:
    """`document head word`, twice: the other word that each word attends to most, and the
    one that attends to it most. Of equals the first; -1 where none has any attention.

    Raises:
        ModelError: attention is not a number.
    """
    if can_compile(reading):
        from headscope.measuring import compiled

        weights = reading.weights.contiguous().numpy()
        to, from_ = map(torch.from_numpy, compiled.best_words(weights, *_word_tokens(reading)))
    else:
        to, from_ = (_best(other_words(reading), axis) for axis in (-1, -2))
    if (to == NOT_A_NUMBER).any() or (from_ == NOT_A_NUMBER).any():
        raise ModelError(
            f"The model gives attention that is not a number in layer {reading.layer} of "
            f"{reading.block} attention. Check the model on this input, or its precision."
        )
    return to, from_


def _best(weights: Tensor, axis: int) -> Tensor:
    highest, at = weights.max(axis)
    at = at.masked_fill(highest <= 0, NO_WORD)
    return at.masked_fill(highest.isnan(), NOT_A_NUMBER).int()


def _word_tokens(reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """`document token`: tokens sorted by word; `document word+1`: where each word begins."""
    words = reading.queries.words

    def make() -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(words, axis=1, kind="stable")
        sorted_words = np.take_along_axis(words, order, axis=1)
        numbers = np.arange(_n_words(words) + 1)
        starts = (sorted_words[:, None, :] < numbers[:, None]).sum(-1)
        return order.astype(np.int32), starts.astype(np.int32)

    return reading.batch.once(("word tokens", reading.block), make)
