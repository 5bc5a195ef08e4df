"""A metric as a user would write it, in a module that workers can import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import headscope as hs
from headscope.metrics import query_counts, region_weights, total_mass

if TYPE_CHECKING:
    from torch import Tensor

    from headscope.metrics import LayerData


@dataclass(frozen=True)
class BackwardShare(hs.RatioMetric):
    """Share of a head's attention that goes at least `reach` tokens back."""

    name = "backward_share"
    title = "Attention backward"
    short_title = "Backward"
    equation = r"\sum_{i - j \ge r} a_{ij}"
    paper = "ours"
    units = "share of attention"
    format = ".1%"
    order = 115

    reach: int = 1

    def rows(self, reading: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Attention backward; all of it; how many queries."""
        back = region_weights(reading).tril(-self.reach).sum((-2, -1)).double()
        return back, total_mass(reading), query_counts(reading)
