"""Metrics by name: headscope's own, and registered ones.

Results store the class and a code hash of a user's metric, so that runs of different code do not
mix. Files never load code: values can be read at once, but merging needs the class to be
registered.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import numpy as np

from headscope.arguments import expect, whole_number
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.contract import (
    ALL_BLOCKS,
    Fact,
    LayersMetric,
    MergedMetric,
    Metric,
    Need,
    RatioMetric,
    SumMetric,
)
from headscope.metrics.core.layer_data import Reduction

COUNTS_DOCUMENTS = "tokens_per_document"
"""Metric that every run measures: its count is the number of documents."""
RESERVED = {"all", "provenance", "layer", "head", "bound", "bucket", "correlation"}
"""Names with another meaning in results."""
OWN = "own_class"
"""Key of the class in the description of a user's metric."""
KINDS = (RatioMetric, SumMetric, MergedMetric, LayersMetric)

_theirs: dict[str, type[Metric]] = {}
M = TypeVar("M", bound=type[Metric])


@functools.cache
def our_metrics() -> Mapping[str, type[Metric]]:
    """Return headscope's own metrics by name. They are imported at the first call."""
    from headscope.metrics.catalog import METRICS

    return METRICS


def register_metric(metric: M) -> M:
    """Register a metric by its name for `analyze(metrics="name")`, and for `merge`, `compare` and
    `group` of saved results.

    Measuring with a metric registers it too. Usable as a decorator, above
    `@dataclass(frozen=True)`. Required are `name`, `paper`, `units`, a frozen dataclass and the
    abstract methods.

    Raises:
        InputError: it is not a metric, is abstract or mutable, or its name is taken.
    """
    if not (isinstance(metric, type) and issubclass(metric, Metric)):
        raise InputError(f"A metric is a class derived from headscope.Metric, not {metric!r}.")
    if not issubclass(metric, KINDS):
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        raise InputError(f"{metric.__name__} should derive from one of {kinds}.")
    required = ("name", "paper", "units")
    missing = [name for name in required if not isinstance(getattr(metric, name, None), str)]
    missing += sorted(metric.__abstractmethods__)
    if missing:
        raise InputError(f"{metric.__name__} lacks {', '.join(missing)}: see headscope.Metric.")
    _check_frozen(metric)
    _check_description(metric)
    if our_metrics().get(metric.name, metric) is not metric:
        raise InputError(
            f"{metric.__name__} is named {metric.name!r}, as one of headscope's own metrics. "
            "Choose another name."
        )
    if metric.name not in our_metrics():
        _theirs[metric.name] = metric
    return metric


def _check_frozen(metric: type[Metric]) -> None:
    """Refuse a class with state: its values would depend on the worker and the order of batches."""
    cls = metric.__name__
    parameters = getattr(metric, "__dataclass_params__", None)
    problem = ""
    if parameters is None:
        problem = "is not a dataclass"
    elif not parameters.frozen:
        problem = "is a dataclass, but not a frozen one"
    elif "__dataclass_params__" not in vars(metric):
        annotations = vars(metric).get("__annotations__", {})
        fields = [name for name, kind in annotations.items() if "ClassVar" not in str(kind)]
        problem = f"adds the field {fields[0]!r} without the decorator" if fields else ""
    if problem:
        raise InputError(
            f"{cls} {problem}. Write @dataclass(frozen=True) directly above `class {cls}` "
            "(below @register_metric). Its fields are the metric's options."
        )
    declared = ("facts", "axis_labels", "arrays")
    for base in metric.__mro__:
        if not base.__module__.startswith("headscope."):
            members = {k: v for k, v in vars(base).items() if k not in declared and k[:2] != "__"}
            _refuse_mutable(cls, members)


def _refuse_mutable(cls: str, members: Mapping[str, object]) -> None:
    for name, value in members.items():
        if isinstance(value, list | dict | set | bytearray | np.ndarray):
            raise InputError(
                f"{cls}.{name} is a {type(value).__name__}, which can change. A metric has no "
                "state of its own: use a tuple, a frozenset or a constant of the module. Sums "
                "belong in the State that `zero` returns."
            )


