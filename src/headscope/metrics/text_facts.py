"""Properties of the text itself, attention ignored: which token pairs are related by a
dependency, how far dependencies reach, how much was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.measuring.contract import SELF_BLOCKS, RatioMetric, batch_of
from headscope.measuring.region import distances, has_labels, region_of, relations_of_pairs
from headscope.metrics.dependencies import PARENTS

__all__ = ["DepBaseline", "DepBaselineByParent", "DepByDistance", "DepSpan", "TokensPerDocument"]

FARTHEST = 64


class _OfPairs(RatioMetric):
    """Something about token pairs in parsed documents, the same for all layers and heads."""

    units: ClassVar[str] = "share of token pairs"
    scope = "tokens"
    needs = frozenset(("parents",))
    blocks = SELF_BLOCKS
    has_heads = False


@dataclass(frozen=True)
class DepBaselineByParent(_OfPairs):
    """Share of token pairs in a dependency relation: the alignment of uniform attention.

    Pairs of the same region as `dep_alignment`, each counted once, attention ignored; in
    its three forms.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name: ClassVar[str] = "dep_baseline_by_parent"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Figure 8, orange line"
    dims: ClassVar[tuple[str, ...]] = ("parent",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Who is the parent."""
        return {"parent": PARENTS}

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs; all pairs; queries."""
        found = _pairs_of(attention)
        forms = [(form * found.all).sum((1, 2)) for form in relations_of_pairs(attention)]
        return torch.stack((*forms, forms[0] + forms[1]), dim=-1), found.n_all, found.queries


@dataclass(frozen=True)
class DepBaseline(_OfPairs):
    """Share of token pairs in a dependency relation, whichever of them is the parent.

    What `dep_alignment` would be if attention were spread evenly over the region.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name: ClassVar[str] = "dep_baseline"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Figure 8, orange line"

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs; all pairs; queries."""
        found = _pairs_of(attention)
        return found.n_related, found.n_all, found.queries


@dataclass(frozen=True)
class DepByDistance(_OfPairs):
    """How likely two tokens d positions apart are in a dependency relation.

    Of the pairs of the region at each distance from 1 on, the share that is related either
    way. Up to 64 tokens.

    Vig & Belinkov 2019, section 5.3.3 (0.42, 0.07 and 0.02 at distance 1, 5 and 10).
    """

    name: ClassVar[str] = "dep_by_distance"
    paper: ClassVar[str] = "Vig & Belinkov 2019, section 5.3.3"
    dims = ("distance_between",)
    denominator_dims = ("distance_between",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Distances."""
        return {"distance_between": range(1, FARTHEST + 1)}

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs and all pairs at each distance; queries."""
        found = _pairs_of(attention)
        apart = distances(attention).long().clamp_max(FARTHEST + 1)
        n, size = len(found.queries), FARTHEST + 2
        at = (apart + size * torch.arange(n, device=apart.device)[:, None, None]).flatten()
        numerator, denominator = (
            torch.bincount(at, pairs.flatten(), minlength=size * n).view(n, size)[:, 1:-1]
            for pairs in (found.related, found.all)
        )
        return numerator, denominator, found.queries


@dataclass(frozen=True)
class DepSpan(_OfPairs):
    """How many tokens a dependency arc spans, on average.

    Mean |i − j| over the pairs of the region that are in a dependency relation.

    Vig & Belinkov 2019, section 5.3.2 (3.89 tokens).
    """

    name: ClassVar[str] = "dep_span"
    paper: ClassVar[str] = "Vig & Belinkov 2019, section 5.3.2"
    units: ClassVar[str] = "tokens"

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Distance over related pairs; related pairs; queries."""
        found = _pairs_of(attention)
        spans = (found.related * distances(attention)).sum((1, 2))
        return spans, found.n_related, found.queries


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


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Token pairs of the region, in documents that are parsed."""

    all: Tensor
    """`document query key`"""
    related: Tensor
    """`document query key`: those in a dependency relation."""
    n_all: Tensor
    n_related: Tensor
    queries: Tensor
    """`document`: how many queries there are."""


def _pairs_of(attention: Attention) -> _Pairs:
    def make() -> _Pairs:
        region = region_of(attention)
        is_parsed = has_labels(attention, "parents")[:, 0]
        pairs = region.pairs.double() * is_parsed[:, None, None]
        query_parent, key_parent = relations_of_pairs(attention)
        related = pairs * (query_parent + key_parent)
        queries = region.queries.double().sum(-1) * is_parsed
        return _Pairs(pairs, related, pairs.sum((1, 2)), related.sum((1, 2)), queries)

    return attention.once("pairs", make)
