"""Region of attention that counts, and sums over it that metrics share.

Vig & Belinkov leave out null attention (first token in causal models, else special tokens) and
special queries. The region is computed once per batch, the sums in one pass over the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from headscope.batch import Sequences
from headscope.lazy import Tensor, torch
from headscope.metrics.core.layer_data import (
    LayerData,
    Reduction,
    Small,
    can_compile,
    per_batch,
    per_layer,
)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Queries and keys that count, as 0 and 1 in the type of the weights."""

    queries: Tensor
    """`document query`: tokens that are not special."""
    keys: Tensor
    """`document key`: tokens that are not null."""
    pairs: Tensor
    """`document query key`: pairs that count."""


@per_batch
def region_of(layer_data: LayerData) -> Region:
    """Return the region of an attention, equal for all layers of a block."""
    queries, keys, batch = layer_data.queries, layer_data.keys, layer_data.batch
    if batch.null_keys == "first" or (batch.null_keys == "auto" and layer_data.is_causal):
        null = np.zeros_like(keys.mask)
        null[np.arange(len(null)), keys.mask.argmax(axis=1)] = True
    else:
        null = keys.special
    region = _region(layer_data, queries.mask & ~queries.special, keys.mask & ~null)
    return replace(region, pairs=region.pairs.tril()) if layer_data.is_causal else region


@per_batch
def everything(layer_data: LayerData) -> Region:
    """Return the region of all tokens, special ones included."""
    return _region(layer_data, layer_data.queries.mask, layer_data.keys.mask)


def _region(layer_data: LayerData, query_mask: np.ndarray, key_mask: np.ndarray) -> Region:
    queries, keys = (
        torch.from_numpy(mask).to(layer_data.device, layer_data.dtype)
        for mask in (query_mask, key_mask)
    )
    return Region(queries, keys, queries[:, :, None] * keys[:, None, :])


def query_counts(layer_data: LayerData, labels: str | None = None, side: str = "query") -> Tensor:
    """`document head`, float64: return the number of queries that count.

    Documents without the given `labels` (`tags`, `parents`, `relations`) on that side have 0.
    """
    queries = region_of(layer_data).queries.double().sum(-1, keepdim=True)
    counts = queries.expand(-1, layer_data.n_heads)
    return counts if labels is None else counts * has_labels(layer_data, labels, side)


@per_batch
def has_labels(layer_data: LayerData, labels: str, side: str = "query") -> Tensor:
    """`document 1`, float64: return 1 for documents with `tags`, `parents` or `relations`."""
    tokens = _sequences(layer_data, side)
    has = tokens.is_tagged if labels == "tags" else tokens.is_parsed
    if labels == "relations":
        has = has & (tokens.relations >= 0).any(1)
    return torch.from_numpy(has).double()[:, None].to(layer_data.device)


def _sequences(layer_data: LayerData, side: str) -> Sequences:
    return layer_data.queries if side == "query" else layer_data.keys


@per_batch
def distances(layer_data: LayerData) -> Tensor:
    """`query key`: return distances in positions."""
    queries = torch.arange(layer_data.n_queries)[:, None]
    keys = torch.arange(layer_data.n_keys)[None, :]
    return (queries - keys).abs().to(layer_data.device, layer_data.dtype)


@per_batch
def relations_of_pairs(layer_data: LayerData) -> tuple[Tensor, Tensor]:
    """`document query key`, twice: return masks of pairs whose parent is the query, and the key."""
    tokens = layer_data.queries
    words, parents = torch.from_numpy(tokens.words), torch.from_numpy(tokens.parents)
    has_parent = (words >= 0) & (parents >= 0)
    key_parent = (parents[:, :, None] == words[:, None, :]) & has_parent[:, :, None]
    key_parent = key_parent.to(layer_data.device, layer_data.dtype)
    return key_parent.transpose(1, 2), key_parent  # tokens of one word are not related


@per_batch
def one_hot(layer_data: LayerData, side: str, labels: str) -> Tensor:
    """`document token label`, float64: return one-hot `tags` or `relations`; without a label, 0."""
    numbers = torch.from_numpy(getattr(_sequences(layer_data, side), labels))
    size = len(getattr(layer_data.batch.axes, labels))
    encoded = torch.nn.functional.one_hot(numbers + 1, size + 1)[..., 1:].double()
    return encoded.to(layer_data.device)


