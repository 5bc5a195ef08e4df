"""Which attention counts, and the sums over it that several metrics share.

Vig & Belinkov leave null attention out: the first token in causal attention, special
tokens elsewhere. Sums run over query tokens that are not special, and keys that are not
null. Each form below reads a layer's weights once and is kept for the metrics that follow.
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
from headscope.metrics.base import batch_of

__all__ = [
    "Region",
    "buffer",
    "column_mass",
    "distances",
    "has_labels",
    "null_mass",
    "one_hot",
    "pair_sums",
    "query_counts",
    "region_of",
    "region_weights",
    "relations_of_pairs",
    "row_mass",
    "row_sums",
    "total_mass",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The queries and keys that count, as 0 and 1 in the type of the weights."""

    queries: Tensor
    """`document query`: tokens that are not special."""
    keys: Tensor
    """`document key`: tokens that are not null."""
    null: Tensor
    """`document key`: tokens that are."""
    is_causal: bool

    def pairs(self) -> Tensor:
        """`document query key`: pairs that count."""
        pairs = self.queries[:, :, None] * self.keys[:, None, :]
        return pairs.tril() if self.is_causal else pairs


def region_of(attention: Attention) -> Region:
    """The region of an attention; the same for all layers of a block."""
    batch = batch_of(attention)
    return _once(attention, "region", lambda: _region(attention, batch))


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

    return Region(
        tensor(queries.mask & ~queries.special),
        tensor(keys.mask & ~null),
        tensor(null),
        attention.is_causal,
    )


def row_mass(attention: Attention) -> Tensor:
    """`document head query`: attention of each query to keys that count, float64."""
    return attention.once("row_mass", lambda: row_sums(region_weights(attention)))


def total_mass(attention: Attention) -> Tensor:
    """`document head`: all attention that counts, float64."""
    return attention.once("total_mass", lambda: row_mass(attention).sum(-1))


def query_counts(attention: Attention, labels: str | None = None, side: str = "query") -> Tensor:
    """`document head`: how many queries count, float64; with `labels` (`tags`,
    `heads`, `relations`) only those of documents that have any on that side.
    """

    def make() -> Tensor:
        queries = region_of(attention).queries.double().sum(-1, keepdim=True)
        counts = queries.expand(-1, attention.n_heads)
        return counts if labels is None else counts * has_labels(attention, labels, side)

    return _once(attention, ("query counts", attention.n_heads, labels, side), make)


def has_labels(attention: Attention, labels: str, side: str = "query") -> Tensor:
    """`document 1`, float64: 1 where a document has tags (`tags`), a tree (`heads`), a tree
    with labels (`relations`).
    """

    def make() -> Tensor:
        found = _sequences(attention, side)
        has = found.is_tagged if labels == "tags" else found.is_parsed
        if labels == "relations":
            has = has & (found.relations >= 0).any(1)
        return torch.from_numpy(has).double()[:, None].to(attention.weights.device)

    return _once(attention, ("has labels", side, labels), make)


def _sequences(attention: Attention, side: str) -> Sequences:
    batch = batch_of(attention)
    of_side = batch.query_sequences if side == "query" else batch.key_sequences
    return of_side(attention.block)


def null_mass(attention: Attention) -> Tensor:
    """`document head query`: attention of each query to null keys, float64: the rest."""

    def make() -> Tensor:
        queries = region_of(attention).queries[:, None, :]
        rest = row_sums(attention.weights) * queries - row_mass(attention)
        return rest.clamp_min_(0.0)

    return attention.once("null_mass", make)


def row_sums(weights: Tensor) -> Tensor:
    """`document head query`: one product, which is faster than a sum over short rows."""
    n_keys = weights.shape[-1]
    ones = weights.new_ones(n_keys)
    return torch.mv(weights.reshape(-1, n_keys), ones).view(weights.shape[:-1]).double()


def column_mass(attention: Attention) -> Tensor:
    """`document head key`: attention each key receives from queries that count, float64."""
    return attention.once("column_mass", lambda: region_weights(attention).sum(-2).double())


def region_weights(attention: Attention) -> Tensor:
    """`document head query key`: the weights of the region, 0 outside.

    In memory that the next layer uses again: not to be kept beyond this one.
    """

    def make() -> Tensor:
        pairs = _once(attention, "pairs", lambda: region_of(attention).pairs()[:, None])
        return torch.mul(attention.weights, pairs, out=buffer(attention, "region_weights"))

    return attention.once("region_weights", make)


def buffer(attention: Attention, name: str) -> Tensor:
    """Memory in the shape of the weights, the same for all layers of a batch: fresh pages
    cost more than the arithmetic.
    """
    weights = attention.weights
    key = ("buffer", name, weights.shape[1])
    return _once(attention, key, lambda: torch.empty_like(weights, requires_grad=False))


def pair_sums(attention: Attention) -> Tensor:
    """`document head 3`, float64: attention times distance, attention where the query is
    the parent, and where the key is; one product with the flattened weights.
    """

    def forms() -> Tensor:
        pairs = region_of(attention).pairs()
        query_parent, key_parent = relations_of_pairs(attention)
        both = (distances(attention).expand_as(pairs), query_parent, key_parent)
        return torch.stack([form * pairs for form in both], dim=1).flatten(2)

    def make() -> Tensor:
        flat = attention.weights.flatten(2).transpose(1, 2)
        return torch.bmm(_once(attention, "forms", forms), flat).transpose(1, 2).double()

    return attention.once("pair_sums", make)


def distances(attention: Attention) -> Tensor:
    """`query key`: how many positions apart."""

    def make() -> Tensor:
        n_queries, n_keys = attention.weights.shape[2:]
        queries, keys = torch.arange(n_queries)[:, None], torch.arange(n_keys)[None, :]
        return (queries - keys).abs().to(attention.weights)

    return _once(attention, "distances", make)


def relations_of_pairs(attention: Attention) -> tuple[Tensor, Tensor]:
    """`document query key`, twice: is the query's word the head of the key's; is the
    key's the head of the query's? Tokens of one word are in no relation.
    """

    def make() -> tuple[Tensor, Tensor]:
        found = batch_of(attention).query_sequences(attention.block)
        words, heads = torch.from_numpy(found.words), torch.from_numpy(found.heads)
        known = (words >= 0) & (heads >= 0)
        key_parent = (heads[:, :, None] == words[:, None, :]) & known[:, :, None]
        return (
            key_parent.transpose(1, 2).to(attention.weights),
            key_parent.to(attention.weights),
        )

    return _once(attention, "relations_of_pairs", make)


def one_hot(attention: Attention, side: str, labels: str) -> Tensor:
    """`document token label`: the labels (`tags`, `relations`) of the tokens on one side
    (`query`, `key`), float64; all 0 where a token has none.
    """

    def make() -> Tensor:
        numbers = torch.from_numpy(getattr(_sequences(attention, side), labels))
        size = len(getattr(batch_of(attention).axes, labels))
        hot = torch.nn.functional.one_hot(numbers + 1, size + 1)[..., 1:].double()
        return hot.to(attention.weights.device)

    return _once(attention, ("one_hot", side, labels), make)


def _once(attention: Attention, name: object, make: Callable[[], T]) -> T:
    """Once for all layers of a block: the batch keeps it."""
    weights = attention.weights
    key = (name, attention.block, weights.dtype, weights.device, tuple(weights.shape[2:]))
    return batch_of(attention).once(key, make)
