"""Metrics by name."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.arguments import expect
from headscope.errors import InputError, UnknownName
from headscope.measuring.contract import Metric
from headscope.measuring.own import KNOWN, describe, options_of, register_metric
from headscope.metrics.bias import Bias
from headscope.metrics.coreference import CorefAccuracy, CorefBaseline
from headscope.metrics.dependencies import DepAlignment, DepTypeTo
from headscope.metrics.dependency_accuracy import DepAccuracy, DepOffset
from headscope.metrics.distance import Distance
from headscope.metrics.divergence import JensenShannon
from headscope.metrics.entropy import Entropy
from headscope.metrics.exemplars import Exemplars
from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.metrics.induction import DuplicateToken, Induction
from headscope.metrics.key_class import ClassShare, SepFromOther, SepFromSep
from headscope.metrics.null_share import NullShare
from headscope.metrics.offsets import OffsetShare
from headscope.metrics.row_entropy import FirstEntropy, RowEntropy, UniformEntropy
from headscope.metrics.sinks import SinkRate
from headscope.metrics.tags import PosFrom, PosTo
from headscope.metrics.text_facts import (
    DepBaseline,
    DepBaselineByParent,
    DepByDistance,
    DepSpan,
    TokensPerDocument,
)
from headscope.metrics.variability import Variability

__all__ = ["METRICS", "VIG_BELINKOV", "find_metrics", "metric_from_dict", "metric_to_dict"]

METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
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
}
"""In the order in which results list them."""

VIG_BELINKOV = tuple(
    name for name, metric in METRICS.items() if metric.paper.startswith("Vig & Belinkov")
)
"""The metrics of Vig & Belinkov 2019."""

OWN = "own_class"
"""Under which a metric's description says that it is not headscope's."""


def find_metrics(
    wanted: str | Metric | Iterable[str | Metric], available: frozenset[str]
) -> tuple[Metric, ...]:
    """Metrics from their names, or from metrics with options of one's own.

    Args:
        wanted: "all", a name, a metric, or several (`["all", "js"]`). `tokens_per_document`
            always comes along: it counts the documents.
        available: the annotations there are (`tags`, `parents`, `relations`, `mentions`).
            "all" leaves out metrics that need others; asking for one by name is an error. It
            also leaves out what costs more than a pass (`is_default`).
    """
    expect("metrics", wanted, str | Metric | Iterable, '"all", names, or metrics')
    given = [wanted] if isinstance(wanted, str | Metric) else list(wanted)
    chosen: dict[str, Metric] = {TokensPerDocument.name: TokensPerDocument()}
    for item in given:
        if item == "all":
            usual = [make() for make in METRICS.values() if make.is_default]
            chosen = {m.name: m for m in usual if m.needs <= available} | chosen
            continue
        if isinstance(item, Metric):
            register_metric(type(item))
            options_of(item)
            metric = item
        elif isinstance(item, str) and (item in METRICS or item in KNOWN):
            metric = (METRICS.get(item) or KNOWN[item])()
        else:
            raise UnknownName.of("metric", item, ["all", *METRICS, *KNOWN])
        if not metric.needs <= available:
            missing = " and ".join(sorted(metric.needs - available))
            add = ', or add annotations first: headscope.annotate(corpus, "en_core_web_sm")'
            raise InputError(
                f"{metric.name} needs {missing}, which no document has. Read annotated text "
                f"(CoNLL-U){'' if 'mentions' in missing else add}."
            )
        chosen[metric.name] = metric
    if len(chosen) == 1 and not given:
        raise InputError(f"There is no metric to measure. Known: all, {', '.join(METRICS)}.")
    return tuple(chosen.values())


def metric_to_dict(metric: Metric) -> dict[str, object]:
    """A metric as plain values: its name and options; of whose class, if not headscope's."""
    found: dict[str, object] = {"name": metric.name, **options_of(metric)}
    return found if metric.name in METRICS else {**found, OWN: describe(type(metric))}


def metric_from_dict(values: dict[str, object]) -> Metric:
    """The metric that `metric_to_dict` described.

    Raises:
        InputError: it is of a class that is not registered here.
    """
    options = dict(values)
    name, own = options.pop("name"), options.pop(OWN, None)
    make = METRICS.get(str(name)) or KNOWN.get(str(name))
    if make is None and own is not None:
        raise InputError(
            f"{name!r} is not one of headscope's metrics. Its values can be read; for anything "
            "more, define its class and call headscope.register_metric(its class) first."
        )
    if make is None:
        raise UnknownName.of("metric", name, METRICS)
    codes = {own["code"], describe(make)["code"]} if isinstance(own, dict) else set()
    if len(codes - {None}) > 1:
        raise InputError(
            f"{name!r} was measured with other code than the class registered here. Register "
            "the class it was measured with."
        )
    return make(**options)
