"""Whether attention follows syntax: dependency alignment and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.measuring.contract import SELF_BLOCKS, RatioMetric
from headscope.measuring.digests import Digest
from headscope.measuring.region import has_labels, one_hot, query_counts
from headscope.measuring.region_sums import column_mass, masses, pair_sums, total_mass

__all__ = ["PARENTS", "DepAlignment", "DepTypeTo"]

PARENTS = ("query", "key", "either")
"""Which token of a pair is the head of the other."""


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
    needs = frozenset(("parents",))
    blocks = SELF_BLOCKS
    dims = ("parent",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Who is the parent."""
        return {"parent": PARENTS}

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and of forms over pairs."""
        return (masses, pair_sums)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention between related tokens; all of it."""
        is_parsed = has_labels(attention, "parents")
        aligned = pair_sums(attention)[0][..., 1:] * is_parsed[..., None]
        total = total_mass(attention) * is_parsed
        either = aligned.sum(-1, keepdim=True)
        return torch.cat((aligned, either), dim=-1), total, query_counts(attention, "parents")


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
    needs = frozenset(("parents", "relations"))
    dims = ("relation",)

    def digests(self) -> tuple[Digest, ...]:
        """Sums of columns."""
        return (masses,)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention received by the tokens of each relation; all of it."""
        received = column_mass(attention) @ one_hot(attention, "key", "relations")
        total = total_mass(attention) * has_labels(attention, "relations", "key")
        return received, total, query_counts(attention, "relations", "key")
