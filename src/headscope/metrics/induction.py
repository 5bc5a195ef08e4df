"""Heads that look for the same token earlier: duplicate-token and induction heads.

Both are defined on any text by its repeated tokens; the usual score is that of sequences of
random tokens repeated once (`headscope.heads.detect`), where nothing else tells a model
what comes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.measuring.contract import SELF_BLOCKS, RatioMetric, batch_of
from headscope.measuring.digests import Digest, Small
from headscope.measuring.region_sums import whole_masses
from headscope.measuring.whole_rows import query_masses

__all__ = ["DuplicateToken", "Induction"]


@dataclass(frozen=True)
class DuplicateToken(RatioMetric):
    """Share of attention from a repeated token to its earlier occurrences.

    Σ a[i,j]·1(j < i, token j = token i) / Σ a[i,j] over the queries i that have occurred
    before. Special tokens are neither.

    Wang et al. 2022, "Interpretability in the Wild: a Circuit for Indirect Object
    Identification in GPT-2 small", section 3 (duplicate token heads).
    """

    name: ClassVar[str] = "duplicate_token"
    paper: ClassVar[str] = "Wang et al. 2022, section 3 (arXiv 2211.00593)"
    units: ClassVar[str] = "share of attention"
    counts = "repeated tokens"
    blocks = SELF_BLOCKS

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and over repeated tokens."""
        return (whole_masses, repeat_sums)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention to earlier occurrences; all attention of repeated tokens; how many."""
        return _sums(attention, shift=0)


@dataclass(frozen=True)
class Induction(RatioMetric):
    """Share of attention from a repeated token to what came after it before.

    Σ a[i, j+1]·1(j + 1 < i, token j = token i) / Σ a[i,j] over the queries i that have such
    a key. A head that scores high completes A B … A with B.

    Olsson et al. 2022, "In-context Learning and Induction Heads" (prefix matching).
    """

    name: ClassVar[str] = "induction"
    paper: ClassVar[str] = "Olsson et al. 2022, prefix-matching score (arXiv 2209.11895)"
    units: ClassVar[str] = "share of attention"
    counts = "repeated tokens"
    blocks = SELF_BLOCKS

    def digests(self) -> tuple[Digest, ...]:
        """Sums of rows, and over repeated tokens."""
        return (whole_masses, repeat_sums)

    def rows(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention to what came after; all attention of repeated tokens; how many."""
        return _sums(attention, shift=1)


@Digest
def repeat_sums(attention: Attention) -> Small:
    """`document head 2`, float64: attention to earlier occurrences, and to what followed
    them; one product for both.
    """
    return (torch.bmm(attention.weights.flatten(2), _forms(attention)[0]).double(),)


def _sums(attention: Attention, shift: int) -> tuple[Tensor, Tensor, Tensor]:
    chosen = _forms(attention)[1][..., shift]
    masses = (query_masses(attention) * chosen[:, None, :]).sum(-1)
    count = chosen.sum(-1, keepdim=True).expand(-1, attention.n_heads)
    return repeat_sums(attention)[0][..., shift], masses, count


def _forms(attention: Attention) -> tuple[Tensor, Tensor]:
    """`document query·key 2`, in the type of the weights: is the key an earlier occurrence
    of the query; does it follow one? And `document query 2`, float64: is there any?
    """
    batch = batch_of(attention)
    weights = attention.weights

    def make() -> tuple[Tensor, Tensor]:
        found = batch.query_sequences(attention.block)
        ids = torch.from_numpy(found.mask.astype(np.int64) if found.ids is None else found.ids)
        real = torch.from_numpy(found.mask & ~found.special & (found.ids is not None))
        same = (ids[:, :, None] == ids[:, None, :]) & real[:, :, None] & real[:, None, :]
        after = torch.nn.functional.pad(same, (1, 0))[..., :-1] & real[:, None, :]
        pairs = torch.stack((same.tril(-1), after.tril(-1)), dim=-1).to(weights.device)
        return pairs.to(weights.dtype).flatten(1, 2), pairs.any(2).double()

    key = ("repeats", attention.block, weights.dtype, weights.device)
    return batch.once(key, make)
