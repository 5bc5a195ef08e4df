"""From states to values: finalize every metric, add intervals and correlations."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from headscope.batch import Axes
from headscope.measuring.contract import Metric, State
from headscope.metrics.text_facts import TokensPerDocument
from headscope.statistics.bootstrap import BOUNDS, draw_weights, interval
from headscope.statistics.correlation import correlation, pearson

__all__ = ["Draws", "States", "assemble", "block_draws", "label_states", "state_of"]

States = dict[str, dict[str, State]]
"""By block and metric."""
Draws = dict[str, np.ndarray]
"""By variable, with a first axis `draw`."""

PAIRS = {
    "distance-entropy": ("distance", "entropy"),
    "distance-dep_alignment": ("distance", "dep_alignment"),
}
N_DRAWS = 200


def assemble(
    states: Mapping[str, Mapping[str, State]],
    metrics: Sequence[Metric],
    axes: Axes,
    layers: Mapping[str, Sequence[int]],
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> dict[str, xr.Dataset]:
    """The values of each block, with an interval beside every ratio."""
    found = {}
    for block, measured in states.items():
        draws = block_draws(measured, metrics, axes, n_draws=n_draws, seed=seed)
        found[block] = _dataset(measured, metrics, axes, layers[block], draws)
    return found


def block_draws(
    measured: Mapping[str, State],
    metrics: Sequence[Metric],
    axes: Axes,
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Draws:
    """Bootstrap values of every variable that has them, all from the same draws."""
    counts = measured.get(TokensPerDocument.name)
    occupied = np.zeros(axes.n_parts) if counts is None else counts["count"]
    weights = draw_weights(occupied, n_draws, seed)
    draws: Draws = {}
    for metric in metrics:
        if n_draws and metric.name in measured:
            draws.update(metric.draws(measured[metric.name], axes, weights))
    return draws


def _dataset(
    measured: Mapping[str, State],
    metrics: Sequence[Metric],
    axes: Axes,
    layers: Sequence[int],
    draws: Draws,
) -> xr.Dataset:
    variables: dict[str, xr.DataArray] = {}
    coords: dict[str, Any] = {}
    n_heads = 0
    for metric in metrics:
        if metric.name not in measured:
            continue
        own = {dim: list(labels) for dim, labels in metric.coordinates(axes).items()}
        for dim, labels in own.items():
            # Metrics may label an axis alike but for some ("all" relations): the others are NaN.
            coords[dim] = list(dict.fromkeys((*coords.get(dim, ()), *labels)))
        for name, values in metric.finalize(measured[metric.name], axes).items():
            dims = metric.variable_dims(name)
            attrs = {"units": metric.units, "paper": metric.paper, "long_name": metric.meaning}
            if name.endswith("_count"):
                what = metric.counts
                attrs = {"units": what, "long_name": f"how many {what} {metric.name} is of"}
            elif name in draws:
                attrs["weighting"] = metric.averaged
            variables[name] = xr.DataArray(values, _of(dims, own), dims, attrs=attrs)
            if "head" in dims:
                n_heads = variables[name].sizes["head"]
            if name not in draws:
                continue
            variables[f"{name}_interval"] = _interval(name, draws[name], dims, metric, own)
            if dims[:2] == ("layer", "head"):
                mean = f"{name}_mean"
                variables[mean] = (
                    variables[name]
                    .mean(("layer", "head"))
                    .assign_attrs(units=metric.units, long_name=f"mean over heads of {name}")
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # heads never measured
                    drawn = np.nanmean(draws[name], axis=(1, 2))
                variables[f"{mean}_interval"] = _interval(mean, drawn, dims[2:], metric, own)
    variables.update(_correlations(variables, draws))
    if any("layer" in array.dims for array in variables.values()):
        coords["layer"] = np.asarray(layers, dtype=np.int64)
        coords["head"] = np.arange(n_heads)
    if any("bound" in array.dims for array in variables.values()):
        coords["bound"] = list(BOUNDS)
    return xr.Dataset(variables, coords=coords)


def _of(dims: tuple[str, ...], labels: Mapping[str, Any]) -> dict[str, Any]:
    return {dim: labels[dim] for dim in dims if dim in labels}


def _interval(
    name: str,
    draws: np.ndarray,
    dims: tuple[str, ...],
    metric: Metric,
    labels: Mapping[str, Any],
) -> xr.DataArray:
    return xr.DataArray(
        interval(draws),
        _of(dims, labels),
        ("bound", *dims),
        attrs={
            "units": metric.units,
            "long_name": f"95 % bootstrap interval over documents of {name}",
            "draws": len(draws),
        },
    )


def _correlations(variables: Mapping[str, xr.DataArray], draws: Draws) -> dict[str, xr.DataArray]:
    """Pearson's r over heads, with p and an interval.

    Vig & Belinkov 2019, section 5.3.3. The p value is that of the usual t test, as if heads
    were independent; the interval is over documents.
    """
    pairs = {name: both for name, both in PAIRS.items() if set(both) <= set(variables)}
    if not pairs:
        return {}
    found = np.array(
        [pearson(*(_by_head(variables[v].values, v) for v in p)) for p in pairs.values()]
    )
    attrs = {"units": "Pearson's r over heads", "paper": "Vig & Belinkov 2019, section 5.3.3"}
    arrays = {
        "correlation": xr.DataArray(
            found[:, 0], {"correlated": list(pairs)}, ("correlated",), attrs=attrs
        ),
        "correlation_p": xr.DataArray(
            found[:, 1], dims=("correlated",), attrs={**attrs, "units": "p value (t test)"}
        ),
    }
    if all(name in draws for both in pairs.values() for name in both):
        drawn = [
            correlation(*(_by_head(draws[name], name, 1) for name in both))
            for both in pairs.values()
        ]
        arrays["correlation_interval"] = xr.DataArray(
            interval(np.array(drawn).T), dims=("bound", "correlated"), attrs=attrs
        )
    return arrays


def _by_head(values: np.ndarray, name: str, n_lead: int = 0) -> np.ndarray:
    """Flattened over layer and head; alignment in its form `either`."""
    values = values[..., -1] if name == "dep_alignment" else values
    return values.reshape(*values.shape[:n_lead], -1)


def label_states(
    states: Mapping[str, Mapping[str, State]], metrics: Sequence[Metric]
) -> dict[str, dict[str, xr.Dataset]]:
    """States as datasets with named axes, for results to keep."""
    by_name = {metric.name: metric for metric in metrics}
    labeled: dict[str, dict[str, xr.Dataset]] = {}
    for block, measured in states.items():
        for name, state in measured.items():
            lead = ("layer",) if by_name[name].scope == "layer" else ()
            arrays = {
                array: ((*lead, *by_name[name].state_dims(array)), values)
                for array, values in state.items()
            }
            labeled.setdefault(block, {})[name] = xr.Dataset(arrays)
    return labeled


def state_of(data: xr.Dataset) -> State:
    """The plain state that `label_states` labeled."""
    return {str(name): np.asarray(array.values) for name, array in data.data_vars.items()}
