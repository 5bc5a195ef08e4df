"""Which attention counts, and what is known of the tokens there.

Vig & Belinkov leave null attention out: attention to the first token in causal models, to special
tokens in others. Sums run over queries that are not special tokens, and keys that are not
null. All of this is the same for all layers of a block, and is computed once per batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.batch import Sequences
from headscope.deferred import torch
from headscope.measuring.reading import Reading

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The queries and keys that count, as 0 and 1 in the type of the weights."""

    queries: Tensor
    """`document query`: tokens that are not special."""
    keys: Tensor
    """`document key`: tokens that are not null."""
    pairs: Tensor
    """`document query key`: pairs that count."""


def region_of(reading: Reading) -> Region:
    """The region of an attention; the same for all layers of a block."""
    return reading.of_batch("region", lambda: _region(reading))


def everything(reading: Reading) -> Region:
    """The region of all tokens, special ones too."""

    def make() -> Region:
        queries, keys = (
            torch.from_numpy(tokens.mask).to(reading.device, reading.dtype)
            for tokens in (reading.queries, reading.keys)
        )
        return Region(queries, keys, queries[:, :, None] * keys[:, None, :])

    return reading.of_batch("everything", make)


def _region(reading: Reading) -> Region:
    queries, keys, batch = reading.queries, reading.keys, reading.batch
    is_first = batch.null_keys == "first" or (batch.null_keys == "auto" and reading.is_causal)
    if is_first:
        null = np.zeros_like(keys.mask)
        null[np.arange(len(null)), keys.mask.argmax(axis=1)] = True
        null &= keys.mask
    else:
        null = keys.special & keys.mask

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(reading.device, reading.dtype)

    asking, asked = tensor(queries.mask & ~queries.special), tensor(keys.mask & ~null)
    pairs = asking[:, :, None] * asked[:, None, :]
    return Region(asking, asked, pairs.tril() if reading.is_causal else pairs)


def query_counts(reading: Reading, labels: str | None = None, side: str = "query") -> Tensor:
    """`document head`: how many queries count, float64; with `labels` (`tags`,
    `parents`, `relations`) only those of documents that have any on that side.
    """

    def make() -> Tensor:
        queries = region_of(reading).queries.double().sum(-1, keepdim=True)
        counts = queries.expand(-1, reading.n_heads)
        return counts if labels is None else counts * has_labels(reading, labels, side)

    return reading.of_batch(("query counts", reading.n_heads, labels, side), make)


def has_labels(reading: Reading, labels: str, side: str = "query") -> Tensor:
    """`document 1`, float64: 1 where a document has tags (`tags`), a tree (`parents`), a tree
    with labels (`relations`).
    """

    def make() -> Tensor:
        tokens = _sequences(reading, side)
        has = tokens.is_tagged if labels == "tags" else tokens.is_parsed
        if labels == "relations":
            has = has & (tokens.relations >= 0).any(1)
        return torch.from_numpy(has).double()[:, None].to(reading.device)

    return reading.of_batch(("has labels", side, labels), make)


def _sequences(reading: Reading, side: str) -> Sequences:
    return reading.queries if side == "query" else reading.keys


def distances(reading: Reading) -> Tensor:
    """`query key`: how many positions apart."""

    def make() -> Tensor:
        queries = torch.arange(reading.n_queries)[:, None]
        keys = torch.arange(reading.n_keys)[None, :]
        return (queries - keys).abs().to(reading.device, reading.dtype)

    return reading.of_batch("distances", make)


def relations_of_pairs(reading: Reading) -> tuple[Tensor, Tensor]:
    """`document query key`, twice: is the query's word the parent of the key's; is the
    key's the parent of the query's? Tokens of one word are in no relation.
    """

    def make() -> tuple[Tensor, Tensor]:
        tokens = reading.queries
        words, parents = torch.from_numpy(tokens.words), torch.from_numpy(tokens.parents)
        known = (words >= 0) & (parents >= 0)
        key_parent = (parents[:, :, None] == words[:, None, :]) & known[:, :, None]
        return (
            key_parent.transpose(1, 2).to(reading.device, reading.dtype),
            key_parent.to(reading.device, reading.dtype),
        )

    return reading.of_batch("relations_of_pairs", make)


def one_hot(reading: Reading, side: str, labels: str) -> Tensor:
    """`document token label`: the labels (`tags`, `relations`) of the tokens on one side
    (`query`, `key`), float64; all 0 where a token has none.
    """

    def make() -> Tensor:
        numbers = torch.from_numpy(getattr(_sequences(reading, side), labels))
        size = len(getattr(reading.batch.axes, labels))
        hot = torch.nn.functional.one_hot(numbers + 1, size + 1)[..., 1:].double()
        return hot.to(reading.device)

    return reading.of_batch(("one_hot", side, labels), make)
