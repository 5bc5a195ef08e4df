"""List of headscope's metrics, in the order of results."""

from __future__ import annotations

from headscope.metrics.core.contract import Metric
from headscope.metrics.coreference import Bias, CorefAccuracy, CorefBaseline
from headscope.metrics.dependencies import (
    DepAccuracy,
    DepAlignment,
    DepBaseline,
    DepBaselineByParent,
    DepByDistance,
    DepOffset,
    DepSpan,
    DepTypeTo,
)
from headscope.metrics.divergence import JensenShannon
from headscope.metrics.entropy import Entropy, FirstEntropy, RowEntropy, UniformEntropy
from headscope.metrics.exemplars import Exemplars, HeadSamples
from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.metrics.induction import DuplicateToken, Induction
from headscope.metrics.surface import (
    ClassShare,
    Distance,
    NullShare,
    OffsetShare,
    SepFromOther,
    SepFromSep,
    SinkRate,
    TokensPerDocument,
)
from headscope.metrics.tags import PosFrom, PosTo
from headscope.metrics.variability import Variability

OURS: tuple[type[Metric], ...] = (
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

METRICS = {metric.name: metric for metric in OURS}
"""Metrics by name, in the order of results."""

VIG_BELINKOV = tuple(
    name for name, metric in METRICS.items() if metric.paper.startswith("Vig & Belinkov")
)
"""Names of the metrics of Vig & Belinkov 2019."""
