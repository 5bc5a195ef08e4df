"""How much attention goes to delimiters: special tokens, punctuation, the first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes
from headscope.measuring.contract import batch_of
from headscope.measuring.digests import Digest, Small
from headscope.measuring.region import of_batch
from headscope.measuring.region_sums import whole_masses
from headscope.measuring.whole_rows import SurfaceMetric, is_query, query_masses

__all__ = ["ClassShare", "SepFromOther", "SepFromSep"]


@dataclass(frozen=True)
class ClassShare(SurfaceMetric):
    """Share of attention to each class of keys: where a head rests.

    Σ a[i,j]·1(j is of the class) / Σ a[i,j] over all tokens, special ones too. Classes are
    the first token, each special token of the tokenizer, "." or ",", all punctuation and
    the rest; they overlap.

    Clark et al. 2019, section 3.2 and Figure 2, who have [CLS], [SEP] and ". or ,".
    """

    name: ClassVar[str] = "class_share"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.2, Figure 2"
    units: ClassVar[str] = "share of attention"
    dims = ("key_class",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Classes of the run."""
        return {"key_class": axes.key_classes}

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention to each class; all attention; queries."""
        classes = key_classes(attention)
        columns = whole_masses(attention)[2]
        count = is_query(attention).double().sum(-1, keepdim=True).expand(-1, attention.n_heads)
        known = torch.ones(())
        if classes is None:
            n_classes = len(batch_of(attention).axes.key_classes)
            classes = columns.new_zeros((columns.shape[0], columns.shape[2], n_classes))
            known = torch.zeros(())
        known = known.to(columns)
        return columns @ classes, query_masses(attention).sum(-1) * known, count * known


@dataclass(frozen=True)
class SepFromSep(SurfaceMetric):
    """Share of attention that separators pay to separators: near 1, they look at nothing else.

    Σ a[i,j] / Σ a[i,·] over queries i that are separators, keys j likewise. A separator is a
    special token that is not the first token of its document ([SEP], </s>). Models without
    one have no value and a count of 0.

    Clark et al. 2019, section 3.2, bottom of Figure 2 (more than 0.9).
    """

    name: ClassVar[str] = "sep_from_sep"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.2, Figure 2"
    units: ClassVar[str] = "share of attention"
    counts = "separators"

    def digests(self) -> tuple[Digest, ...]:
        """Attention to separators."""
        return (whole_masses, to_separators)

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention between separators; all of theirs; how many."""
        return _from(attention, from_separators=True)


@dataclass(frozen=True)
class SepFromOther(SurfaceMetric):
    """Share of attention that other tokens pay to separators: high where a head idles.

    As `sep_from_sep`, over queries i that are not separators, in documents that have one.

    Clark et al. 2019, section 3.2, bottom of Figure 2.
    """

    name: ClassVar[str] = "sep_from_other"
    paper: ClassVar[str] = "Clark et al. 2019, section 3.2, Figure 2"
    units: ClassVar[str] = "share of attention"

    def digests(self) -> tuple[Digest, ...]:
        """Attention to separators."""
        return (whole_masses, to_separators)

    def sums(self, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Attention of the others to separators; all of theirs; how many."""
        return _from(attention, from_separators=False)


def key_classes(attention: Attention) -> Tensor | None:
    """`document key class`, float64: membership; None where it is not known."""
    batch = batch_of(attention)
    found = batch.key_sequences(attention.block)
    if found.classes is None:
        return None
    members = found.classes & found.mask[..., None]
    device = attention.weights.device
    key = ("key classes", attention.block, device)
    return batch.once(key, lambda: torch.from_numpy(members).double().to(device))


@Digest
def to_separators(attention: Attention) -> Small:
    """`document head query`, float64: attention of each query to separators."""
    keys = separators(attention, "key").to(attention.weights)
    return ((attention.weights @ keys[:, None, :, None]).squeeze(-1).double(),)


def separators(attention: Attention, side: str) -> Tensor:
    """`document token`: is it a separator, on the side of queries or of keys?"""

    def make() -> Tensor:
        batch = batch_of(attention)
        of_side = batch.query_sequences if side == "query" else batch.key_sequences
        found = of_side(attention.block)
        is_separator = found.special & found.mask
        is_separator[np.arange(len(is_separator)), found.mask.argmax(axis=1)] = False
        return torch.from_numpy(is_separator).to(attention.weights.device)

    return of_batch(attention, ("separators", side), make)


def _from(attention: Attention, *, from_separators: bool) -> tuple[Tensor, Tensor, Tensor]:
    asking = separators(attention, "query")
    if not from_separators:
        asking = (is_query(attention) > 0) & ~asking
    has = separators(attention, "key").any(1, keepdim=True)
    queries = (asking & has).double()
    count = queries.sum(-1, keepdim=True).expand(-1, attention.n_heads)
    numerator = (to_separators(attention)[0] * queries[:, None, :]).sum(-1)
    return numerator, (query_masses(attention) * queries[:, None, :]).sum(-1), count
