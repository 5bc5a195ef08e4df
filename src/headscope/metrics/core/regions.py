"""Which attention counts, and what is known of the tokens there.

Vig & Belinkov leave null attention out: attention to the first token in causal models, to special
tokens in others. Sums run over queries that are not special tokens, and keys that are not
null. All of this is the same for all layers of a block, and is computed once per batch.

Sums over the attention that counts, shared by many metrics.

Sums of each head by itself are taken in one pass over the weights: by a compiled loop in
long runs; in short ones a few documents at a time, so that the weights stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from headscope.batch import Sequences
from headscope.lazy import torch
from headscope.metrics.core.kernels import can_compile
from headscope.metrics.core.layer_data import Digest, Reading, Small

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


PIECE = 1 << 18
"""How many weights are worked on at a time, so that they stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Some heads of some documents, in memory that the next piece uses again."""

    weights: Tensor
    """`document head query key`"""
    region: Tensor
    """The same, 0 outside the region."""
    scratch: Tensor
    """Of the same shape, to be written to."""


class _RegionDigest(Digest):
    """A digest of each head of each document by itself: a function of a piece."""

    region = staticmethod(region_of)

    @classmethod
    def read_all(cls, reading: Reading, digests: Sequence[Digest]) -> dict[Digest, Small]:
        """All of these digests, in one pass over the weights."""
        region = cls.region(reading)
        if can_compile(reading):
            return _read_compiled(reading, region, digests)
        pieces: dict[Digest, list[Small]] = {digest: [] for digest in digests}
        for piece in _pieces(reading.weights, region):
            for digest, parts in pieces.items():
                parts.append(tuple(part.flatten(0, 1) for part in digest.function(piece)))
        lead = reading.weights.shape[:2]
        return {
            digest: tuple(torch.cat(p).unflatten(0, lead) for p in zip(*parts, strict=True))
            for digest, parts in pieces.items()
        }


class _WholeDigest(_RegionDigest):
    """A digest over all tokens, special ones too."""

    region = staticmethod(everything)


def _masses(piece: _Piece) -> Small:
    """`document head query`: attention of each query to keys that count, and to all keys;
    `document head key`: attention each key receives from queries that count. Float64.
    """
    rows = _row_sums(piece.region), _row_sums(piece.weights)
    return *rows, piece.region.sum(-2).double()


def _log_sums(piece: _Piece) -> Small:
    """`document head query`, float64: Σ a ln a over the keys that count."""
    logs = torch.clamp_min(piece.region, torch.finfo(piece.region.dtype).tiny, out=piece.scratch)
    return (_row_sums(logs.log_().mul_(piece.region)),)


def _peaks(piece: _Piece) -> Small:
    """`document head`: the highest weight, its query and its key; of equals the first."""
    highest, at = piece.region.flatten(2).max(-1)
    n_keys = piece.region.shape[-1]
    return highest, at // n_keys, at % n_keys


masses, whole_masses = _RegionDigest(_masses), _WholeDigest(_masses)
log_sums, whole_log_sums = _RegionDigest(_log_sums), _WholeDigest(_log_sums)
peaks = _RegionDigest(_peaks)


@Digest
def pair_sums(reading: Reading) -> Small:
    """`document head 3`, float64: attention times distance, attention where the query is
    the parent, and where the key is; one product with the flattened weights.
    """

    def forms() -> Tensor:
        pairs = region_of(reading).pairs
        query_parent, key_parent = relations_of_pairs(reading)
        all_forms = (distances(reading).expand_as(pairs), query_parent, key_parent)
        return torch.stack([form * pairs for form in all_forms], dim=1).flatten(2)

    flat = reading.weights.flatten(2).transpose(1, 2)
    return (torch.bmm(reading.of_batch("forms", forms), flat).transpose(1, 2).double(),)


@cache
def squares(first: int) -> Digest:
    """`document head query key`: weights of the region among the first tokens of each
    document that are not special; 0 where there are fewer.
    """

    def read(reading: Reading) -> Small:
        at, counts = reading.of_batch(("square", first), lambda: _square(reading, first))
        if isinstance(at, slice):
            return (reading.weights[:, :, at, at] * counts,)
        documents = torch.arange(len(at), device=at.device)[:, None, None]
        # Documents are picked with their positions, so that heads come last.
        picked = reading.weights.permute(0, 2, 3, 1)[documents, at[:, :, None], at[:, None]]
        return (picked.permute(0, 3, 1, 2) * counts,)

    return Digest(read)


def first_tokens(reading: Reading, first: int) -> tuple[np.ndarray, np.ndarray]:
    """`document token`: where the first tokens that are not special stand (0 where there are
    fewer); `document`: how many there are of them.
    """

    def make() -> tuple[np.ndarray, np.ndarray]:
        counts = reading.queries.mask & ~reading.queries.special
        order = np.argsort(~counts, axis=1, kind="stable")[:, :first]
        positions = np.pad(order, ((0, 0), (0, first - order.shape[1])))
        return positions, np.minimum(counts.sum(1), first)

    return reading.of_batch(("first tokens", first), make)


def _square(reading: Reading, first: int) -> tuple[slice | Tensor, Tensor]:
    """Where the first tokens stand (a slice if at the same positions in all documents, as nearly
    always, else `document token`), and which pairs count (`document 1 query key`).
    """
    pairs = region_of(reading).pairs
    positions, sizes = first_tokens(reading, first)
    at = torch.from_numpy(positions).to(reading.device)
    documents = torch.arange(len(at), device=at.device)[:, None, None]
    is_there = torch.from_numpy(np.arange(first) < sizes[:, None])
    is_there = is_there.to(reading.device, reading.dtype)
    counts = pairs[documents, at[:, :, None], at[:, None]]
    counts = (counts * is_there[:, :, None] * is_there[:, None])[:, None]
    start = int(positions[0, 0])
    if start + first <= reading.n_queries and (positions == np.arange(start, start + first)).all():
        return slice(start, start + first), counts
    return at, counts


def row_mass(reading: Reading) -> Tensor:
    """`document head query`: attention of each query to keys that count, float64."""
    return masses(reading)[0]


def column_mass(reading: Reading) -> Tensor:
    """`document head key`: attention each key receives from queries that count, float64."""
    return masses(reading)[2]


def null_mass(reading: Reading) -> Tensor:
    """`document head query`: attention of each query to null keys, float64."""

    def make() -> Tensor:
        row, all_of_it, _ = masses(reading)
        return (all_of_it * region_of(reading).queries[:, None, :] - row).clamp_min_(0.0)

    return reading.once("null_mass", make)


def total_mass(reading: Reading) -> Tensor:
    """`document head`: all attention that counts, float64."""
    return reading.once("total_mass", lambda: row_mass(reading).sum(-1))


def region_weights(reading: Reading) -> Tensor:
    """`document head query key`: the weights of the region, 0 outside. As large as the
    weights: for metrics that no digest serves.
    """
    return reading.once(
        "region_weights", lambda: reading.weights * region_of(reading).pairs[:, None]
    )


def _row_sums(weights: Tensor) -> Tensor:
    """`document head query`: one product, which is faster than a sum over short rows."""
    n_keys = weights.shape[-1]
    ones = weights.new_ones(n_keys)
    return torch.mv(weights.reshape(-1, n_keys), ones).view(weights.shape[:-1]).double()


def _pieces(weights: Tensor, region: Region) -> Iterator[_Piece]:
    """All documents and heads, documents first, a few at a time."""
    n_documents, n_heads = weights.shape[:2]
    size = weights.shape[2] * weights.shape[3]
    heads = max(1, min(n_heads, PIECE // max(1, size)))
    documents = max(1, PIECE // max(1, size * n_heads))
    memory = weights.new_empty((2, documents * heads * size), requires_grad=False)
    for start in range(0, n_documents, documents):
        for head in range(0, n_heads, heads):
            part = weights[start : start + documents, head : head + heads]
            inside, scratch = (m[: part.numel()].view(part.shape) for m in memory)
            torch.mul(part, region.pairs[start : start + documents, None], out=inside)
            yield _Piece(part, inside, scratch)


def _read_compiled(
    reading: Reading, region: Region, digests: Sequence[Digest]
) -> dict[Digest, Small]:
    from headscope.metrics.core.compiled import region_digests

    by_function = {digest.function: digest for digest in digests}
    arrays_of = region_digests(
        reading.weights.contiguous().numpy(),
        region.queries.numpy(),
        region.keys.numpy(),
        is_causal=reading.is_causal,
        with_logs=_log_sums in by_function,
        with_peaks=_peaks in by_function,
    )
    return {
        by_function[function]: tuple(map(torch.from_numpy, arrays))
        for function, arrays in zip((_masses, _log_sums, _peaks), arrays_of, strict=True)
        if function in by_function
    }
