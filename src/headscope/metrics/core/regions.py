"""Region of attention that counts, and sums over it that metrics share.

Vig & Belinkov leave out null attention (first token in causal models, else special tokens) and
special queries. The region is computed once per batch, the sums in one pass over the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from headscope.batch import Sequences
from headscope.lazy import Tensor, torch
from headscope.metrics.core.layer_data import LayerData, Reduction, Small, can_compile


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Queries and keys that count, as 0 and 1 in the type of the weights."""

    queries: Tensor
    """`document query`: tokens that are not special."""
    keys: Tensor
    """`document key`: tokens that are not null."""
    pairs: Tensor
    """`document query key`: pairs that count."""


def region_of(layer_data: LayerData) -> Region:
    """Return the region of an attention, equal for all layers of a block."""
    return layer_data.of_batch("region", lambda: _region(layer_data))


def everything(layer_data: LayerData) -> Region:
    """Return the region of all tokens, special ones included."""

    def make() -> Region:
        queries, keys = (
            torch.from_numpy(tokens.mask).to(layer_data.device, layer_data.dtype)
            for tokens in (layer_data.queries, layer_data.keys)
        )
        return Region(queries, keys, queries[:, :, None] * keys[:, None, :])

    return layer_data.of_batch("everything", make)


def _region(layer_data: LayerData) -> Region:
    queries, keys, batch = layer_data.queries, layer_data.keys, layer_data.batch
    is_first = batch.null_keys == "first" or (batch.null_keys == "auto" and layer_data.is_causal)
    if is_first:
        null = np.zeros_like(keys.mask)
        null[np.arange(len(null)), keys.mask.argmax(axis=1)] = True
        null &= keys.mask
    else:
        null = keys.special & keys.mask

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(layer_data.device, layer_data.dtype)

    query_mask, key_mask = tensor(queries.mask & ~queries.special), tensor(keys.mask & ~null)
    pairs = query_mask[:, :, None] * key_mask[:, None, :]
    return Region(query_mask, key_mask, pairs.tril() if layer_data.is_causal else pairs)


def query_counts(layer_data: LayerData, labels: str | None = None, side: str = "query") -> Tensor:
    """`document head`, float64: return the number of queries that count.

    With `labels` (`tags`, `parents`, `relations`), documents without such labels on that side have
    0.
    """

    def make() -> Tensor:
        queries = region_of(layer_data).queries.double().sum(-1, keepdim=True)
        counts = queries.expand(-1, layer_data.n_heads)
        return counts if labels is None else counts * has_labels(layer_data, labels, side)

    return layer_data.of_batch(("query counts", layer_data.n_heads, labels, side), make)


def has_labels(layer_data: LayerData, labels: str, side: str = "query") -> Tensor:
    """`document 1`, float64: return 1 for documents with `tags`, `parents` or `relations`."""

    def make() -> Tensor:
        tokens = _sequences(layer_data, side)
        has = tokens.is_tagged if labels == "tags" else tokens.is_parsed
        if labels == "relations":
            has = has & (tokens.relations >= 0).any(1)
        return torch.from_numpy(has).double()[:, None].to(layer_data.device)

    return layer_data.of_batch(("has labels", side, labels), make)


def _sequences(layer_data: LayerData, side: str) -> Sequences:
    return layer_data.queries if side == "query" else layer_data.keys


def distances(layer_data: LayerData) -> Tensor:
    """`query key`: return distances in positions."""

    def make() -> Tensor:
        queries = torch.arange(layer_data.n_queries)[:, None]
        keys = torch.arange(layer_data.n_keys)[None, :]
        return (queries - keys).abs().to(layer_data.device, layer_data.dtype)

    return layer_data.of_batch("distances", make)


def relations_of_pairs(layer_data: LayerData) -> tuple[Tensor, Tensor]:
    """`document query key`, twice: return masks of pairs whose parent is the query, and the key.

    Tokens of one word are not related.
    """

    def make() -> tuple[Tensor, Tensor]:
        tokens = layer_data.queries
        words, parents = torch.from_numpy(tokens.words), torch.from_numpy(tokens.parents)
        has_parent = (words >= 0) & (parents >= 0)
        key_parent = (parents[:, :, None] == words[:, None, :]) & has_parent[:, :, None]
        return (
            key_parent.transpose(1, 2).to(layer_data.device, layer_data.dtype),
            key_parent.to(layer_data.device, layer_data.dtype),
        )

    return layer_data.of_batch("relations_of_pairs", make)


