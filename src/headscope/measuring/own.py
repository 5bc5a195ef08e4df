"""Metrics that users write: known by name once they are registered or measured.

A result says which class a metric was of, and a hash of its code, so that runs of
different code are not mixed. Files never name code to load: whoever opens a result with a
metric of somebody's own reads its values, and registers the class to add results up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from typing import TypeVar

from headscope.errors import InputError
from headscope.measuring.contract import Metric

__all__ = ["KNOWN", "describe", "options_of", "register_metric"]

KNOWN: dict[str, type[Metric]] = {}
"""Metrics that are not headscope's, by name."""

M = TypeVar("M", bound=type[Metric])


def register_metric(metric: M) -> M:
    """Make a metric of one's own known by its name: to `analyze(metrics="name")`, and to
    `merge`, `Result.compare` and `Result.group` for results that were saved earlier.

    Measuring with it registers it too. Usable as a decorator of the class.

    Raises:
        InputError: it is no metric, is abstract, or has the name of one of headscope's.
    """
    from headscope.metrics.catalog import METRICS

    if not (isinstance(metric, type) and issubclass(metric, Metric)):
        raise InputError(f"A metric is a class derived from headscope.Metric, not {metric!r}.")
    missing = [name for name in ("name", "paper", "units") if not hasattr(metric, name)]
    missing += sorted(metric.__abstractmethods__)
    if missing:
        raise InputError(f"{metric.__name__} lacks {', '.join(missing)}: see headscope.Metric.")
    if METRICS.get(metric.name, metric) is not metric:
        raise InputError(
            f"{metric.__name__} is named {metric.name!r}, as one of headscope's own metrics. "
            "Choose another name."
        )
    if metric.name not in METRICS:
        KNOWN[metric.name] = metric
    return metric


def options_of(metric: Metric) -> dict[str, object]:
    """A metric's options: the fields of its dataclass.

    Raises:
        InputError: they are not plain values, which plans and files could hold.
    """
    is_data = dataclasses.is_dataclass(type(metric))
    names = [f.name for f in dataclasses.fields(metric)] if is_data else vars(metric)  # type: ignore[arg-type]
    options = {name: getattr(metric, name) for name in names}
    try:
        json.dumps(options)
    except TypeError as error:
        raise InputError(
            f"The options of {metric.name} should be numbers, texts or lists of them, for plans "
            f"and files to hold: {error}."
        ) from error
    return options


def describe(metric: type[Metric]) -> dict[str, str | None]:
    """Which class it is, and a hash of its code where that can be read."""
    try:
        code = hashlib.sha256(inspect.getsource(metric).encode()).hexdigest()
    except (OSError, TypeError):  # typed at a prompt
        code = None
    return {"class": metric.__qualname__, "code": code}
