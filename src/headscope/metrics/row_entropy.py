"""Focused or broad: the entropy of whole attention rows, nothing left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.measuring.contract import batch_of
from headscope.measuring.digests import Digest
from headscope.measuring.region_sums import whole_log_sums, whole_masses
from headscope.measuring.whole_rows import SurfaceMetric, first_positions, is_query, query_masses

__all__ = ["FirstEntropy", "RowEntropy", "UniformEntropy"]


@dataclass(frozen=True)
class RowEntropy(SurfaceMetric):
    """How broadly a head attends: 0 on one token, ln n evenly over n.

    Mean over all tokens i of −Σ_j p ln p, p = a[i,·] over its sum. Unlike `entropy` (Vig &
    Belinkov's), nothing is excluded. Rows that are all 0 (an ablated head) are skipped.

    Clark et al. 2019, section 3.3 and Figure 4. Their code smooths rows with 0.0001, ours
    does not.
    """

    name: ClassVar[str] = "row_entropy"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.3, Figure 4"
    units: ClassVar[str] = "nats"

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and of a ln a."""
        return (whole_masses, whole_log_sums)

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Entropies; rows; rows."""
        entropies, is_there = _entropies(attention)
        count = is_there.double().sum(-1)
        return entropies.sum(-1), count, count


@dataclass(frozen=True)
class FirstEntropy(SurfaceMetric):
    """How broadly a head attends from the first token, [CLS] in BERT.

    As `row_entropy`, over the first token of each document alone. In causal attention that
    token sees nothing but itself: 0.

    Clark et al. 2019, section 3.3 and Figure 4 (3.89 nats in BERT's last layer).
    """

    name: ClassVar[str] = "first_entropy"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.3, Figure 4"
    units: ClassVar[str] = "nats"
    counts = "documents"

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and of a ln a."""
        return (whole_masses, whole_log_sums)

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """The first row's entropy; 1; 1."""
        entropies, is_there = _entropies(attention)
        mask = batch_of(attention).query_sequences(attention.block).mask
        first = torch.from_numpy(first_positions(mask)).to(entropies.device)
        at = first[:, None, None].expand(-1, attention.n_heads, 1)
        count = is_there.gather(2, at).squeeze(2).double()
        return entropies.gather(2, at).squeeze(2), count, count


@dataclass(frozen=True)
class UniformEntropy(SurfaceMetric):
    """The entropy of attending evenly to everything in sight: what `row_entropy` is held to.

    Mean over all tokens of ln k, k the keys a query can see: all of them, or those up to
    itself in causal attention.

    Clark et al. 2019, section 3.3, the line in Figure 4.
    """

    name: ClassVar[str] = "uniform_entropy"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.3, Figure 4"
    units: ClassVar[str] = "nats"
    scope = "tokens"
    has_heads = False

    def digests(self) -> tuple[Digest, ...]:
        """None: attention does not matter."""
        return ()

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Logarithms; tokens; tokens."""
        batch = batch_of(attention)
        queries = torch.from_numpy(batch.query_sequences(attention.block).mask).double()
        keys = torch.from_numpy(batch.key_sequences(attention.block).mask).double()
        seen = keys.cumsum(-1) if attention.is_causal else keys.sum(-1, keepdim=True)
        logs = seen.clamp_min(1).log() * queries
        count = queries.sum(-1)
        return logs.sum(-1), count, count


def _entropies(attention: Attention) -> tuple[Tensor, Tensor]:
    """`document head query`, float64: entropy of each row (0 where it does not count), and
    whether it counts.
    """

    def make() -> tuple[Tensor, Tensor]:
        (products,) = whole_log_sums(attention)
        mass = query_masses(attention)
        is_there = (mass > 0) & (is_query(attention)[:, None, :] > 0)
        safe = torch.where(is_there, mass, 1.0)
        # A row on one key comes to −0.0 or a rounding error below 0.
        entropies = (safe.log() - products / safe).clamp_min(0)
        return torch.where(is_there, entropies, 0.0), is_there

    return attention.once("row_entropies", make)
