"""Whether attention follows syntax: alignment with dependencies, and what text alone gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.batch import Axes
from headscope.deferred import torch
from headscope.measuring.contract import SELF_BLOCKS
from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Reading
from headscope.measuring.region import (
    distances,
    has_labels,
    query_counts,
    region_of,
    relations_of_pairs,
)
from headscope.measuring.region_sums import masses, pair_sums, total_mass
from headscope.metrics.tags import LabelShare

if TYPE_CHECKING:
    from torch import Tensor

PARENTS = ("query", "key", "either")
"""Which token of a pair is the parent of the other."""
FARTHEST = 64


@dataclass(frozen=True)
class DepAlignment(RatioMetric):
    """Share of a head's attention that runs along dependency arcs.

    Σ a[i,j]·dep(i,j) / Σ a[i,j], null attention left out of both, in three forms: the query
    token is the parent, the key token is, or either. Tokens of one word are in no relation
    with one another. Compare with `dep_baseline`.

    Vig & Belinkov 2019, Eq. 4, Figure 8.
    """

    name = "dep_alignment"
    title = "Attention along dependencies"
    short_title = "Along dependencies"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \text{dep}(i, j)}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 4, Figure 8"
    units = "share of attention"
    format = ".1%"
    order = 110
    digests = (masses, pair_sums)
    needs = frozenset(("parents",))
    blocks = SELF_BLOCKS
    dims = ("parent",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Who is the parent."""
        return {"parent": PARENTS}

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Attention between related tokens; all of it."""
        is_parsed = has_labels(reading, "parents")
        aligned = pair_sums(reading)[0][..., 1:] * is_parsed[..., None]
        total = total_mass(reading) * is_parsed
        either = aligned.sum(-1, keepdim=True)
        return torch.cat((aligned, either), dim=-1), total, query_counts(reading, "parents")


@dataclass(frozen=True)
class DepTypeTo(LabelShare):
    """Share of a head's attention that goes to words of each dependency relation.

    Σ a[i,j]·1(relation(j) = r) / Σ a[i,j], null attention left out of both; the relation is
    that of the key's word to its parent, as labeled in the data.

    Vig & Belinkov 2019, section 5.3.2, Figure 9 (as Eq. 3, with relations for tags).
    """

    name = "dep_type_to"
    title = "Attention to each relation"
    short_title = "To each relation"
    equation = (
        r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[\text{relation}(j) = r]}{\sum_{i,j} "
        r"a_{ij}}"
    )
    paper = "Vig & Belinkov 2019, section 5.3.2, Figure 9"
    order = 260
    needs = frozenset(("parents", "relations"))
    dims = ("relation",)
    side = "key"
    labels = "relations"


class _OfPairs(RatioMetric):
    """Something about token pairs in parsed documents, the same for all layers and heads."""

    units = "share of token pairs"
    format = ".1%"
    scope = "text"
    needs = frozenset(("parents",))
    blocks = SELF_BLOCKS


@dataclass(frozen=True)
class DepBaselineByParent(_OfPairs):
    """Share of token pairs in a dependency relation: the alignment of uniform attention.

    Pairs of the same region as `dep_alignment`, each counted once, attention ignored; in
    its three forms.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name = "dep_baseline_by_parent"
    title = "Related pairs, by parent"
    equation = r"\frac{\sum_{i,j} \text{dep}(i, j)}{\sum_{i,j} 1}"
    paper = "Vig & Belinkov 2019, Figure 8, orange line"
    order = 112
    dims = ("parent",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Who is the parent."""
        return {"parent": PARENTS}

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs; all pairs; queries."""
        pairs = _pairs_of(reading)
        forms = [(form * pairs.all).sum((1, 2)) for form in relations_of_pairs(reading)]
        return torch.stack((*forms, forms[0] + forms[1]), dim=-1), pairs.n_all, pairs.queries


@dataclass(frozen=True)
class DepBaseline(_OfPairs):
    """Share of token pairs in a dependency relation, whichever of them is the parent.

    What `dep_alignment` would be if attention were spread evenly over the region.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name = "dep_baseline"
    title = "Related pairs"
    equation = r"\frac{\sum_{i,j} \text{dep}(i, j)}{\sum_{i,j} 1}"
    paper = "Vig & Belinkov 2019, Figure 8, orange line"
    order = 111

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs; all pairs; queries."""
        pairs = _pairs_of(reading)
        return pairs.n_related, pairs.n_all, pairs.queries


@dataclass(frozen=True)
class DepByDistance(_OfPairs):
    """How likely two tokens d positions apart are in a dependency relation.

    Of the pairs of the region at each distance from 1 on, the share that is related either
    way. Up to 64 tokens.

    Vig & Belinkov 2019, section 5.3.3 (0.42, 0.07 and 0.02 at distance 1, 5 and 10).
    """

    name = "dep_by_distance"
    title = "Dependencies by distance"
    equation = r"\frac{\sum_{|i - j| = d} \text{dep}(i, j)}{\sum_{|i - j| = d} 1}"
    paper = "Vig & Belinkov 2019, section 5.3.3"
    order = 113
    dims = ("distance_between",)
    denominator_dims = ("distance_between",)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Distances."""
        return {"distance_between": range(1, FARTHEST + 1)}

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Related pairs and all pairs at each distance; queries."""
        pairs = _pairs_of(reading)
        apart = distances(reading).long().clamp_max(FARTHEST + 1)
        n, size = len(pairs.queries), FARTHEST + 2
        at = (apart + size * torch.arange(n, device=apart.device)[:, None, None]).flatten()
        numerator, denominator = (
            torch.bincount(at, counted.flatten(), minlength=size * n).view(n, size)[:, 1:-1]
            for counted in (pairs.related, pairs.all)
        )
        return numerator, denominator, pairs.queries


@dataclass(frozen=True)
class DepSpan(_OfPairs):
    """How many tokens a dependency arc spans, on average.

    Mean |i − j| over the pairs of the region that are in a dependency relation.

    Vig & Belinkov 2019, section 5.3.2 (3.89 tokens).
    """

    name = "dep_span"
    title = "Span of dependencies"
    short_title = "Span"
    equation = r"\frac{\sum_{i,j} \text{dep}(i, j) \cdot |i - j|}{\sum_{i,j} \text{dep}(i, j)}"
    paper = "Vig & Belinkov 2019, section 5.3.2"
    units = "tokens"
    format = ".2f"
    order = 114

    def rows(self, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
        """Distance over related pairs; related pairs; queries."""
        pairs = _pairs_of(reading)
        spans = (pairs.related * distances(reading)).sum((1, 2))
        return spans, pairs.n_related, pairs.queries


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Token pairs of the region, in documents that are parsed."""

    all: Tensor
    """`document query key`"""
    related: Tensor
    """`document query key`: those in a dependency relation."""
    n_all: Tensor
    n_related: Tensor
    queries: Tensor
    """`document`: how many queries there are."""


def _pairs_of(reading: Reading) -> _Pairs:
    def make() -> _Pairs:
        region = region_of(reading)
        is_parsed = has_labels(reading, "parents")[:, 0]
        pairs = region.pairs.double() * is_parsed[:, None, None]
        query_parent, key_parent = relations_of_pairs(reading)
        related = pairs * (query_parent + key_parent)
        queries = region.queries.double().sum(-1) * is_parsed
        return _Pairs(pairs, related, pairs.sum((1, 2)), related.sum((1, 2)), queries)

    return reading.once("pairs", make)