def one_hot(layer_data: LayerData, side: str, labels: str) -> Tensor:
    """`document token label`, float64: return one-hot labels of the tokens on one side.

    Args:
        layer_data: One layer of a batch.
        side: `query` or `key`.
        labels: `tags` or `relations`. Tokens without a label have only 0.
    """

    def make() -> Tensor:
        numbers = torch.from_numpy(getattr(_sequences(layer_data, side), labels))
        size = len(getattr(layer_data.batch.axes, labels))
        encoded = torch.nn.functional.one_hot(numbers + 1, size + 1)[..., 1:].double()
        return encoded.to(layer_data.device)

    return layer_data.of_batch(("one_hot", side, labels), make)


PIECE_SIZE = 1 << 18
"""Number of weights processed at once, so that they stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Some heads of some documents, in memory that the next piece reuses."""

    weights: Tensor
    """`document head query key`"""
    region: Tensor
    """Weights, 0 outside the region."""
    scratch: Tensor
    """Memory of the same shape for intermediate results."""


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
    """Return float64 sums of rows and columns.

    `document head query`: attention of each query to keys that count, and to all keys. `document
    head key`: attention of queries that count to each key.
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
    """`document head 3`, float64: attention times distance, with the query as parent, with the key
    as parent.
    """

    def forms() -> Tensor:
        pairs = region_of(layer_data).pairs
        query_parent, key_parent = relations_of_pairs(layer_data)
        all_forms = (distances(layer_data).expand_as(pairs), query_parent, key_parent)
        return torch.stack([form * pairs for form in all_forms], dim=1).flatten(2)

    flat = layer_data.weights.flatten(2).transpose(1, 2)
    return (torch.bmm(layer_data.of_batch("forms", forms), flat).transpose(1, 2).double(),)


@cache
def squares(first: int) -> Reduction:
    """`document head query key`: weights of the region among the first tokens that are not special.

    0 in documents with fewer tokens.
    """

    def read(layer_data: LayerData) -> Small:
        positions, counts = layer_data.of_batch(
            ("square", first), lambda: _square(layer_data, first)
        )
        if isinstance(positions, slice):
            return (layer_data.weights[:, :, positions, positions] * counts,)
        documents = torch.arange(len(positions), device=positions.device)[:, None, None]
        # Indexing moves heads to the last axis.
        picked = layer_data.weights.permute(0, 2, 3, 1)[
            documents, positions[:, :, None], positions[:, None]
        ]
        return (picked.permute(0, 3, 1, 2) * counts,)

    return Reduction(read)


def first_tokens(layer_data: LayerData, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of the first tokens that are not special (`document token`), and their
    number.
    """

    def make() -> tuple[np.ndarray, np.ndarray]:
        counts = layer_data.queries.mask & ~layer_data.queries.special
        order = np.argsort(~counts, axis=1, kind="stable")[:, :first]
        positions = np.pad(order, ((0, 0), (0, first - order.shape[1])))
        return positions, np.minimum(counts.sum(1), first)

    return layer_data.of_batch(("first tokens", first), make)


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
    start = int(positions[0, 0])
    if (
        start + first <= layer_data.n_queries
        and (positions == np.arange(start, start + first)).all()
    ):
        return slice(start, start + first), counts
    return index, counts


def row_mass(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return attention of each query to keys that count."""
    return masses(layer_data)[0]


def column_mass(layer_data: LayerData) -> Tensor:
    """`document head key`, float64: return attention of queries that count to each key."""
    return masses(layer_data)[2]


def null_mass(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return attention of each query to null keys."""

    def make() -> Tensor:
        row, all_of_it, _ = masses(layer_data)
        return (all_of_it * region_of(layer_data).queries[:, None, :] - row).clamp_min_(0.0)

    return layer_data.once("null_mass", make)


def total_mass(layer_data: LayerData) -> Tensor:
    """`document head`, float64: return all attention that counts."""
    return layer_data.once("total_mass", lambda: row_mass(layer_data).sum(-1))


def region_weights(layer_data: LayerData) -> Tensor:
    """`document head query key`: return the weights, 0 outside the region.

    As large as the weights: prefer a reduction.
    """
    return layer_data.once(
        "region_weights", lambda: layer_data.weights * region_of(layer_data).pairs[:, None]
    )


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
