"""List of headscope's metrics, in the order of results."""

from __future__ import annotations

from headscope.metrics import (
    coreference,
    dependencies,
    divergence,
    entropy,
    exemplars,
    gradients,
    induction,
    long_range,
    surface,
    tags,
    variability,
)
from headscope.metrics.core.contract import Metric

_METRICS: tuple[type[Metric], ...] = (
    surface.TokensPerDocument,
    surface.NullShare,
    tags.PosTo,
    tags.PosFrom,
    dependencies.DepAlignment,
    dependencies.DepBaseline,
    dependencies.DepBaselineByParent,
    dependencies.DepTypeTo,
    dependencies.DepByDistance,
    dependencies.DepSpan,
    variability.Variability,
    surface.Distance,
    long_range.DistanceShare,
    long_range.Retrieval,
    entropy.Entropy,
    exemplars.Exemplars,
    exemplars.HeadSamples,
    surface.OffsetShare,
    surface.ClassShare,
    surface.SepFromSep,
    surface.SepFromOther,
    entropy.RowEntropy,
    entropy.FirstEntropy,
    entropy.UniformEntropy,
    surface.SinkRate,
    induction.DuplicateToken,
    induction.Induction,
    divergence.JensenShannon,
    gradients.Importance,
    gradients.RemovalEstimate,
    gradients.Loss,
    dependencies.DepAccuracy,
    dependencies.DepOffset,
    coreference.CorefAccuracy,
    coreference.CorefBaseline,
    coreference.Bias,
)

METRICS = {metric.name: metric for metric in _METRICS}
"""Metrics by name, in the order of results."""

VIG_BELINKOV = tuple(
    name
    for name, metric in METRICS.items()
    if metric.paper.startswith("Vig & Belinkov") and metric.is_default
)
"""Names of the metrics of Vig & Belinkov 2019."""
