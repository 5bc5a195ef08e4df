"""Entropy of attention: how evenly a head spreads it over keys."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.lazy import Tensor, torch
from headscope.metrics.core import regions
from headscope.metrics.core.contract import RatioMetric
from headscope.metrics.core.layer_data import LayerData, per_layer
from headscope.metrics.surface import SurfaceMetric, is_query, query_masses


@dataclass(frozen=True)
class Entropy(RatioMetric):
    """Entropy of a head's attention without null keys: 0 on one token, ln n evenly over n.

    Mean over query tokens of −Σ p ln p, where p is a row without null attention, renormalized. Rows
    with more than `most_null` (90 %) null attention are skipped: what is left of them says little.
    `entropy_count` is how many rows each head had.

    Vig & Belinkov 2019, Eq. 7 and footnote 4, Figure 12. With s = Σ a and t = Σ a ln a over the
    keys that count, −Σ p ln p = ln s − t / s: one logarithm per weight.
    """

    name = "entropy"
    title = "Entropy without null attention"
    short_title = "Entropy"
    equation = r"-\frac{1}{n} \sum_{i} \sum_{j} p_{ij} \ln p_{ij}"
    paper = "Vig & Belinkov 2019, Eq. 7, footnote 4, Figure 12"
    units = "nats"
    order = 130
    reductions = (regions.masses, regions.log_sums)

    most_null: float = 0.9

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return entropies of the rows that count, and their number twice."""
        mass, null = regions.row_mass(layer_data), regions.null_mass(layer_data)
        (products,) = regions.log_sums(layer_data)
        is_query = regions.region_of(layer_data).queries[:, None, :] > 0
        is_kept = is_query & (mass > 0) & (null <= self.most_null * (null + mass))
        safe = mass.masked_fill(~is_kept, 1.0)
        entropies = (safe.log() - products / safe).mul_(is_kept)
        count = is_kept.double().sum(-1)
        return entropies.sum(-1), count, count


@dataclass(frozen=True)
class RowEntropy(SurfaceMetric):
    """Entropy of a head's attention over all keys: 0 on one token, ln n evenly over n.

    Mean over all tokens i of −Σ_j p ln p, p = a[i,·] over its sum. Unlike `entropy` (Vig &
    Belinkov's), nothing is excluded. Rows that are all 0 (an ablated head) are skipped.

    Clark et al. 2019, section 3.3 and Figure 4. Their code smooths rows with 0.0001, ours does not.
    """

    name = "row_entropy"
    title = "Entropy of whole rows"
    short_title = "Row entropy"
    equation = r"-\frac{1}{n} \sum_{i} \sum_{j} p_{ij} \ln p_{ij}"
    paper = "Clark et al. 2019, section 3.3, Figure 4"
    units = "nats"
    order = 180
    reductions = (regions.whole_masses, regions.whole_log_sums)

    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return entropies, and the number of rows twice."""
        entropies, is_there = _entropies(layer_data)
        count = is_there.double().sum(-1)
        return entropies.sum(-1), count, count


@dataclass(frozen=True)
class FirstEntropy(SurfaceMetric):
    """Entropy of a head's attention from the first token, [CLS] in BERT.

    `row_entropy` over the first token of each document. In causal attention that token sees only
    itself, so the entropy is 0.

    Clark et al. 2019, section 3.3 and Figure 4 (3.89 nats in BERT's last layer).
    """

    name = "first_entropy"
    title = "Entropy from the first token"
    short_title = "First entropy"
    equation = r"-\sum_{j} p_{0j} \ln p_{0j}"
    paper = "Clark et al. 2019, section 3.3, Figure 4"
    units = "nats"
    order = 190
    reductions = (regions.whole_masses, regions.whole_log_sums)
    counts = "documents"

    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first row's entropy, and the number of first rows twice."""
        entropies, is_counted = _entropies(layer_data)
        first = torch.from_numpy(layer_data.queries.mask.argmax(axis=1)).to(entropies.device)
        index = first[:, None, None].expand(-1, layer_data.n_heads, 1)
        count = is_counted.gather(2, index).squeeze(2).double()
        return entropies.gather(2, index).squeeze(2), count, count


@dataclass(frozen=True)
class UniformEntropy(SurfaceMetric):
    """Entropy of uniform attention over the visible keys: the upper bound of `row_entropy`.

    Mean over all tokens of ln k, with k the visible keys of a query: all keys, or in causal
    attention those up to the query.

    Clark et al. 2019, section 3.3, the line in Figure 4.
    """

    name = "uniform_entropy"
    title = "Entropy of attending evenly"
    short_title = "Even entropy"
    equation = r"\frac{1}{n} \sum_{i} \ln k_i"
    paper = "Clark et al. 2019, section 3.3, Figure 4"
    units = "nats"
    order = 195
    reductions = ()
    scope = "text"

    def sums(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return logarithms, and the number of tokens twice."""
        queries = torch.from_numpy(layer_data.queries.asking).double()
        keys = torch.from_numpy(layer_data.keys.mask).double()
        seen = keys.cumsum(-1) if layer_data.is_causal else keys.sum(-1, keepdim=True)
        logs = seen.clamp_min(1).log() * queries
        count = queries.sum(-1)
        return logs.sum(-1), count, count


@per_layer
def _entropies(layer_data: LayerData) -> tuple[Tensor, Tensor]:
    """`document head query`: return the entropy of rows, float64, and a mask of counted rows."""
    (products,) = regions.whole_log_sums(layer_data)
    mass = query_masses(layer_data)
    is_there = (mass > 0) & (is_query(layer_data)[:, None, :] > 0)
    safe = torch.where(is_there, mass, 1.0)
    # A row on one key comes to −0.0 or a rounding error below 0.
    entropies = (safe.log() - products / safe).clamp_min(0)
    return torch.where(is_there, entropies, 0.0), is_there
