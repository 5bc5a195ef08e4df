"""How attention is summed: the contract of a metric, and what metrics are made of.

What this module exports is public: it is what the guide to writing a metric uses. The modules
below it may change.
"""

from headscope.measuring.contract import (
    ALL_BLOCKS,
    SELF_BLOCKS,
    Fact,
    LayersMetric,
    MergedMetric,
    Metric,
    State,
    SumMetric,
    Variable,
)
from headscope.measuring.ratio import RatioMetric
from headscope.measuring.reading import Digest, Reading, Small
from headscope.measuring.region import Region, distances, query_counts, region_of
from headscope.measuring.region_sums import (
    column_mass,
    log_sums,
    masses,
    null_mass,
    pair_sums,
    region_weights,
    row_mass,
    total_mass,
)
from headscope.measuring.word_attention import word_weights

__all__ = [
    "ALL_BLOCKS",
    "SELF_BLOCKS",
    "Digest",
    "Fact",
    "LayersMetric",
    "MergedMetric",
    "Metric",
    "RatioMetric",
    "Reading",
    "Region",
    "Small",
    "State",
    "SumMetric",
    "Variable",
    "column_mass",
    "distances",
    "log_sums",
    "masses",
    "null_mass",
    "pair_sums",
    "query_counts",
    "region_of",
    "region_weights",
    "row_mass",
    "total_mass",
    "word_weights",
]
