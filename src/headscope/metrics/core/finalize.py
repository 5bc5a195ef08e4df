"""Values, intervals and correlations from the states of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from headscope.batch import Axes
from headscope.metrics.core.contract import LayersMetric, Metric, State, attribute_errors
from headscope.results.display import METHOD
from headscope.statistics.correlation import correlation_interval, pearson, within_layers
from headscope.statistics.differences import typical
from headscope.statistics.intervals import BOUNDS, Interval, interval
from headscope.statistics.jackknife import Jackknife, is_dominated, largest_share

Labels = Mapping[str, Sequence[str] | Sequence[int]]

HEADS = ("layer", "head")
DOMINATED = "largest_share"
"""Attribute with the share of one bucket, if it dominates a sum."""
PAIRS = {
    "distance-entropy": ("distance", "entropy"),
    "distance-dep_alignment": ("distance", "dep_alignment"),
}


def finalize_all(
    states: Mapping[str, Mapping[str, State]],
    metrics: Sequence[Metric],
    axes: Axes,
    layers: Mapping[str, Sequence[int]],
    *,
    has_intervals: bool = True,
    over: str = "attention",
) -> dict[str, xr.Dataset]:
    """Return the values of each block, from states by block and metric; ratios may have intervals.
    `over` is the quantity that was summed: anything but attention is noted in the attributes.
    """
    blocks = {
        block: _dataset(measured, metrics, axes, layers[block], has_intervals)
        for block, measured in states.items()
    }
    if over != "attention":
        text_variables = {v.name for m in metrics if m.scope == "text" for v in m.variables()}
        for data in blocks.values():
            for name, array in data.data_vars.items():
                if str(name).removesuffix("_interval").removesuffix("_n_eff") not in text_variables:
                    array.attrs["over"] = over
    return blocks


def block_jackknives(
    measured: Mapping[str, State],
    metrics: Sequence[Metric],
    axes: Axes,
    units: np.ndarray | None = None,
) -> dict[str, Jackknife]:
    """Return the jackknives of all variables that have one. Buckets are pooled by `units`
    (`bucket`); by default, those of one number in all groups.
    """
    pooled_units = np.unique(axes.units, return_inverse=True)[1] if units is None else units
    jackknives: dict[str, Jackknife] = {}
    for metric in metrics:
        if metric.name in measured:
            with attribute_errors(metric):
                jackknives.update(metric.jackknives(measured[metric.name], axes, pooled_units))
    return jackknives


def _dataset(
    measured: Mapping[str, State],
    metrics: Sequence[Metric],
    axes: Axes,
    layers: Sequence[int],
    has_intervals: bool,
) -> xr.Dataset:
    jackknives = block_jackknives(measured, metrics, axes)
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
        variables = {variable.name: variable for variable in metric.variables()}
        intervals: dict[str, xr.DataArray] = {}
        for name, values in metric.finalize(measured[metric.name], axes).items():
            dims, attributes = variables[name].dims, variables[name].attributes()
            coordinates = {dim: list(labels[dim]) for dim in dims if dim in labels}
            array = xr.DataArray(values, coordinates, dims, attrs=attributes)
            arrays[name] = array
            if name not in jackknives:
                continue
            array.attrs["weighting"] = metric.averaged
            estimates = {name: jackknives[name]}
            if dims[:2] == HEADS:
                mean = f"{name}_mean"
                arrays[mean] = array.mean(HEADS)
                long_name = f"mean over heads of {name}"
                arrays[mean].attrs = {"units": metric.units, "long_name": long_name}
                estimates[mean] = jackknives[name].mean((0, 1))
                if has_intervals:
                    middle = typical(jackknives[name])
                    long_name = f"median over buckets of documents, each counted once, of {name}"
                    about = {"units": metric.units, "long_name": long_name}
                    intervals[f"{name}_typical"] = array.copy(data=middle)
                    intervals[f"{name}_typical"].attrs = about
            for estimated, estimate in estimates.items() if has_intervals else ():
                bounds = interval(estimate)
                intervals |= labeled_interval(estimated, arrays[estimated], bounds, metric.units)
            if has_intervals and name == metric.name and is_dominated(jackknives[name]):
                intervals[f"{name}_n_eff"].attrs[DOMINATED] = largest_share(jackknives[name])[0]
        arrays |= intervals
    arrays.update(_correlations(arrays, jackknives, has_intervals))
    if any("layer" in array.dims for array in arrays.values()):
        coords["layer"] = np.asarray(layers, dtype=np.int64)
        n_heads = [array.sizes["head"] for array in arrays.values() if "head" in array.dims]
        coords["head"] = np.arange(n_heads[-1] if n_heads else 0)
    if any("bound" in array.dims for array in arrays.values()):
        coords["bound"] = list(BOUNDS)
    return xr.Dataset(arrays, coords=coords)


def labeled_interval(
    name: str, array: xr.DataArray, estimate: Interval, units: str
) -> dict[str, xr.DataArray]:
    """Return the bounds of a variable and its effective number of documents, with its axes."""
    coords = {dim: array[dim] for dim in array.dims if dim in array.coords}
    attributes = {"units": units, "long_name": f"95 % interval over documents of {name}"}
    count_attributes = {
        "units": "documents",
        "long_name": f"effective number of documents behind the interval of {name}; NaN: too few",
    }
    return {
        f"{name}_interval": xr.DataArray(
            estimate.bounds, coords, ("bound", *array.dims), attrs={**attributes, "method": METHOD}
        ),
        f"{name}_n_eff": xr.DataArray(
            estimate.documents, coords, array.dims, attrs=count_attributes
        ),
    }


def _correlations(
    arrays: Mapping[str, xr.DataArray], jackknives: Mapping[str, Jackknife], has_intervals: bool
) -> dict[str, xr.DataArray]:
    """Return Pearson's r over heads (Vig & Belinkov 2019, section 5.3.3), with an interval over
    documents.

    `correlation_p` is the paper's p value, which assumes independent heads. `correlation_within` is
    r after removing layer means, with a permutation p: it shows whether both only change with
    depth.
    """
    pairs = {name: both for name, both in PAIRS.items() if set(both) <= set(arrays)}
    if not pairs:
        return {}
    form = slice(None), slice(None), -1  # of alignment, the form `either`
    by_head = [
        [arrays[v].values[form] if arrays[v].ndim > 2 else arrays[v].values for v in both]
        for both in pairs.values()
    ]
    over_heads = np.array([pearson(left.ravel(), right.ravel()) for left, right in by_head])
    within = np.array([within_layers(left, right) for left, right in by_head])
    dims = ("correlated",)
    attrs = {"units": "Pearson's r over heads", "paper": "Vig & Belinkov 2019, section 5.3.3"}
    p_attrs = {**attrs, "units": "p value (t test, as if heads were independent)"}
    within_attrs = {"units": "Pearson's r over heads, within layers"}
    within_p = {"units": "p value (heads shuffled within layers)"}
    correlations = {
        "correlation": xr.DataArray(over_heads[:, 0], {dims[0]: list(pairs)}, dims, attrs=attrs),
        "correlation_p": xr.DataArray(over_heads[:, 1], dims=dims, attrs=p_attrs),
        "correlation_within": xr.DataArray(within[:, 0], dims=dims, attrs=within_attrs),
        "correlation_within_p": xr.DataArray(within[:, 1], dims=dims, attrs=within_p),
    }
    if has_intervals:
        bounds = [
            correlation_interval(
                *(
                    (jackknives[v].at(*form) if arrays[v].ndim > 2 else jackknives[v]).flat()
                    for v in both
                )
            )
            for both in pairs.values()
        ]
        correlations["correlation_interval"] = xr.DataArray(
            np.array(bounds).T, dims=("bound", *dims), attrs={**attrs, "method": METHOD}
        )
    return correlations


def label_states(
    states: Mapping[str, Mapping[str, State]], metrics: Sequence[Metric]
) -> dict[str, dict[str, xr.Dataset]]:
    """Return states as datasets with named axes, for results to keep."""
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
    """Return the plain state that `label_states` labeled."""
    return {str(name): np.asarray(array.values) for name, array in data.data_vars.items()}
