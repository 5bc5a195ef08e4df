"""Attention to and from each part of speech."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from headscope.lazy import Tensor
from headscope.metrics.core.contract import RatioMetric
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.regions import (
    column_mass,
    has_labels,
    masses,
    one_hot,
    query_counts,
    row_mass,
    total_mass,
)


class LabelShare(RatioMetric):
    """Attention to or from the words of each label, over all attention of documents with labels."""

    units = "share of attention"
    format = ".1%"
    reductions = (masses,)
    side: ClassVar[Literal["query", "key"]]
    """Side of the labeled words: queries attend, keys are attended to."""
    labels: ClassVar[Literal["tags", "relations"]]

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention by label, all attention, and queries."""
        mass = column_mass(layer_data) if self.side == "key" else row_mass(layer_data)
        total = total_mass(layer_data) * has_labels(layer_data, self.labels, self.side)
        by_label = mass @ one_hot(layer_data, self.side, self.labels)
        return by_label, total, query_counts(layer_data, self.labels, self.side)


@dataclass(frozen=True)
class PosTo(LabelShare):
    """Share of a head's attention that goes to each part of speech.

    Σ a[i,j]·1(pos(j) = t) / Σ a[i,j], null attention left out of both. All tokens of a word
    have its tag (footnote 6 of the paper). Tokens without a tag count below, so the shares
    may sum to less than 1. Documents without tags are left out.

    Vig & Belinkov 2019, Eq. 3, Figures 6 and A.1.
    """

    name = "pos_to"
    title = "Attention to each tag"
    short_title = "To each tag"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[\text{tag}(j) = t]}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 3, Figures 6 and A.1"
    order = 240
    needs = frozenset(("tags",))
    dims = ("tag",)
    side = "key"
    labels = "tags"


@dataclass(frozen=True)
class PosFrom(LabelShare):
    """Share of a head's attention that comes from each part of speech.

    Σ a[i,j]·1(pos(i) = t) / Σ a[i,j], null attention left out of both. A head without null
    attention has the frequencies of the tags; differences show which tags attend to an attention
    sink.

    Vig & Belinkov 2019, section 5.3.1, Figures 7 and A.2.
    """

    name = "pos_from"
    title = "Attention from each tag"
    short_title = "From each tag"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[\text{tag}(i) = t]}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, section 5.3.1, Figures 7 and A.2"
    order = 250
    needs = frozenset(("tags",))
    dims = ("tag",)
    side = "query"
    labels = "tags"
