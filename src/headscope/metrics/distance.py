"""How far a head reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from headscope.attention import Attention
from headscope.measuring.contract import SELF_BLOCKS, RatioMetric
from headscope.measuring.digests import Digest
from headscope.measuring.region import query_counts
from headscope.measuring.region_sums import masses, pair_sums, total_mass

__all__ = ["Distance"]


@dataclass(frozen=True)
class Distance(RatioMetric):
    """How many tokens away a head looks, on average.

    Σ a[i,j]·|i − j| / Σ a[i,j], null attention left out of both. Distances count token
    positions. In encoders keys lie on both sides, so the distance is absolute.

    Vig & Belinkov 2019, Eq. 6, Figure 11.
    """

    name: ClassVar[str] = "distance"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Eq. 6, Figure 11"
    units: ClassVar[str] = "tokens"
    blocks = SELF_BLOCKS

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and of forms over pairs."""
        return (masses, pair_sums)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention times distance; attention."""
        return pair_sums(attention)[0][..., 0], total_mass(attention), query_counts(attention)
