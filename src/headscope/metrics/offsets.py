"""Heads that look at a fixed position: the token before, the token itself, the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.metrics.base import SELF_BLOCKS
from headscope.metrics.surface import SurfaceMetric, is_query, query_masses

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

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention at each offset; attention of queries that have a token there; queries."""
        mask = is_query(attention)
        masses = query_masses(attention)
        at, of = [], []
        for offset in OFFSETS:
            here, there = (mask[:, : mask.shape[1] - offset], mask[:, offset:])
            if offset < 0:
                here, there = mask[:, -offset:], mask[:, :offset]
            both = here * there
            diagonal = attention.weights.diagonal(offset, dim1=2, dim2=3)
            rows = masses[..., -offset:] if offset < 0 else masses[..., : both.shape[1]]
            at.append((diagonal.double() * both[:, None]).sum(-1))
            of.append((rows * both[:, None]).sum(-1))
        count = mask.double().sum(-1, keepdim=True).expand(-1, attention.n_heads)
        return torch.stack(at, -1), torch.stack(of, -1), count
