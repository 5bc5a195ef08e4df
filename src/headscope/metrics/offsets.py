"""Heads that look at a fixed position: the token before, the token itself, the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.measuring.contract import SELF_BLOCKS
from headscope.measuring.digests import Digest, Small
from headscope.measuring.region import of_batch
from headscope.measuring.region_sums import whole_masses
from headscope.measuring.whole_rows import SurfaceMetric, is_query, query_masses

__all__ = ["OFFSETS", "OffsetShare"]

OFFSETS = (-1, 0, 1)


@dataclass(frozen=True)
class OffsetShare(SurfaceMetric):
    """Share of attention that goes to the token before (−1), itself (0) or after (1).

    Σ a[i, i+o] / Σ a[i, j] over the queries i that have a token at i+o; offset is key minus
    query. Above 0.5 at −1 a head is a previous-token head. In causal attention the next
    token is out of sight: 0.

    Clark et al. 2019, section 3.1. Their code divides by all tokens, the first one too,
    which has no token before it: (n − 1)/n of ours. The legend of their plot swaps next and
    previous.
    """

    name: ClassVar[str] = "offset_share"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.1, Figure 1"
    units: ClassVar[str] = "share of attention"
    blocks = SELF_BLOCKS
    dims = ("offset",)
    denominator_dims = ("offset",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Offsets."""
        return {"offset": OFFSETS}

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows and of diagonals."""
        return (whole_masses, diagonal_sums)

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention at each offset; attention of queries that have a token there; queries."""
        masses = query_masses(attention)
        of = [(masses[..., here] * both).sum(-1) for here, both in _pairs(attention)]
        count = is_query(attention).double().sum(-1, keepdim=True).expand(-1, attention.n_heads)
        return diagonal_sums(attention)[0], torch.stack(of, -1), count


@Digest
def diagonal_sums(attention: Attention) -> Small:
    """`document head offset`, float64: attention to the tokens at each offset."""
    diagonals = [attention.weights.diagonal(offset, dim1=2, dim2=3) for offset in OFFSETS]
    pairs = zip(diagonals, _pairs(attention), strict=True)
    return (torch.stack([(d.double() * both).sum(-1) for d, (_, both) in pairs], -1),)


def _pairs(attention: Attention) -> list[tuple[slice, Tensor]]:
    """For each offset the queries that may have a token there; `document 1 query`: do they?"""

    def make() -> list[tuple[slice, Tensor]]:
        mask = is_query(attention)
        n = mask.shape[1]
        found = []
        for offset in OFFSETS:
            here = slice(max(0, -offset), n - max(0, offset))
            there = slice(max(0, offset), n - max(0, -offset))
            found.append((here, (mask[:, here] * mask[:, there])[:, None]))
        return found

    return of_batch(attention, "offset pairs", make)
