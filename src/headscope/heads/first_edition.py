"""Results of the first edition, whose variables did not say what they are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr

from headscope.metrics import describe_variable
from headscope.results.result import Result

BESIDE = ("_interval", "_documents", "_count", "_mean", "_by_layer", "_p")
"""How the names end of what is shown beside something else."""


def with_descriptions(result: Result) -> Result:
    """The result, its variables described by today's metrics where they say nothing."""
    if any("title" in array.attrs for array in result.dataset.data_vars.values()):
        return result
    return replace(
        result,
        blocks=_described(result.blocks),
        groups={name: _described(blocks) for name, blocks in result.groups.items()},
    )


def _described(blocks: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    described = {}
    for block, data in blocks.items():
        arrays = {}
        for key, array in data.data_vars.items():
            name = str(key)
            known = dict(describe_variable(name))
            is_of_heads = {"layer", "head"} <= set(map(str, array.dims))
            if not known and is_of_heads and not name.endswith(BESIDE):  # of a metric of one's own
                known = {"title": name.replace("_", " ").capitalize()}
            arrays[name] = array.assign_attrs({**known, **array.attrs})
        described[block] = data.assign(arrays)
    return described
