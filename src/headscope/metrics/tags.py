"""Which parts of speech a head looks at, and from which it looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Reading
from headscope.measuring.region import has_labels, one_hot, query_counts
from headscope.measuring.region_sums import column_mass, masses, row_mass, total_mass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PosTo(RatioMetric):
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
    units = "share of attention"
    format = ".1%"
    order = 240
    digests = (masses,)
    needs = frozenset(("tags",))
    dims = ("tag",)

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Attention received by the tokens of each tag; all of it."""
        to_tags = column_mass(reading) @ one_hot(reading, "key", "tags")
        total = total_mass(reading) * has_labels(reading, "tags", "key")
        return to_tags, total, query_counts(reading, "tags", "key")


@dataclass(frozen=True)
class PosFrom(RatioMetric):
    """Share of a head's attention that comes from each part of speech.

    Σ a[i,j]·1(pos(i) = t) / Σ a[i,j], null attention left out of both. A head without null
    attention has the tags' frequencies here: what differs from them is where it rests.

    Vig & Belinkov 2019, section 5.3.1, Figures 7 and A.2.
    """

    name = "pos_from"
    title = "Attention from each tag"
    short_title = "From each tag"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[\text{tag}(i) = t]}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, section 5.3.1, Figures 7 and A.2"
    units = "share of attention"
    format = ".1%"
    order = 250
    digests = (masses,)
    needs = frozenset(("tags",))
    dims = ("tag",)

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Attention paid by the tokens of each tag; all of it."""
        from_tags = row_mass(reading) @ one_hot(reading, "query", "tags")
        total = total_mass(reading) * has_labels(reading, "tags", "query")
        return from_tags, total, query_counts(reading, "tags", "query")
