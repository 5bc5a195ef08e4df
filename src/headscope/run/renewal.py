"""Results of earlier versions: their values stay, their intervals are made anew from the sums."""

from __future__ import annotations

from dataclasses import replace

import xarray as xr

from headscope.measuring.assemble import assemble, state_of
from headscope.results.result import Result
from headscope.run.merge import axes_of, group_result, layers_of, registered_metrics_of

BESIDE = ("_interval", "_documents", "correlation_within", "correlation_within_p")
"""How the names end of what is made anew."""


def renew_intervals(result: Result) -> Result:
    """The result with the intervals of this version.

    Earlier ones were a bootstrap that held too rarely with few documents. Of metrics that are
    not registered here, the values stay and the intervals go.
    """
    metrics = registered_metrics_of(result)
    names = {metric.name for metric in metrics}
    states = {
        block: {name: data for name, data in measured.items() if name in names}
        for block, measured in result.states.items()
    }
    plain = {
        b: {n: state_of(data) for n, data in measured.items()} for b, measured in states.items()
    }
    layers = {block: layers_of(data) for block, data in result.blocks.items()}
    fresh = assemble(plain, metrics, axes_of(result), layers, over=result.over)
    described = [values for values in result.provenance["metrics"] if values["name"] in names]
    provenance = {**result.provenance, "metrics": described}
    readable = replace(result, states=states, provenance=provenance)
    groups = {
        name: {
            block: _renewed(data, group_result(readable, name).blocks[block])
            for block, data in blocks.items()
        }
        for name, blocks in result.groups.items()
    }
    blocks = {block: _renewed(data, fresh[block]) for block, data in result.blocks.items()}
    return replace(result, blocks=blocks, groups=groups)


def _renewed(data: xr.Dataset, fresh: xr.Dataset) -> xr.Dataset:
    old = [name for name in data.data_vars if str(name).endswith("_interval")]
    new = {name: array for name, array in fresh.items() if str(name).endswith(BESIDE)}
    return data.drop_vars(old).assign(new)