def _check_description(metric: type[Metric]) -> None:
    """Refuse descriptions that would fail only when a result is shown."""
    cls = metric.__name__
    if not metric.name.isidentifier() or metric.name in RESERVED:
        raise InputError(
            f"{cls} is named {metric.name!r}; expected letters, digits and underscores, and none "
            f"of {', '.join(sorted(RESERVED))}."
        )
    try:
        f"{0.5:{metric.format}}"
    except (ValueError, TypeError):
        raise InputError(
            f"{cls}.format is {metric.format!r}. Expected a Python number format, such as "
            '".1%" or ".2f".'
        ) from None
    for name in ("title", "short_title", "equation", "counts"):
        if not isinstance(getattr(metric, name), str):
            raise InputError(f"{cls}.{name} should be text, not {getattr(metric, name)!r}.")
    if not isinstance(metric.order, int):
        raise InputError(f"{cls}.order should be a whole number, not {metric.order!r}.")
    UnknownName.check(f"scope of {cls}", metric.scope, ("layer", "text"))
    for name, known in (("blocks", ALL_BLOCKS), ("needs", frozenset(get_args(Need)))):
        if isinstance(inspect.getattr_static(metric, name), property):
            continue  # depends on options
        values: object = getattr(metric, name)
        if not isinstance(values, frozenset):
            raise InputError(f"{cls}.{name} should be a frozenset, not {values!r}.")
        for value in values - known:
            raise UnknownName.of(f"value in {cls}.{name}", value, known)
    if not isinstance(metric.facts, Mapping) or not all(map(callable, metric.facts.values())):
        raise InputError(f"{cls}.facts should be functions by name, not {metric.facts!r}.")


def _check_instance(metric: Metric) -> None:
    """Check the properties that may depend on options."""
    _refuse_mutable(type(metric).__name__, vars(metric))
    if metric.sample is not None:
        whole_number(f"{type(metric).__name__}.sample", metric.sample)
    reductions: tuple[object, ...] = metric.reductions
    for reduction in reductions:
        if not isinstance(reduction, Reduction):
            name = getattr(reduction, "__name__", repr(reduction))
            raise InputError(
                f"{metric.name} has {name} in `reductions`, which is not a Reduction. Use the "
                "decorator headscope.metrics.Reduction, or masses, log_sums, pair_sums …"
            )
    if metric.name in our_metrics():
        return
    reserved = {name for make in our_metrics().values() for name in _names_in_results(make())}
    for name in _names_in_results(metric):
        if name in reserved:
            raise InputError(
                f"{metric.name} has a variable {name!r}, which is a name of headscope's own. "
                "Choose another name."
            )


def _names_in_results(metric: Metric) -> Iterator[str]:
    """Yield the names of the metric's variables, and of those that a run adds."""
    for variable in metric.variables():
        for ending in ("", "_mean"):
            for beside in ("", "_interval", "_n_eff", "_typical"):
                yield f"{variable.name}{ending}{beside}"


def known_metrics() -> dict[str, type[Metric]]:
    """Return all registered metrics, headscope's own first."""
    return {**our_metrics(), **_theirs}


def is_ours(metric: Metric) -> bool:
    """Return whether the metric is one of headscope's own."""
    return our_metrics().get(metric.name) is type(metric)


def list_metrics(wanted: str | Metric | Iterable[str | Metric]) -> list[str | Metric]:
    """Return the requested metrics as a list, also from an iterator."""
    if isinstance(wanted, type):
        raise InputError(f"{wanted.__name__} is a class; pass a metric: {wanted.__name__}().")
    expect("metrics", wanted, str | Metric | Iterable, '"all", names, or metrics')
    return [wanted] if isinstance(wanted, str | Metric) else list(wanted)