PIECE_SIZE = 1 << 18
"""Number of weights processed at once, so that they stay in the cache."""


class _Piece(NamedTuple):
    """Some heads of some documents (`document head query key`), in memory that is reused."""

    weights: Tensor
    region: Tensor
    """Weights, 0 outside the region."""
    scratch: Tensor
    """Memory for intermediate results."""


class _RegionReduction(Reduction):
    """Reduction of each head of each document by itself: a function of a piece."""

    region = staticmethod(region_of)

    @classmethod
    def read_all(
        cls, layer_data: LayerData, reductions: Sequence[Reduction]
    ) -> dict[Reduction, Small]:
        """Take all such reductions in one pass over the weights."""
        region = cls.region(layer_data)
        if can_compile(layer_data):
            return _read_compiled(layer_data, region, reductions)
        pieces: dict[Reduction, list[Small]] = {reduction: [] for reduction in reductions}
        for piece in _pieces(layer_data.weights, region):
            for reduction, results in pieces.items():
                results.append(tuple(tensor.flatten(0, 1) for tensor in reduction.function(piece)))
        lead = layer_data.weights.shape[:2]
        return {
            reduction: tuple(torch.cat(p).unflatten(0, lead) for p in zip(*results, strict=True))
            for reduction, results in pieces.items()
        }


class _WholeReduction(_RegionReduction):
    """Reduction over all tokens, special ones included."""

    region = staticmethod(everything)


def _masses(piece: _Piece) -> Small:
    """Return float64 sums: of rows over keys that count, and over all keys (`document head query`);
    of columns over queries that count (`document head key`).
    """
    rows = _row_sums(piece.region), _row_sums(piece.weights)
    return *rows, piece.region.sum(-2).double()


def _log_sums(piece: _Piece) -> Small:
    """`document head query`, float64: return Σ a ln a over the keys that count."""
    logs = torch.clamp_min(piece.region, torch.finfo(piece.region.dtype).tiny, out=piece.scratch)
    return (_row_sums(logs.log_().mul_(piece.region)),)


def _peaks(piece: _Piece) -> Small:
    """`document head`: return the highest weight, its query and its key; ties go to the first."""
    highest, index = piece.region.flatten(2).max(-1)
    n_keys = piece.region.shape[-1]
    return highest, index // n_keys, index % n_keys


masses, whole_masses = _RegionReduction(_masses), _WholeReduction(_masses)
log_sums, whole_log_sums = _RegionReduction(_log_sums), _WholeReduction(_log_sums)
peaks = _RegionReduction(_peaks)


@Reduction
def pair_sums(layer_data: LayerData) -> Small:
    """`document head 3`, float64: attention times distance, from parents, and to parents."""
    flat = layer_data.weights.flatten(2).transpose(1, 2)
    return (torch.bmm(_pair_forms(layer_data), flat).transpose(1, 2).double(),)


@per_batch
def _pair_forms(layer_data: LayerData) -> Tensor:
    pairs = region_of(layer_data).pairs
    forms = (distances(layer_data).expand_as(pairs), *relations_of_pairs(layer_data))
    return torch.stack([form * pairs for form in forms], dim=1).flatten(2)


@cache
def squares(first: int) -> Reduction:
    """`document head query key`: weights of the region among the first tokens that are not special.

    0 in documents with fewer tokens.
    """

    def read(layer_data: LayerData) -> Small:
        positions, counts = _square(layer_data, first)
        if isinstance(positions, slice):
            return (layer_data.weights[:, :, positions, positions] * counts,)
        documents = torch.arange(len(positions), device=positions.device)[:, None, None]
        # Indexing moves heads to the last axis.
        picked = layer_data.weights.permute(0, 2, 3, 1)[
            documents, positions[:, :, None], positions[:, None]
        ]
        return (picked.permute(0, 3, 1, 2) * counts,)

    return Reduction(read)


