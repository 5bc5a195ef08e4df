"""Attention by position and class of key, distances, attention sinks and null attention.

Clark et al.'s metrics count every token as query and key, special tokens included. Vig & Belinkov's
leave null attention out.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, final, get_args

from headscope.errors import UnknownName
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import SELF_BLOCKS, RatioMetric
from headscope.metrics.core.layer_data import LayerData, Reduction, per_batch
from headscope.metrics.core.regions import (
    OFFSETS,
    diagonal_sums,
    distance_sum,
    everything,
    masses,
    null_mass,
    pair_sums,
    query_counts,
    separators,
    to_first,
    to_separators,
    total_mass,
    whole_masses,
)

Weighting = Literal["token", "document"]
"""Weighting of documents. `token`: ratios of sums over all tokens. `document`: means of documents'
ratios, as in the code of Clark et al."""


@dataclass(frozen=True)
class SurfaceMetric(RatioMetric):
    """Ratio over all tokens. Subclasses write `sums`."""

    name: ClassVar[str]
    reductions: ClassVar[tuple[Reduction, ...]] = (whole_masses,)
    weighting: Weighting = "token"

    def __post_init__(self) -> None:
        UnknownName.check("weighting", self.weighting, get_args(Weighting))

    @property
    def averaged(self) -> str:
        """Description of the weighting."""
        return super().averaged if self.weighting == "token" else "mean of the documents' ratios"

    @abstractmethod
    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return `RatioMetric.rows`, weighted by token."""

    @final
    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums; weighted by document, each document's ratio and 1 if it has one."""
        numerator, denominator, count = self.sums(layer_data)
        if self.weighting == "token":
            return numerator, denominator, count
        has = (denominator > 0).double()
        missing = numerator.ndim - denominator.ndim
        shape = denominator.shape + (1,) * missing
        safe = torch.where(denominator > 0, denominator, 1.0).view(shape)
        return numerator / safe * has.view(shape), has, count


def is_query(layer_data: LayerData) -> Tensor:
    """`document query`: return 1 for every token, in the type of the weights."""
    return everything(layer_data).queries


def token_counts(layer_data: LayerData) -> Tensor:
    """`document head`, float64: return the number of tokens."""
    return is_query(layer_data).double().sum(-1, keepdim=True).expand(-1, layer_data.n_heads)


def query_masses(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return row sums, 1 except with sink logits and edits."""
    return whole_masses(layer_data)[0]


@dataclass(frozen=True)
class OffsetShare(SurfaceMetric):
    """Share of attention that goes to the token before (−1), itself (0) or after (1).

    Σ a[i, i+o] / Σ a[i, j] over the queries i that have a token at i+o; offset is key minus query.
    Above 0.5 at −1 a head is a previous-token head. In causal attention the next token is not
    visible: 0.

    Clark et al. 2019, section 3.1. Their code divides by all tokens, including the first one, which
    has no token before it: (n − 1)/n of ours. The legend of their plot swaps next and previous.
    """

    name = "offset_share"
    title = "Attention by position"
    equation = r"\frac{\sum_{i} a_{i,i+o}}{\sum_{i,j} a_{ij}}"
    paper = "Clark et al. 2019, section 3.1, Figure 1"
    units = "share of attention"
    format = ".1%"
    order = 160
    reductions = (whole_masses, diagonal_sums)
    blocks = SELF_BLOCKS
    dims = ("offset",)
    denominator_dims = ("offset",)
    axis_labels = {"offset": OFFSETS}

    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention at each offset, attention of queries with a token there, and queries."""
        masses = query_masses(layer_data)
        paid = [(masses[..., queries] * mask).sum(-1) for queries, mask in _pairs(layer_data)]
        return diagonal_sums(layer_data)[0], torch.stack(paid, -1), token_counts(layer_data)


@dataclass(frozen=True)
class ClassShare(SurfaceMetric):
    """Share of attention to each class of keys, including attention sinks.

    Σ a[i,j]·1(j is of the class) / Σ a[i,j] over all tokens, special ones too. Classes are the
    first token, each special token of the tokenizer, "." or ",", all punctuation and the rest; they
    overlap.

    Clark et al. 2019, section 3.2 and Figure 2, who have [CLS], [SEP] and ". or ,".
    """

    name = "class_share"
    title = "Attention by class of key"
    short_title = "By class of key"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[j \in \text{class}]}{\sum_{i,j} a_{ij}}"
    paper = "Clark et al. 2019, section 3.2, Figure 2"
    units = "share of attention"
    format = ".1%"
    order = 170
    dims = ("key_class",)

    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention to each class, all attention, and queries."""
        classes = key_classes(layer_data)
        total, count = query_masses(layer_data).sum(-1), token_counts(layer_data)
        if classes is None:
            empty = total.new_zeros((*total.shape, len(layer_data.batch.axes.key_classes)))
            return empty, total * 0, count * 0
        return whole_masses(layer_data)[2] @ classes, total, count


class _ToSeparators(SurfaceMetric):
    """Attention of some tokens to separators, over all their attention."""

    units = "share of attention"
    format = ".1%"
    reductions = (whole_masses, to_separators)
    from_separators: ClassVar[bool]
    """Queries are the separators; if false, all other tokens."""

    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention to separators, all attention, and queries."""
        asking = separators(layer_data, "query")
        if not self.from_separators:
            asking = (is_query(layer_data) > 0) & ~asking
        has = separators(layer_data, "key").any(1, keepdim=True)
        queries = (asking & has).double()
        count = queries.sum(-1, keepdim=True).expand(-1, layer_data.n_heads)
        numerator = (to_separators(layer_data)[0] * queries[:, None, :]).sum(-1)
        return numerator, (query_masses(layer_data) * queries[:, None, :]).sum(-1), count


