"""From states to values: finalize every metric, add intervals and correlations."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from headscope.batch import Axes
from headscope.measuring.contract import LayersMetric, Metric, State
from headscope.measuring.registry import COUNTS_DOCUMENTS
from headscope.statistics.bootstrap import BOUNDS, draw_weights, interval
from headscope.statistics.correlation import correlation, pearson

Draws = dict[str, np.ndarray]
"""By variable, with a first axis `draw`."""
Labels = Mapping[str, Sequence[str] | Sequence[int]]

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
    blocks = {}
    for block, measured in states.items():
        # Without draws, one of everything tells which variables have means over heads.
        once = n_draws == 0
        draws = block_draws(measured, metrics, axes, n_draws=n_draws, seed=seed, once=once)
        blocks[block] = _dataset(measured, metrics, axes, layers[block], draws)
    return blocks


def block_draws(
    measured: Mapping[str, State],
    metrics: Sequence[Metric],
    axes: Axes,
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
    once: bool = False,
) -> Draws:
    """Bootstrap values of every variable that has them, all from the same draws.

    Args:
        measured: the states by metric.
        metrics: whose states they are.
        axes: their labels.
        n_draws: how many.
        seed: which.
        once: take every part once instead, which draws nothing.
    """
    counts = measured.get(COUNTS_DOCUMENTS)
    occupied = np.zeros(axes.n_parts) if counts is None else counts["count"]
    weights = np.ones((1, axes.n_parts)) if once else draw_weights(occupied, n_draws, seed)
    draws: Draws = {}
    for metric in metrics:
        if len(weights) and metric.name in measured:
            draws.update(metric.draws(measured[metric.name], axes, weights))
    return draws


def _dataset(
    measured: Mapping[str, State],
    metrics: Sequence[Metric],
    axes: Axes,
    layers: Sequence[int],
    draws: Draws,
) -> xr.Dataset:
    arrays: dict[str, xr.DataArray] = {}
    coords: dict[str, list[str | int] | np.ndarray] = {}
    for metric in metrics:
        if metric.name not in measured:
            continue
        labels = metric.coordinates(axes)
        for dim, names in labels.items():
            # One metric may have labels on an axis that another has not ("all" relations): the
            # other's values are NaN there.
            coords[dim] = list(dict.fromkeys((*coords.get(dim, ()), *names)))
        arrays.update(_values(metric, measured[metric.name], axes, labels, draws))
    arrays.update(_correlations(arrays, draws))
    if any("layer" in array.dims for array in arrays.values()):
        coords["layer"] = np.asarray(layers, dtype=np.int64)
        n_heads = [array.sizes["head"] for array in arrays.values() if "head" in array.dims]
        coords["head"] = np.arange(n_heads[-1] if n_heads else 0)
    if any("bound" in array.dims for array in arrays.values()):
        coords["bound"] = list(BOUNDS)
    return xr.Dataset(arrays, coords=coords)


def _values(
    metric: Metric, state: State, axes: Axes, labels: Labels, draws: Draws
) -> dict[str, xr.DataArray]:
    """The variables that a metric describes, with their intervals and their means over heads."""
    variables = {variable.name: variable for variable in metric.variables()}
    arrays: dict[str, xr.DataArray] = {}
    for name, values in metric.finalize(state, axes).items():
        dims = variables[name].dims
        attributes = variables[name].attributes()
        if name in draws:
            attributes["weighting"] = metric.averaged
        arrays[name] = xr.DataArray(values, _coordinates(dims, labels), dims, attrs=attributes)
        if name not in draws:
            continue
        has_interval = len(draws[name]) > 1
        if has_interval:
            arrays[f"{name}_interval"] = _interval(name, draws[name], dims, metric, labels)
        if dims[:2] == ("layer", "head"):
            mean = f"{name}_mean"
            arrays[mean] = arrays[name].mean(("layer", "head"))
            arrays[mean].attrs = {"units": metric.units, "long_name": f"mean over heads of {name}"}
            if has_interval:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # heads never measured
                    drawn = np.nanmean(draws[name], axis=(1, 2))
                arrays[f"{mean}_interval"] = _interval(mean, drawn, dims[2:], metric, labels)
    return arrays


def _coordinates(dims: tuple[str, ...], labels: Labels) -> dict[str, list[str | int]]:
    return {dim: list(labels[dim]) for dim in dims if dim in labels}


def _interval(
    name: str, draws: np.ndarray, dims: tuple[str, ...], metric: Metric, labels: Labels
) -> xr.DataArray:
    return xr.DataArray(
        interval(draws),
        _coordinates(dims, labels),
        ("bound", *dims),
        attrs={
            "units": metric.units,
            "long_name": f"95 % bootstrap interval over documents of {name}",
            "draws": len(draws),
        },
    )


def _correlations(arrays: Mapping[str, xr.DataArray], draws: Draws) -> dict[str, xr.DataArray]:
    """Pearson's r over heads, with p and an interval.

    Vig & Belinkov 2019, section 5.3.3. The p value is that of the usual t test, as if heads
    were independent; the interval is over documents.
    """
    pairs = {name: both for name, both in PAIRS.items() if set(both) <= set(arrays)}
    if not pairs:
        return {}
    r_and_p = np.array(
        [pearson(*(_by_head(arrays[v].values, v) for v in p)) for p in pairs.values()]
    )
    attrs = {"units": "Pearson's r over heads", "paper": "Vig & Belinkov 2019, section 5.3.3"}
    correlations = {
        "correlation": xr.DataArray(
            r_and_p[:, 0], {"correlated": list(pairs)}, ("correlated",), attrs=attrs
        ),
        "correlation_p": xr.DataArray(
            r_and_p[:, 1], dims=("correlated",), attrs={**attrs, "units": "p value (t test)"}
        ),
    }
    if all(len(draws.get(name, ())) > 1 for both in pairs.values() for name in both):
        drawn = [
            correlation(*(_by_head(draws[name], name, 1) for name in both))
            for both in pairs.values()
        ]
        correlations["correlation_interval"] = xr.DataArray(
            interval(np.array(drawn).T), dims=("bound", "correlated"), attrs=attrs
        )
    return correlations


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
            metric = by_name[name]
            is_by_layer = metric.scope == "layer" and not isinstance(metric, LayersMetric)
            lead = ("layer",) if is_by_layer else ()
            arrays = {
                array: ((*lead, *metric.state_dims(array)), values)
                for array, values in state.items()
            }
            labeled.setdefault(block, {})[name] = xr.Dataset(arrays)
    return labeled


def state_of(data: xr.Dataset) -> State:
    """The plain state that `label_states` labeled."""
    return {str(name): np.asarray(array.values) for name, array in data.data_vars.items()}
