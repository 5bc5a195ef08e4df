"""How spread out a head's attention is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from headscope.attention import Attention
from headscope.measuring.contract import RatioMetric
from headscope.measuring.digests import Digest
from headscope.measuring.region import region_of
from headscope.measuring.region_sums import log_sums, masses, null_mass, row_mass

__all__ = ["Entropy"]


@dataclass(frozen=True)
class Entropy(RatioMetric):
    """How spread out a head's attention is: 0 on one token, ln n evenly over n.

    Mean over query tokens of −Σ p ln p, where p is a row without null attention,
    renormalized. Rows with more than `most_null` (90 %) null attention are skipped: what is
    left of them says little. `entropy_count` is how many rows each head had.

    Vig & Belinkov 2019, Eq. 7 and footnote 4, Figure 12. With s = Σ a and t = Σ a ln a over
    the keys that count, −Σ p ln p = ln s − t / s: one logarithm per weight.
    """

    name: ClassVar[str] = "entropy"
    paper: ClassVar[str] = "Vig & Belinkov 2019, Eq. 7, footnote 4, Figure 12"
    units: ClassVar[str] = "nats"

    most_null: float = 0.9

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and of a ln a."""
        return (masses, log_sums)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Entropies of the rows that count; how many; the same."""
        mass, null = row_mass(attention), null_mass(attention)
        (products,) = log_sums(attention)
        is_query = region_of(attention).queries[:, None, :] > 0
        is_kept = is_query & (mass > 0) & (null <= self.most_null * (null + mass))
        safe = mass.masked_fill(~is_kept, 1.0)
        entropies = (safe.log() - products / safe).mul_(is_kept)
        count = is_kept.double().sum(-1)
        return entropies.sum(-1), count, count
