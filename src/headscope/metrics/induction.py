"""Duplicate-token and induction heads, from the repeated tokens of any text.

The usual score, on random tokens repeated once, is in `headscope.heads.detect`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscope.lazy import Tensor
from headscope.metrics.core.contract import SELF_BLOCKS, RatioMetric
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.regions import are_repeated, repeat_sums, whole_masses
from headscope.metrics.surface import query_masses


class _RepeatShare(RatioMetric):
    """Attention of repeated tokens to certain earlier keys, over all their attention."""

    units = "share of attention"
    format = ".1%"
    reductions = (whole_masses, repeat_sums)
    counts = "repeated tokens"
    blocks = SELF_BLOCKS
    shift: ClassVar[int]
    """Position of the key after the earlier occurrence."""

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention to these keys, all attention of repeated tokens, and their number."""
        is_repeated = are_repeated(layer_data)[..., self.shift]
        masses = (query_masses(layer_data) * is_repeated[:, None, :]).sum(-1)
        count = is_repeated.sum(-1, keepdim=True).expand(-1, layer_data.n_heads)
        return repeat_sums(layer_data)[0][..., self.shift], masses, count


@dataclass(frozen=True)
class DuplicateToken(_RepeatShare):
    """Share of attention from a repeated token to its earlier occurrences.

    Σ a[i,j]·1(j < i, token j = token i) / Σ a[i,j] over queries i that occurred before. Special
    tokens are left out on both sides.

    Wang et al. 2022, "Interpretability in the Wild: a Circuit for Indirect Object Identification in
    GPT-2 small", section 3 (duplicate token heads).
    """

    name = "duplicate_token"
    title = "To the same token, earlier"
    short_title = "Duplicates"
    equation = (
        r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[j < i, \text{token}(j) = "
        r"\text{token}(i)]}{\sum_{i,j} a_{ij}}"
    )
    paper = "Wang et al. 2022, section 3 (arXiv 2211.00593)"
    order = 230
    shift = 0


@dataclass(frozen=True)
class Induction(_RepeatShare):
    """Share of attention from a repeated token to the token after its earlier occurrence.

    Σ a[i, j+1]·1(j + 1 < i − 1, token j = token i) / Σ a[i,j] over the queries i that have such a
    key. A head that scores high completes A B … A with B. The previous token does not count: in
    A B A it follows an equal token, so every previous-token head would score.

    Olsson et al. 2022, "In-context Learning and Induction Heads" (prefix matching).
    """

    name = "induction"
    title = "To what followed the same token"
    short_title = "Induction"
    equation = (
        r"\frac{\sum_{i,j} a_{i,j+1} \cdot \mathbb{1}[j + 1 < i - 1, \text{token}(j) = "
        r"\text{token}(i)]}{\sum_{i,j} a_{ij}}"
    )
    paper = "Olsson et al. 2022, prefix-matching score (arXiv 2209.11895)"
    order = 220
    shift = 1
