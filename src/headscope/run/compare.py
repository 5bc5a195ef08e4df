"""The differences of two results."""

from __future__ import annotations

import xarray as xr

from headscope.arguments import whole_number
from headscope.errors import InputError
from headscope.measuring.assemble import block_draws, state_of
from headscope.results.result import Result
from headscope.run.merge import axes_of, check_results, metrics_of
from headscope.statistics.bootstrap import BOUNDS, interval


def compare(left: Result, right: Result, *, n_draws: int = 200) -> xr.Dataset:
    """Differences of two results, left minus right, with intervals.

    Two models over one corpus, or two genres under one model (`result.group`). Variables
    are compared head by head where both models have the same layers and heads; their means
    over heads (`…_mean`) always. An interval that leaves out 0 is a difference that another
    draw of documents would show again. Both sides are drawn independently. Variability is
    left out where the sides kept different numbers of documents: fewer make it smaller.
    """
    check_results(other=right)
    whole_number("n_draws", n_draws)
    differences: dict[str, xr.DataArray] = {}
    sides = [_side(result, seed, n_draws) for seed, result in enumerate((left, right))]
    (ours, our_draws), (theirs, their_draws) = sides
    alone = _not_comparable(left, right)
    for name in our_draws:
        if name not in their_draws or name in alone:
            continue
        a, b = xr.align(ours[name], theirs[name], join="inner")
        if ours[name].sizes == theirs[name].sizes and a.sizes == ours[name].sizes:
            drawn = our_draws[name] - their_draws[name]
            differences.update(_difference(name, a - b, drawn))
        heads = [dim for dim in ("layer", "head") if dim in ours[name].dims]
        if heads:
            means = our_draws[name].mean(heads) - their_draws[name].mean(heads)
            difference = ours[name].mean(heads) - theirs[name].mean(heads)
            differences.update(_difference(f"{name}_mean", difference, means))
    if not differences:
        raise InputError("The two results have no variable in common.")
    return xr.Dataset(differences, attrs={"left": left.title, "right": right.title})


def _side(
    result: Result, seed: int, n_draws: int
) -> tuple[dict[str, xr.DataArray], dict[str, xr.DataArray]]:
    """The main values and their draws, labeled."""
    block = next(iter(result.blocks))
    data = result.blocks[block]
    metrics, axes = metrics_of(result), axes_of(result)
    measured = {name: state_of(state) for name, state in result.states[block].items()}
    draws = block_draws(measured, metrics, axes, n_draws=n_draws, seed=seed)
    values: dict[str, xr.DataArray] = {}
    labeled: dict[str, xr.DataArray] = {}
    for metric in metrics:
        labels = metric.coordinates(axes)
        for name in (variable.name for variable in metric.variables()):
            if name not in draws:
                continue
            # Other metrics may have added labels for which this variable has no values.
            dims = [str(dim) for dim in data[name].dims]
            here = {dim: list(labels[dim]) for dim in dims if dim in labels}
            values[name] = data[name].sel(here)
            labeled[name] = xr.DataArray(
                draws[name],
                {dim: values[name][dim] for dim in dims if dim in data.coords},
                ("draw", *dims),
            )
    return values, labeled


def _not_comparable(left: Result, right: Result) -> set[str]:
    """Variables that would differ merely because more was measured on one side."""
    return {
        variable.name
        for metric in metrics_of(left)
        if metric.depends_on_count and _count(left, metric.name) != _count(right, metric.name)
        for variable in metric.variables()
    }


def _count(result: Result, metric: str) -> list[float] | None:
    name = f"{metric}_count"
    return result[name].values.ravel().tolist() if name in result else None


def _difference(name: str, value: xr.DataArray, drawn: xr.DataArray) -> dict[str, xr.DataArray]:
    drawn = drawn.transpose("draw", *value.dims)
    bounds = xr.DataArray(
        interval(drawn.values),
        {"bound": list(BOUNDS), **{dim: value[dim] for dim in value.dims if dim in value.coords}},
        ("bound", *value.dims),
    )
    return {name: value, f"{name}_interval": bounds}
