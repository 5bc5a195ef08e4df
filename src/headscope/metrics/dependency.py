"""Whether attention follows syntax: dependency alignment, its baseline, and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.metrics.base import SELF_BLOCKS, RatioMetric, batch_of
from headscope.metrics.region import (
    column_mass,
    one_hot,
    pair_sums,
    region_of,
    relations_of_pairs,
    row_mass,
)

__all__ = ["DepAlignment", "DepBaseline", "DepBaselineByParent", "DepTypeTo"]

PARENTS = ("query", "key", "either")


@dataclass(frozen=True)
class DepAlignment(RatioMetric):
    """Share of a head's attention that runs along dependency arcs.

    Σ a[i,j]·dep(i,j) / Σ a[i,j], null attention left out of both, in three forms: the query
    token is the parent, the key token is, or either. Tokens of one word are in no relation
    with one another. Compare with `dep_baseline`.

    Vig & Belinkov 2019, Eq. 4, Figure 8.
    """

    name: ClassVar[str] = "dep_alignment"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Eq. 4, Figure 8"
    units: ClassVar[str] = "share of attention"
    needs = frozenset(("heads",))
    blocks = SELF_BLOCKS
    dims = ("parent",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Who is the parent."""
        return {"parent": PARENTS}

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention between related tokens; all of it."""
        is_parsed = _is_parsed(attention)[:, None]
        aligned = pair_sums(attention)[..., 1:] * is_parsed[..., None]
        total = row_mass(attention).sum(-1) * is_parsed
        count = region_of(attention).n_queries(attention.n_heads) * is_parsed
        return torch.cat((aligned, aligned.sum(-1, keepdim=True)), dim=-1), total, count


@dataclass(frozen=True)
class DepBaselineByParent(RatioMetric):
    """Share of token pairs in a dependency relation: the alignment of uniform attention.

    Pairs of the same region as `dep_alignment`, each counted once, attention ignored; in
    its three forms.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name: ClassVar[str] = "dep_baseline_by_parent"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Figure 8, orange line"
    units: ClassVar[str] = "share of token pairs"
    scope = "tokens"
    needs = frozenset(("heads",))
    blocks = SELF_BLOCKS
    has_heads = False
    dims: ClassVar[tuple[str, ...]] = ("parent",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Who is the parent."""
        return {"parent": PARENTS}

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs; all pairs; queries."""
        related, pairs, count = _pair_counts(attention)
        return torch.stack((*related, sum(related, torch.zeros(1))), dim=-1), pairs, count


@dataclass(frozen=True)
class DepBaseline(RatioMetric):
    """Share of token pairs in a dependency relation, whichever of them is the parent.

    What `dep_alignment` would be if attention were spread evenly over the region.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name: ClassVar[str] = "dep_baseline"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Figure 8, orange line"
    units: ClassVar[str] = "share of token pairs"
    scope = "tokens"
    needs = frozenset(("heads",))
    blocks = SELF_BLOCKS
    has_heads = False

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs; all pairs; queries."""
        (query_parent, key_parent), pairs, count = _pair_counts(attention)
        return query_parent + key_parent, pairs, count


@dataclass(frozen=True)
class DepTypeTo(RatioMetric):
    """Share of a head's attention that goes to words of each dependency relation.

    Σ a[i,j]·1(relation(j) = r) / Σ a[i,j], null attention left out of both; the relation is
    that of the key's word to its own head, as labeled in the data.

    Vig & Belinkov 2019, section 5.3.2, Figure 9 (as Eq. 3, with relations for tags).
    """

    name: ClassVar[str] = "dep_type_to"
    paper: ClassVar[str] = "Vig & Belinkov 2019, section 5.3.2, Figure 9"
    units: ClassVar[str] = "share of attention"
    needs = frozenset(("heads",))
    dims = ("relation",)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention received by the tokens of each relation; all of it."""
        relations, is_parsed = one_hot(attention, "key", "relations")
        received = column_mass(attention) * is_parsed[:, None, None]
        count = region_of(attention).n_queries(attention.n_heads) * is_parsed[:, None]
        return received @ relations, received.sum(-1), count


def _is_parsed(attention: Attention) -> Tensor:
    found = batch_of(attention).query_sequences(attention.block).is_parsed
    return torch.from_numpy(found).double().to(attention.weights.device)


def _pair_counts(attention: Attention) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """`document` each: pairs whose query is the parent, whose key is; pairs; queries."""
    region, is_parsed = region_of(attention), _is_parsed(attention)
    pairs = region.pairs().double() * is_parsed[:, None, None]
    query_parent, key_parent = (
        (pairs * related).sum((1, 2)) for related in relations_of_pairs(attention)
    )
    count = region.queries.double().sum(-1) * is_parsed
    return (query_parent, key_parent), pairs.sum((1, 2)), count
