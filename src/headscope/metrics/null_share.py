"""How much of its attention a head parks on tokens that say nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Reading
from headscope.measuring.region import query_counts
from headscope.measuring.region_sums import masses, null_mass, total_mass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NullShare(RatioMetric):
    """Share of a head's attention that rests on null keys: high where it mostly idles.

    Σ a[i,j]·1(j is null) / Σ a[i,j] over query tokens i that are not special and all keys
    j. Null keys are the first token in causal attention and every special token otherwise
    (`null_keys` of a run). Rows that sum to less than 1 (models with sinks) divide by what
    they have.

    Vig & Belinkov 2019, section 5.2.3 and Figure 5, which knows only the first token.
    """

    name = "null_share"
    title = "Null attention"
    equation = r"\frac{\sum_{i} \sum_{j \in \text{null}} a_{ij}}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, section 5.2.3, Figure 5"
    units = "share of attention"
    format = ".1%"
    order = 100
    digests = (masses,)

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Null attention; all attention; queries."""
        null = null_mass(reading).sum(-1)
        return null, null + total_mass(reading), query_counts(reading)
