"""Results whose numbers are chosen, to see what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from headscope.batch import Axes
from headscope.figures.chart_data import ModelResults
from headscope.metrics import METRICS, describe_variable, metric_to_dict
from headscope.metrics.core.accumulator import States
from headscope.metrics.core.finalize import finalize_all, label_states
from headscope.results.result import Result
from headscope.run.merge import with_groups
from headscope.statistics.intervals import t_critical
from headscope.statistics.jackknife import Jackknife

LAYERS, HEADS = 6, 4
UNITS = {
    "null_share": "share of attention",
    "dep_alignment": "share of attention",
    "distance": "tokens",
    "entropy": "nats",
    "offset_share": "share of attention",
    "variability": "share of attention",
    "sink_rate": "share of documents",
    "row_entropy": "nats",
    "pos_to": "share of attention",
    "induction": "share of attention",
}
DIMS: dict[str, dict[str, list[Any]]] = {
    "dep_alignment": {"parent": ["query", "key", "either"]},
    "offset_share": {"offset": [-1, 0, 1]},
    "pos_to": {"tag": ["NOUN", "VERB"]},
}


def variable(
    name: str, values: np.ndarray, spread: float = 0.01
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """`layer head …` with its mean and its values by layer, each with an interval."""
    own = tuple(DIMS.get(name, {}))
    arrays = {
        name: (("layer", "head", *own), values),
        f"{name}_mean": (own, values.mean((0, 1))),
        f"{name}_by_layer": (("layer", *own), values.mean(1)),
    }
    bounds = {
        f"{key}_interval": (("bound", *dims), np.stack((array - spread, array + spread)))
        for key, (dims, array) in arrays.items()
    }
    return {**arrays, **bounds}


def result(
    values: Mapping[str, Any],
    *,
    spread: float = 0.01,
    model: str = "toy",
    corpus: str = "toy.conllu",
    is_causal: bool = False,
    layers: int = LAYERS,
    extra: Mapping[str, Any] | None = None,
    **provenance: Any,
) -> Result:
    """A result with these values: a number for all heads, or an array over layer and head."""
    arrays: dict[str, Any] = {
        "tokens_per_document": ((), 28.75),
        "tokens_per_document_count": ((), 12.0),
        "tokens_per_document_interval": ("bound", [28.75 - 10 * spread, 28.75 + 10 * spread]),
    }
    coords: dict[str, Any] = {
        "layer": np.arange(layers),
        "head": np.arange(HEADS),
        "bound": ["low", "high"],
    }
    for name, given in values.items():
        own = DIMS.get(name, {})
        shape = (layers, HEADS, *(len(labels) for labels in own.values()))
        full = np.broadcast_to(np.asarray(given, dtype=float), shape).copy()
        arrays.update(variable(name, full, spread))
        coords.update(own)
    arrays.update(extra or {})
    data = xr.Dataset(arrays, coords)
    for name in values:
        plain = {"title": name.replace("_", " ").capitalize()}
        data[name].attrs.update(describe_variable(name) or plain)
        data[name].attrs.update(units=UNITS.get(name, ""), paper="A paper", long_name="A meaning.")
    about = {
        "model": {"name": model, "is_causal": is_causal, "weights_sha256": "0" * 64},
        "corpus": {"name": f"/somewhere/{corpus}", "hash": corpus, "documents": 12},
        "counts": {"documents": 12, "tokens": 345, "truncated": 1, "failed": 0},
        "versions": {"headscope": "0"},
        **provenance,
    }
    return Result({"self": data}, {}, about)


PARTS = 20


class MadeUp(ModelResults):
    """A subject whose numbers are as uncertain as their intervals say: no sums lie behind them."""

    def jackknife(self, name: str, **labels: str | int) -> Jackknife | None:
        data = self.data(name)
        if data is None or (f"{name}_interval" not in data and name not in EXACT):
            return None
        value = data[name].sel(labels).values
        spread = 0.0 * value
        if name not in EXACT:
            low, high = data[f"{name}_interval"].sel(labels).values
            spread = (high - low) / 2
        errors = np.random.default_rng(len(name)).normal(size=(PARTS, *value.shape))
        errors -= errors.mean(0)
        errors /= np.sqrt((errors**2).sum(0))
        # SE² = (G − 1)/G · Σ u²
        jackknife = errors * spread / t_critical(PARTS - 1) * np.sqrt(PARTS / (PARTS - 1))
        yes = np.ones((PARTS, *value.shape), dtype=bool)
        return Jackknife(value, jackknife, yes / PARTS, yes, yes)


EXACT = ("dep_baseline", "uniform_entropy")
"""Numbers that are known without error."""


def subject(values: Mapping[str, Any], **options: Any) -> ModelResults:
    """A subject of one such result."""
    made = result(values, **options)
    return MadeUp(made.model, (made,))


def by_layer(*values: float) -> np.ndarray:
    """`layer head`: the same for all heads of a layer."""
    return np.repeat(np.asarray(values, dtype=float)[:, None], HEADS, 1)


def grouped(distances: Mapping[str, float], *, seed: int = 0, parts: int = 8) -> Result:
    """A result with sums behind it: distances of documents of each group, near what is given."""
    generator = np.random.default_rng(seed)
    axes = Axes(groups=tuple(sorted(distances)), buckets_per_group=parts)
    shape = (2, axes.n_buckets, HEADS)
    denominator = generator.uniform(50, 150, shape)
    centers = np.repeat([distances[name] for name in axes.groups], parts)[:, None]
    states: States = {
        "self": {
            "distance": {
                "numerator": denominator * generator.normal(centers, 0.3, shape),
                "denominator": denominator,
                "count": denominator,
            },
            "tokens_per_document": {
                name: np.ones(axes.n_buckets) for name in ("numerator", "denominator", "count")
            },
        }
    }
    metrics = [METRICS["tokens_per_document"](), METRICS["distance"]()]
    about = dict(result({}).provenance)
    about["metrics"] = [metric_to_dict(metric) for metric in metrics]
    about["axes"] = axes.to_dict()
    blocks = finalize_all(states, metrics, axes, {"self": [0, 1]})
    return with_groups(Result(blocks, label_states(states, metrics), about))
