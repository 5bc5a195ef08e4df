"""Attention over long texts: by band of distance, and to a planted span."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from headscope.arguments import whole_number
from headscope.errors import InputError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import SELF_BLOCKS, RatioMetric
from headscope.metrics.core.layer_data import (
    LayerData,
    Reduction,
    Small,
    join_by,
    per_batch,
    per_rows,
)
from headscope.metrics.core.regions import (
    distances,
    masses,
    query_counts,
    region_of,
    region_pairs,
    total_mass,
    weighted_sums,
)

EDGES = (1, 2, 9, 65, 513)
"""First distance of each band after the first, which is the token itself."""
BANDS = ("0", "1", "2-8", "9-64", "65-512", "513-")
SPAN = "span"
"""Entry of `Document.meta` with the planted span: `start:stop`, in characters of the text."""
N_RANDOM = 16
"""Random spans of a document."""
TARGETS = ("span", "random")


@per_rows
def _bands(layer_data: LayerData) -> Tensor:
    """`document band row key`: return 1 for pairs of the region in each band."""
    distance, pairs = distances(layer_data), region_pairs(layer_data)
    band = torch.bucketize(distance, distance.new_tensor(EDGES), right=True).expand(pairs.shape)
    member = torch.nn.functional.one_hot(band, len(BANDS)).movedim(-1, 1)
    return member.to(pairs.dtype, memory_format=torch.contiguous_format) * pairs[:, None]


def _band_sums(layer_data: LayerData) -> Small:
    """`document head band`, float64: attention of the region to keys at each band of distance."""
    return (weighted_sums(layer_data, _bands(layer_data)),)


band_sums = Reduction(_band_sums, join_by("sum"))


@dataclass(frozen=True)
class DistanceShare(RatioMetric):
    """Share of a head's attention by distance: to itself, 1, 2–8, 9–64, 65–512 or more tokens.

    Σ a[i,j]·1(|i − j| in the band) / Σ a[i,j], null attention left out of both. Longer documents
    have more far keys: compare documents of one length.

    Vig & Belinkov 2019, Eq. 6, by band in place of the mean, which one far key can decide.
    """

    name = "distance_share"
    title = "Attention by distance"
    short_title = "By distance"
    equation = r"\frac{\sum_{|i - j| \in \text{band}} a_{ij}}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 6 (by band, beyond the paper)"
    units = "share of attention"
    format = ".1%"
    order = 125
    reductions = (masses, band_sums)
    blocks = SELF_BLOCKS
    dims = ("band",)
    axis_labels = {"band": BANDS}
    is_default = False

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention in each band, all attention, and queries."""
        return band_sums(layer_data)[0], total_mass(layer_data), query_counts(layer_data)


@cache
def span_sums(last: int) -> Reduction:
    """`document head 3`, float64: attention of the last tokens to the planted span, on average to
    random spans, and to all keys that count.
    """

    def read(layer_data: LayerData) -> Small:
        queries, keys = _spans(layer_data, last)
        rows, n_keys = layer_data.rows, layer_data.n_keys
        asking = queries[:, None, rows].to(layer_data.weights.dtype)
        if not asking.any():
            return (layer_data.weights.new_zeros((*layer_data.weights.shape[:2], 3)).double(),)
        paid = (asking[:, :, None] @ layer_data.weights).squeeze(2).double()
        return (paid @ keys[:, :n_keys],)

    return Reduction(read, join_by("sum"))


@per_batch
def _spans(layer_data: LayerData, last: int) -> tuple[Tensor, Tensor]:
    """Return the last tokens (`document query`), and weights of keys (`document key 3`), float64:
    1 in the span; its mean over random spans; 1 for all keys that count.
    """
    batch, tokens = layer_data.batch, layer_data.queries
    keys = region_of(layer_data).keys.double().cpu().numpy()
    asking = np.zeros(tokens.mask.shape)
    member = np.zeros((*keys.shape, 3))
    for row, document in enumerate(batch.documents):
        words = _span_words(document.meta.get(SPAN), document.spans, document.id)
        inside = np.isin(tokens.words[row], words) & (keys[row] > 0)
        real = np.flatnonzero(tokens.mask[row] & ~tokens.special[row])
        length, asking_tokens = int(inside.sum()), real[-last:]
        # Spans begin among the keys that count and end before the queries that are read.
        free = np.flatnonzero(keys[row] > 0)
        free = free[free < asking_tokens[0]] if len(asking_tokens) else free
        if not length or len(free) < length or inside[asking_tokens].any():
            continue
        asking[row, asking_tokens] = 1
        member[row, inside, 0], member[row, :, 2] = 1, keys[row]
        generator = np.random.default_rng(int(batch.sample_hashes[row] * 2**53))
        for start in generator.integers(0, len(free) - length + 1, N_RANDOM):
            member[row, free[start : start + length], 1] += 1 / N_RANDOM
    both = (torch.from_numpy(array).to(layer_data.device) for array in (asking, member))
    return tuple(both)  # type: ignore[return-value]


def _span_words(span: str | None, spans: tuple[tuple[int, int], ...], name: str) -> list[int]:
    """Return the words that overlap the planted span."""
    if span is None:
        return []
    try:
        start, stop = (int(part) for part in span.split(":"))
    except ValueError:
        raise InputError(
            f"Document {name!r} has meta {SPAN!r}: {span!r}. Expected characters of its text as "
            "'start:stop', such as '120:160'."
        ) from None
    return [n for n, (a, b) in enumerate(spans) if a < stop and b > start]


@dataclass(frozen=True)
class Retrieval(RatioMetric):
    """Share of attention from the end of a text to a planted span, beside random spans.

    Σ a[i,j]·1(j in the span) / Σ a[i,j] over the `last` tokens i and keys j that count (null
    attention left out). `random` is the mean over 16 spans of the same length, drawn with the
    document's content: a head retrieves if its share is far above. `Document.meta["span"]` names
    the span as `start:stop` in characters; documents without one are left out.

    Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality" (arXiv
    2404.15574), whose score counts copied tokens; ours is the attention itself.
    """

    name = "retrieval"
    title = "Attention to a planted span"
    short_title = "Retrieval"
    equation = r"\frac{\sum_{i \in \text{last}, j \in \text{span}} a_{ij}}{\sum_{i, j} a_{ij}}"
    paper = "Wu et al. 2024 (attention in place of copies; arXiv 2404.15574)"
    units = "share of attention"
    format = ".1%"
    order = 126
    blocks = SELF_BLOCKS
    counts = "documents"
    dims = ("target",)
    axis_labels = {"target": TARGETS}
    is_default = False

    last: int = 1

    def __post_init__(self) -> None:
        whole_number("last", self.last)

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Attention of the last tokens."""
        return (span_sums(self.last),)

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention to the span and to random spans, all attention, and documents."""
        (sums,) = span_sums(self.last)(layer_data)
        has_span = _spans(layer_data, self.last)[0].any(1).double()
        count = has_span[:, None].expand(-1, layer_data.n_heads)
        return sums[..., :2], sums[..., 2], count
