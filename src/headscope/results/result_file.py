"""A result as one netCDF file: values at the root, other attention and states in groups.

`xarray.open_dataset(path)` gives the values of the main attention; everything else is in
groups: `/blocks/decoder`, `/groups/self`, `/states/self/distance`, `/documents`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import xarray as xr

from headscope.atomic import atomic_path
from headscope.results.netcdf import load_groups
from headscope.results.result import MeasuredDocument, Result
from headscope.surface.opened import with_renewed_intervals

KIND = "result"
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True}


def save_result(result: Result, path: str | os.PathLike[str]) -> None:
    """Write a result; the file appears under its name only when it is complete."""
    main, *others = result.blocks
    # Long texts are variables: HDF5 limits attributes to 64 kB.
    root = result.blocks[main].assign(
        provenance=((), json.dumps(dict(result.provenance), ensure_ascii=True))
    )
    root.attrs.update(headscope=KIND, blocks=json.dumps([main, *others]))
    datasets: dict[str, xr.Dataset] = {"/": root}
    for name in others:
        datasets[f"/blocks/{name}"] = result.blocks[name]
    for block in result.blocks if result.groups else ():
        # One axis more, not a dataset for each: hundreds of small variables load slowly.
        datasets_of_groups = [blocks[block] for blocks in result.groups.values()]
        names = xr.DataArray(list(result.groups), dims="group", name="group")
        datasets[f"/groups/{block}"] = xr.concat(
            datasets_of_groups,
            names,
            data_vars="all",
            coords="minimal",
            compat="override",
            join="override",
        )
    for block, metrics in result.states.items():
        for metric, data in metrics.items():
            datasets[f"/states/{block}/{metric}"] = data
    datasets["/documents"] = _documents(result)
    encoding = {
        group: {str(v): COMPRESSION for v in data.data_vars if data[v].ndim > 1}
        for group, data in datasets.items()
    }
    with atomic_path(path) as temporary:
        # Separate groups, not a tree: axes of the same name may differ between them.
        for number, (group, data) in enumerate(datasets.items()):
            data.to_netcdf(
                temporary,
                mode="w" if number == 0 else "a",
                group=None if group == "/" else group,
                engine="h5netcdf",
                encoding=encoding[group],
            )


def load_result(path: str | os.PathLike[str]) -> Result:
    """The result a file holds."""
    loaded = load_groups(path)
    root = loaded["/"]
    provenance = json.loads(str(root["provenance"].item()))
    main, *others = json.loads(root.attrs["blocks"])
    root = root.drop_vars("provenance")
    for name in ("headscope", "blocks"):
        del root.attrs[name]
    blocks = {main: root, **{name: loaded[f"/blocks/{name}"] for name in others}}
    states: dict[str, dict[str, xr.Dataset]] = {}
    by_group: dict[str, dict[str, xr.Dataset]] = {}
    for name, data in loaded.items():
        kind, *rest = name.strip("/").split("/")
        if kind == "states" and len(rest) == 2:
            states.setdefault(rest[0], {})[rest[1]] = data
        elif kind == "groups" and len(rest) == 1:
            for group in data["group"].values:
                by_group.setdefault(str(group), {})[rest[0]] = data.sel(group=group, drop=True)
    result = Result(blocks, states, provenance, _measured(loaded["/documents"]), by_group)
    of_intervals = [a for name, a in root.data_vars.items() if str(name).endswith("_interval")]
    is_earlier = "metrics" in provenance and any(
        "method" not in array.attrs for array in of_intervals
    )
    return with_renewed_intervals(result) if is_earlier else result


def _documents(result: Result) -> xr.Dataset:
    numbers = sorted(result.documents)
    texts = [
        json.dumps(
            {"id": result.documents[n].id, "tokens": dict(result.documents[n].tokens)},
            ensure_ascii=True,
        )
        for n in numbers
    ]
    return xr.Dataset(
        {"documents": ("number", np.array(texts, dtype=object))},
        coords={"number": np.array(numbers, dtype=np.int64)},
    )


def _measured(data: xr.Dataset) -> dict[int, MeasuredDocument]:
    documents: dict[int, MeasuredDocument] = {}
    if not data.sizes.get("number"):
        return documents
    for number, text in zip(data["number"].values, data["documents"].values, strict=True):
        fields: dict[str, Any] = json.loads(str(text))
        tokens = {stack: tuple(tokens) for stack, tokens in fields["tokens"].items()}
        documents[int(number)] = MeasuredDocument(fields["id"], tokens)
    return documents
