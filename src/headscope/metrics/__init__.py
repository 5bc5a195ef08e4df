"""What heads do, as numbers: one family of metrics a file, on the contract of `measuring`.

Importing this package registers headscope's own metrics; whoever looks metrics up by name
imports the functions for it from here.
"""

from __future__ import annotations

from headscope.measuring.contract import Metric
from headscope.measuring.registry import (
    describe_variable,
    find_metrics,
    metric_from_dict,
    metric_to_dict,
    register_ours,
)
from headscope.metrics.bias import Bias
from headscope.metrics.coreference import CorefAccuracy, CorefBaseline
from headscope.metrics.dependencies import (
    DepAlignment,
    DepBaseline,
    DepBaselineByParent,
    DepByDistance,
    DepSpan,
    DepTypeTo,
)
from headscope.metrics.dependency_accuracy import DepAccuracy, DepOffset
from headscope.metrics.distance import Distance
from headscope.metrics.divergence import JensenShannon
from headscope.metrics.entropy import Entropy, FirstEntropy, RowEntropy, UniformEntropy
from headscope.metrics.exemplars import Exemplars
from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.metrics.head_samples import HeadSamples
from headscope.metrics.length import TokensPerDocument
from headscope.metrics.null_share import NullShare
from headscope.metrics.repeats import DuplicateToken, Induction
from headscope.metrics.surface import ClassShare, OffsetShare, SepFromOther, SepFromSep, SinkRate
from headscope.metrics.tags import PosFrom, PosTo
from headscope.metrics.variability import Variability

__all__ = [
    "METRICS",
    "VIG_BELINKOV",
    "describe_variable",
    "find_metrics",
    "metric_from_dict",
    "metric_to_dict",
]

METRICS: dict[str, type[Metric]] = register_ours(
    TokensPerDocument,
    NullShare,
    PosTo,
    PosFrom,
    DepAlignment,
    DepBaseline,
    DepBaselineByParent,
    DepTypeTo,
    DepByDistance,
    DepSpan,
    Variability,
    Distance,
    Entropy,
    Exemplars,
    HeadSamples,
    OffsetShare,
    ClassShare,
    SepFromSep,
    SepFromOther,
    RowEntropy,
    FirstEntropy,
    UniformEntropy,
    SinkRate,
    DuplicateToken,
    Induction,
    JensenShannon,
    Importance,
    RemovalEstimate,
    Loss,
    DepAccuracy,
    DepOffset,
    CorefAccuracy,
    CorefBaseline,
    Bias,
)
"""In the order in which results list them."""

VIG_BELINKOV = tuple(
    name for name, metric in METRICS.items() if metric.paper.startswith("Vig & Belinkov")
)
"""The metrics of Vig & Belinkov 2019."""
