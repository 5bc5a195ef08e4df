"""Attention sinks: heads that park on the first token, text after text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.measuring.contract import SELF_BLOCKS, RatioMetric, batch_of
from headscope.measuring.digests import Digest, Small
from headscope.measuring.whole_rows import first_positions, is_query

__all__ = ["SinkRate"]


@dataclass(frozen=True)
class SinkRate(RatioMetric):
    """Share of documents in which the first token is a head's attention sink.

    A sink is a key that receives more than `threshold` of the attention of the queries that
    see it, on average: (1/n) Σ_i a[i, first] > ε. Documents of one token are not counted:
    there is nothing else to look at.

    Named by Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks"
    (arXiv 2309.17453); measured by Gu et al. 2024, "When Attention Sink Emerges in Language
    Models: An Empirical View", whose Sink_1 with ε = 0.3 is our mean over heads. They measure
    sequences of a fixed length; the shorter a document, the more easily it has a sink.
    """

    name: ClassVar[str] = "sink_rate"
    paper: ClassVar[str] = "Gu et al. 2024 (arXiv 2410.10781)"
    units: ClassVar[str] = "share of documents"
    counts = "documents"
    blocks = SELF_BLOCKS

    threshold: float = 0.3

    def digests(self) -> tuple[Digest, ...]:
        """Attention to the first token."""
        return (to_first,)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """1 where the first token is a sink; 1; 1."""
        n_tokens = is_query(attention).double().sum(-1, keepdim=True)
        mean = to_first(attention)[0] / n_tokens.clamp_min(1)
        counts = (n_tokens > 1).double().expand(-1, attention.n_heads)
        return (mean > self.threshold).double() * counts, counts, counts


@Digest
def to_first(attention: Attention) -> Small:
    """`document head`, float64: what all queries together pay to the first token."""
    mask = batch_of(attention).query_sequences(attention.block).mask
    first = torch.from_numpy(first_positions(mask)).to(attention.weights.device)
    at = first[:, None, None, None].expand(-1, *attention.weights.shape[1:3], 1)
    paid = attention.weights.gather(3, at).squeeze(3) * is_query(attention)[:, None, :]
    return (paid.double().sum(-1),)
