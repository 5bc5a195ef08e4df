"""How long the documents are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.deferred import torch
from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Reading

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokensPerDocument(RatioMetric):
    """How long the documents are, in tokens; its count is how many there are.

    Special tokens are not counted.

    Vig & Belinkov 2019, Figure 4 (27.7 tokens).
    """

    name = "tokens_per_document"
    title = "Length of documents"
    short_title = "Length"
    equation = r"\frac{1}{N} \sum_{d} n_d"
    paper = "Vig & Belinkov 2019, Figure 4"
    units = "tokens"
    format = ".1f"
    order = 10
    counts = "documents"
    scope = "text"

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens; documents; documents."""
        is_counted = reading.queries.mask & ~reading.queries.special
        tokens = torch.from_numpy(is_counted.sum(1)).double()
        return tokens, torch.ones_like(tokens), torch.ones_like(tokens)
