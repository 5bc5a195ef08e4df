"""How far a head reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.measuring.contract import SELF_BLOCKS
from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Reading
from headscope.measuring.region import query_counts
from headscope.measuring.region_sums import masses, pair_sums, total_mass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Distance(RatioMetric):
    """How many tokens away a head looks, on average.

    Σ a[i,j]·|i − j| / Σ a[i,j], null attention left out of both. Distances count token
    positions. In encoders keys lie on both sides, so the distance is absolute.

    Vig & Belinkov 2019, Eq. 6, Figure 11.
    """

    name = "distance"
    title = "Mean distance"
    short_title = "Distance"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot |i - j|}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 6, Figure 11"
    units = "tokens"
    format = ".2f"
    order = 120
    digests = (masses, pair_sums)
    blocks = SELF_BLOCKS

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Attention times distance; all attention; queries."""
        return pair_sums(reading)[0][..., 0], total_mass(reading), query_counts(reading)
