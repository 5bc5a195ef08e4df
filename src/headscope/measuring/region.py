"""Which attention counts, and what is known of the tokens there.

Vig & Belinkov leave null attention out: the first token in causal attention, special
tokens elsewhere. Sums run over query tokens that are not special, and keys that are not
null. All of this is the same for all layers of a block and is made once per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Batch, Sequences
from headscope.measuring.contract import batch_of

__all__ = [
    "Region",
    "distances",
    "everything",
    "has_labels",
    "of_batch",
    "one_hot",
    "query_counts",
    "region_of",
    "relations_of_pairs",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The queries and keys that count, as 0 and 1 in the type of the weights."""

    queries: Tensor
    """`document query`: tokens that are not special."""
    keys: Tensor
    """`document key`: tokens that are not null."""
    pairs: Tensor
    """`document query key`: pairs that count."""


def region_of(attention: Attention) -> Region:
    """The region of an attention; the same for all layers of a block."""
    batch = batch_of(attention)
    return of_batch(attention, "region", lambda: _region(attention, batch))


def everything(attention: Attention) -> Region:
    """The region of all tokens, special ones too."""

    def make() -> Region:
        batch = batch_of(attention)
        queries, keys = (
            torch.from_numpy(found.mask).to(attention.weights)
            for found in (
                batch.query_sequences(attention.block),
                batch.key_sequences(attention.block),
            )
        )
        return Region(queries, keys, queries[:, :, None] * keys[:, None, :])

    return of_batch(attention, "everything", make)


def _region(attention: Attention, batch: Batch) -> Region:
    queries = batch.query_sequences(attention.block)
    keys = batch.key_sequences(attention.block)
    is_first = batch.null_keys == "first" or (batch.null_keys == "auto" and attention.is_causal)
    if is_first:
        null = np.zeros_like(keys.mask)
        null[np.arange(len(null)), keys.mask.argmax(axis=1)] = True
        null &= keys.mask
    else:
        null = keys.special & keys.mask

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(attention.weights)

    asking, asked = tensor(queries.mask & ~queries.special), tensor(keys.mask & ~null)
    pairs = asking[:, :, None] * asked[:, None, :]
    return Region(asking, asked, pairs.tril() if attention.is_causal else pairs)


def query_counts(attention: Attention, labels: str | None = None, side: str = "query") -> Tensor:
    """`document head`: how many queries count, float64; with `labels` (`tags`,
    `parents`, `relations`) only those of documents that have any on that side.
    """

    def make() -> Tensor:
        queries = region_of(attention).queries.double().sum(-1, keepdim=True)
        counts = queries.expand(-1, attention.n_heads)
        return counts if labels is None else counts * has_labels(attention, labels, side)

    return of_batch(attention, ("query counts", attention.n_heads, labels, side), make)


def has_labels(attention: Attention, labels: str, side: str = "query") -> Tensor:
    """`document 1`, float64: 1 where a document has tags (`tags`), a tree (`parents`), a tree
    with labels (`relations`).
    """

    def make() -> Tensor:
        found = _sequences(attention, side)
        has = found.is_tagged if labels == "tags" else found.is_parsed
        if labels == "relations":
            has = has & (found.relations >= 0).any(1)
        return torch.from_numpy(has).double()[:, None].to(attention.weights.device)

    return of_batch(attention, ("has labels", side, labels), make)


def _sequences(attention: Attention, side: str) -> Sequences:
    batch = batch_of(attention)
    of_side = batch.query_sequences if side == "query" else batch.key_sequences
    return of_side(attention.block)


def distances(attention: Attention) -> Tensor:
    """`query key`: how many positions apart."""

    def make() -> Tensor:
        n_queries, n_keys = attention.weights.shape[2:]
        queries, keys = torch.arange(n_queries)[:, None], torch.arange(n_keys)[None, :]
        return (queries - keys).abs().to(attention.weights)

    return of_batch(attention, "distances", make)


def relations_of_pairs(attention: Attention) -> tuple[Tensor, Tensor]:
    """`document query key`, twice: is the query's word the head of the key's; is the
    key's the head of the query's? Tokens of one word are in no relation.
    """

    def make() -> tuple[Tensor, Tensor]:
        found = batch_of(attention).query_sequences(attention.block)
        words, parents = torch.from_numpy(found.words), torch.from_numpy(found.parents)
        known = (words >= 0) & (parents >= 0)
        key_parent = (parents[:, :, None] == words[:, None, :]) & known[:, :, None]
        return (
            key_parent.transpose(1, 2).to(attention.weights),
            key_parent.to(attention.weights),
        )

    return of_batch(attention, "relations_of_pairs", make)


def one_hot(attention: Attention, side: str, labels: str) -> Tensor:
    """`document token label`: the labels (`tags`, `relations`) of the tokens on one side
    (`query`, `key`), float64; all 0 where a token has none.
    """

    def make() -> Tensor:
        numbers = torch.from_numpy(getattr(_sequences(attention, side), labels))
        size = len(getattr(batch_of(attention).axes, labels))
        hot = torch.nn.functional.one_hot(numbers + 1, size + 1)[..., 1:].double()
        return hot.to(attention.weights.device)

    return of_batch(attention, ("one_hot", side, labels), make)


def of_batch(attention: Attention, name: object, make: Callable[[], T]) -> T:
    """What `make` returns, once for all layers of a block: the batch keeps it."""
    weights = attention.weights
    key = (name, attention.block, weights.dtype, weights.device, tuple(weights.shape[2:]))
    return batch_of(attention).once(key, make)
