"""Sums over the attention that counts, shared by many metrics.

Sums of each head by itself are taken in one pass over the weights: by a compiled loop in
long runs; in short ones a few documents at a time, so that the weights stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from headscope.deferred import torch
from headscope.measuring.kernels import can_compile
from headscope.measuring.reading import Digest, Reading, Small
from headscope.measuring.region import (
    Region,
    distances,
    everything,
    region_of,
    relations_of_pairs,
)

if TYPE_CHECKING:
    from torch import Tensor

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
    from headscope.measuring.compiled import region_digests

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