def find_metrics(
    wanted: str | Metric | Iterable[str | Metric], available: frozenset[str]
) -> tuple[Metric, ...]:
    """Return metrics from names or instances; `tokens_per_document`, which counts, is always added.
    "all" leaves out metrics that need more than is `available`, and expensive ones (`is_default`);
    a named one raises InputError.
    """
    items = list_metrics(wanted)
    metrics: dict[str, Metric] = {COUNTS_DOCUMENTS: our_metrics()[COUNTS_DOCUMENTS]()}
    for item in items:
        if item == "all":
            usual = [make() for make in our_metrics().values() if make.is_default]
            metrics = {m.name: m for m in usual if m.needs <= available} | metrics
            continue
        metric = _find(item)
        missing = sorted(metric.needs - available)
        if {*missing} & {"gradients", "loss"}:
            raise InputError(
                f"{metric.name} needs a backward pass. Run headscope.importance instead of analyze "
                "or measure."
            )
        if missing:
            advice = ', or add annotations first: headscope.annotate(corpus, "en_core_web_sm")'
            raise InputError(
                f"{metric.name} needs {' and '.join(missing)}, which no document has. Read "
                f"annotated text (CoNLL-U){'' if 'mentions' in missing else advice}."
            )
        metrics[metric.name] = metric
    if len(metrics) == 1 and not items:
        raise InputError(f"metrics is empty. Known: all, {', '.join(our_metrics())}.")
    return tuple(metrics.values())


def _find(item: object) -> Metric:
    if isinstance(item, Metric):
        register_metric(type(item))
        _options(item)
        _check_instance(item)
        return item
    registered = known_metrics()
    if isinstance(item, str) and item in registered:
        return registered[item]()
    if isinstance(item, type) and issubclass(item, Metric):
        raise InputError(f"{item.__name__} is a class; pass a metric: {item.__name__}().")
    raise UnknownName.of("metric", item, ["all", *registered])


def facts_of(wanted: str | Metric | Iterable[str | Metric]) -> dict[str, Fact]:
    """Return the functions that count facts for the requested metrics, by name."""
    facts: dict[str, Fact] = {}
    for item in list_metrics(wanted):
        if item == "all":
            continue  # headscope's own metrics have no facts
        for name, count in _find(item).facts.items():
            if facts.setdefault(name, count) is not count:
                raise InputError(
                    f"Two metrics count different things as {name!r}. Rename one of them."
                )
    return facts


def describe_variable(name: str) -> Mapping[str, str | int]:
    """Return the attributes of a variable of a known metric; empty if unknown."""
    for make in known_metrics().values():
        for variable in make().variables():
            if variable.name == name:
                return variable.attributes()
    return {}


def metric_to_dict(metric: Metric) -> dict[str, object]:
    """Return a metric as plain values: its name, options, and class if a user wrote it."""
    values: dict[str, object] = {"name": metric.name, **_options(metric)}
    return values if metric.name in our_metrics() else {**values, OWN: _code(type(metric))}


def metric_from_dict(values: Mapping[str, object]) -> Metric:
    """Return the metric of `metric_to_dict`, also if JSON turned tuples into lists."""
    options = {name: _frozen(value) for name, value in values.items() if name not in ("name", OWN)}
    name, class_used = str(values["name"]), values.get(OWN)
    make = known_metrics().get(name)
    if make is None and class_used is not None:
        raise InputError(
            f"{name!r} is not one of headscope's metrics. Its values can be read; for anything "
            "more, define its class and call headscope.register_metric(its class) first."
        )
    if make is None:
        raise UnknownName.of("metric", name, our_metrics())
    code = class_used.get("code") if isinstance(class_used, Mapping) else None
    if code and _code(make)["code"] not in (code, None):
        raise InputError(
            f"{name!r} was measured with other code than the registered class. Register the class "
            "that measured it."
        )
    return make(**options)


def _options(metric: Metric) -> dict[str, object]:
    """Return the fields of the dataclass, as JSON reads them back."""
    names = [field.name for field in dataclasses.fields(metric)]  # type: ignore[arg-type]
    try:
        return json.loads(json.dumps({name: getattr(metric, name) for name in names}))
    except TypeError as error:
        raise InputError(
            f"The options of {metric.name} cannot be stored: {error}. Use numbers, texts or tuples "
            "of them."
        ) from error


def _frozen(value: object) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _code(metric: type[Metric]) -> dict[str, str | None]:
    """Return the name of the class, and a hash of its code if readable."""
    try:
        code = hashlib.sha256(inspect.getsource(metric).encode()).hexdigest()
    except (OSError, TypeError):  # defined at a prompt
        code = None
    return {"class": metric.__qualname__, "code": code}