@dataclass(frozen=True)
class SepFromSep(_ToSeparators):
    """Share of attention that separators pay to separators: near 1, they attend to nothing else.

    Σ a[i,j] / Σ a[i,·] over queries i and keys j that are separators. A separator is a special
    token that is not the first token of its document ([SEP], </s>). Models without one have NaN and
    a count of 0.

    Clark et al. 2019, section 3.2, bottom of Figure 2 (more than 0.9).
    """

    name = "sep_from_sep"
    title = "Separators to separators"
    equation = r"\frac{\sum_{i,j \in \text{sep}} a_{ij}}{\sum_{i \in \text{sep}, j} a_{ij}}"
    paper = "Clark et al. 2019, section 3.2, Figure 2"
    order = 200
    counts = "separators"
    from_separators = True


@dataclass(frozen=True)
class SepFromOther(_ToSeparators):
    """Share of attention that other tokens pay to separators, as an attention sink.

    `sep_from_sep` over queries i that are not separators, in documents that have one.

    Clark et al. 2019, section 3.2, bottom of Figure 2.
    """

    name = "sep_from_other"
    title = "Other tokens to separators"
    equation = (
        r"\frac{\sum_{i \notin \text{sep}, j \in \text{sep}} a_{ij}}{\sum_{i \notin "
        r"\text{sep}, j} a_{ij}}"
    )
    paper = "Clark et al. 2019, section 3.2, Figure 2"
    order = 210
    from_separators = False


@dataclass(frozen=True)
class SinkRate(RatioMetric):
    """Share of documents in which the first token is a head's attention sink.

    A sink receives more than `threshold` of the attention of the queries that see it, on average:
    (1/n) Σ_i a[i, first] > ε. Documents of one token are not counted.

    Named by Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks" (arXiv
    2309.17453). Measured by Gu et al. 2024, "When Attention Sink Emerges in Language Models: An
    Empirical View", whose Sink_1 with ε = 0.3 is our mean over heads. They use sequences of a fixed
    length; shorter documents have a sink more easily.
    """

    name = "sink_rate"
    title = "Documents whose first token is a sink"
    short_title = "Sinks"
    equation = r"\frac{1}{N} \sum_{d} \mathbb{1}\left[\frac{1}{n} \sum_{i} a_{i0} > 0.3\right]"
    paper = "Gu et al. 2024 (arXiv 2410.10781)"
    units = "share of documents"
    format = ".1%"
    order = 175
    reductions = (to_first,)
    counts = "documents"
    blocks = SELF_BLOCKS

    threshold: float = 0.3

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return 1 if the first token is a sink, and documents twice."""
        n_tokens = token_counts(layer_data)
        mean = to_first(layer_data)[0] / n_tokens.clamp_min(1)
        counts = (n_tokens > 1).double()
        return (mean > self.threshold).double() * counts, counts, counts


@per_batch
def _pairs(layer_data: LayerData) -> list[tuple[slice, Tensor]]:
    """Return for each offset a slice of queries, and a mask of those with a token there."""
    region = everything(layer_data)
    n = region.queries.shape[1]
    pairs = []
    for offset in OFFSETS:
        queries = slice(max(0, -offset), n - max(0, offset))
        keys = slice(max(0, offset), n - max(0, -offset))
        pairs.append((queries, (region.queries[:, queries] * region.keys[:, keys])[:, None]))
    return pairs


@per_batch
def key_classes(layer_data: LayerData) -> Tensor | None:
    """`document key class`, float64: return memberships, or None if unknown."""
    keys = layer_data.keys
    if keys.classes is None:
        return None
    members = keys.classes & keys.mask[..., None]
    return torch.from_numpy(members).double().to(layer_data.device)


@dataclass(frozen=True)
class Distance(RatioMetric):
    """Mean distance between a query token and the tokens it attends to.

    Σ a[i,j]·|i − j| / Σ a[i,j], null attention left out of both. Distances count token positions.
    In encoders keys lie on both sides, so the distance is absolute.

    Vig & Belinkov 2019, Eq. 6, Figure 11.
    """

    name = "distance"
    title = "Mean distance"
    short_title = "Distance"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot |i - j|}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 6, Figure 11"
    units = "tokens"
    format = ".2f"
    order = 120
    reductions = (masses, pair_sums)
    blocks = SELF_BLOCKS

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention times distance, all attention, and queries."""
        return distance_sum(layer_data), total_mass(layer_data), query_counts(layer_data)


@dataclass(frozen=True)
class NullShare(RatioMetric):
    """Share of a head's attention to null keys: high in heads that mostly attend to a sink.

    Σ a[i,j]·1(j is null) / Σ a[i,j] over query tokens i that are not special and all keys j. Null
    keys are the first token in causal attention and every special token otherwise (`null_keys` of a
    run). Rows that sum to less than 1 (models with sink logits) are normalized.

    Vig & Belinkov 2019, section 5.2.3 and Figure 5, where only the first token is null.
    """

    name = "null_share"
    title = "Null attention"
    equation = r"\frac{\sum_{i} \sum_{j \in \text{null}} a_{ij}}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, section 5.2.3, Figure 5"
    units = "share of attention"
    format = ".1%"
    order = 100
    reductions = (masses,)

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return null attention, all attention, and queries."""
        null = null_mass(layer_data).sum(-1)
        return null, null + total_mass(layer_data), query_counts(layer_data)


@dataclass(frozen=True)
class TokensPerDocument(RatioMetric):
    """Mean length of documents in tokens; its count is the number of documents.

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

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens, and documents twice."""
        is_counted = layer_data.queries.asking & ~layer_data.queries.special
        tokens = torch.from_numpy(is_counted.sum(1)).double()
        return tokens, torch.ones_like(tokens), torch.ones_like(tokens)
