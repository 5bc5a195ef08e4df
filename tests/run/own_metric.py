"""A metric as a user would write it, in a module that workers can import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import headscope as hs
from headscope.measuring.region import query_counts
from headscope.measuring.region_sums import region_weights, total_mass

if TYPE_CHECKING:
    from torch import Tensor

    from headscope.attention import Attention


@dataclass(frozen=True)
class BackwardShare(hs.RatioMetric):
    """Share of a head's attention that goes at least `reach` tokens back."""

    name: ClassVar[str] = "backward_share"
    paper: ClassVar[str] = "ours"
    units: ClassVar[str] = "share of attention"

    reach: int = 1

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention backward; all of it; how many queries."""
        back = region_weights(attention).tril(-self.reach).sum((-2, -1)).double()
        return back, total_mass(attention), query_counts(attention)
