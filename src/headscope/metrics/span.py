"""Properties of the text itself: how far dependencies reach, how much was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.metrics.base import SELF_BLOCKS, RatioMetric, batch_of
from headscope.metrics.region import distances, region_of, relations_of_pairs

__all__ = ["DepByDistance", "DepSpan", "TokensPerDocument"]

FARTHEST = 64


@dataclass(frozen=True)
class DepByDistance(RatioMetric):
    """How likely two tokens d positions apart are in a dependency relation.

    Of the pairs of the region at each distance from 1 on, the share that is related either
    way. Up to 64 tokens.

    Vig & Belinkov 2019, section 5.3.3 (0.42, 0.07 and 0.02 at distance 1, 5 and 10).
    """

    name: ClassVar[str] = "dep_by_distance"
    paper: ClassVar[str] = "Vig & Belinkov 2019, section 5.3.3"
    units: ClassVar[str] = "share of token pairs"
    scope = "tokens"
    needs = frozenset(("heads",))
    blocks = SELF_BLOCKS
    has_heads = False
    dims = ("distance_between",)
    denominator_dims = ("distance_between",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Distances."""
        return {"distance_between": range(1, FARTHEST + 1)}

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs and all pairs at each distance; queries."""
        pairs, related, count = _pairs(attention)
        apart = distances(attention).long().clamp_max(FARTHEST + 1)
        at = apart + (FARTHEST + 2) * torch.arange(len(pairs), device=apart.device)[:, None, None]
        size = (FARTHEST + 2) * len(pairs)
        numerator, denominator = (
            torch.bincount(at.flatten(), x.flatten(), minlength=size).view(len(pairs), -1)
            for x in (related, pairs)
        )
        return numerator[:, 1:-1], denominator[:, 1:-1], count


@dataclass(frozen=True)
class DepSpan(RatioMetric):
    """How many tokens a dependency arc spans, on average.

    Mean |i − j| over the pairs of the region that are in a dependency relation.

    Vig & Belinkov 2019, section 5.3.2 (3.89 tokens).
    """

    name: ClassVar[str] = "dep_span"
    paper: ClassVar[str] = "Vig & Belinkov 2019, section 5.3.2"
    units: ClassVar[str] = "tokens"
    scope = "tokens"
    needs = frozenset(("heads",))
    blocks = SELF_BLOCKS
    has_heads = False

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Distance over related pairs; related pairs; queries."""
        _, related, count = _pairs(attention)
        return (related * distances(attention)).sum((1, 2)), related.sum((1, 2)), count


@dataclass(frozen=True)
class TokensPerDocument(RatioMetric):
    """How long the documents are, in tokens; its count is how many there are.

    Special tokens are not counted.

    Vig & Belinkov 2019, Figure 4 (27.7 tokens).
    """

    name: ClassVar[str] = "tokens_per_document"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Figure 4"
    units: ClassVar[str] = "tokens"
    counts = "documents"
    scope = "tokens"
    has_heads = False

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens; documents; documents."""
        found = batch_of(attention).query_sequences(attention.block)
        tokens = torch.from_numpy((found.mask & ~found.special).sum(1)).double()
        return tokens, torch.ones_like(tokens), torch.ones_like(tokens)


def _pairs(attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """`document query key` of parsed documents: pairs, related pairs; and their queries."""
    batch = batch_of(attention)
    region = region_of(attention)
    parsed = batch.query_sequences(attention.block).is_parsed
    is_parsed = torch.from_numpy(parsed).double().to(attention.weights.device)
    pairs = region.pairs().double() * is_parsed[:, None, None]
    query_parent, key_parent = relations_of_pairs(attention)
    return pairs, pairs * (query_parent + key_parent), region.queries.double().sum(-1) * is_parsed