@per_batch
def first_tokens(layer_data: LayerData, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of the first tokens that are not special, `document token`; their number."""
    counts = layer_data.queries.mask & ~layer_data.queries.special
    order = np.argsort(~counts, axis=1, kind="stable")[:, :first]
    positions = np.pad(order, ((0, 0), (0, first - order.shape[1])))
    return positions, np.minimum(counts.sum(1), first)


@per_batch
def _square(layer_data: LayerData, first: int) -> tuple[slice | Tensor, Tensor]:
    """Return positions of the first tokens, and a mask of pairs (`document 1 query key`).

    Positions are a slice if equal in all documents, as nearly always, else `document token`.
    """
    pairs = region_of(layer_data).pairs
    positions, sizes = first_tokens(layer_data, first)
    index = torch.from_numpy(positions).to(layer_data.device)
    documents = torch.arange(len(index), device=index.device)[:, None, None]
    has_token = torch.from_numpy(np.arange(first) < sizes[:, None])
    has_token = has_token.to(layer_data.device, layer_data.dtype)
    counts = pairs[documents, index[:, :, None], index[:, None]]
    counts = (counts * has_token[:, :, None] * has_token[:, None])[:, None]
    start, stop = int(positions[0, 0]), int(positions[0, 0]) + first
    is_slice = stop <= layer_data.n_queries and (positions == np.arange(start, stop)).all()
    return slice(start, stop) if is_slice else index, counts


def row_mass(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return attention of each query to keys that count."""
    return masses(layer_data)[0]


def column_mass(layer_data: LayerData) -> Tensor:
    """`document head key`, float64: return attention of queries that count to each key."""
    return masses(layer_data)[2]


@per_layer
def null_mass(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return attention of each query to null keys."""
    row, all_of_it, _ = masses(layer_data)
    return (all_of_it * region_of(layer_data).queries[:, None, :] - row).clamp_min_(0.0)


@per_layer
def total_mass(layer_data: LayerData) -> Tensor:
    """`document head`, float64: return all attention that counts."""
    return row_mass(layer_data).sum(-1)


def distance_sum(layer_data: LayerData) -> Tensor:
    """`document head`, float64: return Σ a[i,j]·|i − j| over all attention that counts."""
    return pair_sums(layer_data)[0][..., 0]


@per_layer
def region_weights(layer_data: LayerData) -> Tensor:
    """`document head query key`: return the weights, 0 outside the region.

    As large as the weights: prefer a reduction.
    """
    return layer_data.weights * region_of(layer_data).pairs[:, None]


def _row_sums(weights: Tensor) -> Tensor:
    """`document head query`: sum rows by a product, which is faster than `sum` for short rows."""
    n_keys = weights.shape[-1]
    ones = weights.new_ones(n_keys)
    return torch.mv(weights.reshape(-1, n_keys), ones).view(weights.shape[:-1]).double()


def _pieces(weights: Tensor, region: Region) -> Iterator[_Piece]:
    """Yield all documents and heads, documents first, a few at a time."""
    n_documents, n_heads = weights.shape[:2]
    size = weights.shape[2] * weights.shape[3]
    heads = max(1, min(n_heads, PIECE_SIZE // max(1, size)))
    documents = max(1, PIECE_SIZE // max(1, size * n_heads))
    memory = weights.new_empty((2, documents * heads * size), requires_grad=False)
    for start in range(0, n_documents, documents):
        for head in range(0, n_heads, heads):
            piece = weights[start : start + documents, head : head + heads]
            inside, scratch = (m[: piece.numel()].view(piece.shape) for m in memory)
            torch.mul(piece, region.pairs[start : start + documents, None], out=inside)
            yield _Piece(piece, inside, scratch)


def _read_compiled(
    layer_data: LayerData, region: Region, reductions: Sequence[Reduction]
) -> dict[Reduction, Small]:
    from headscope.metrics.core.compiled import region_sums

    by_function = {reduction.function: reduction for reduction in reductions}
    arrays_of = region_sums(
        layer_data.weights.contiguous().numpy(),
        region.queries.numpy(),
        region.keys.numpy(),
        is_causal=layer_data.is_causal,
        with_logs=_log_sums in by_function,
        with_peaks=_peaks in by_function,
    )
    return {
        by_function[function]: tuple(map(torch.from_numpy, arrays))
        for function, arrays in zip((_masses, _log_sums, _peaks), arrays_of, strict=True)
        if function in by_function
    }
