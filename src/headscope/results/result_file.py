"""A result as one netCDF file: values at the root, other attention and states in groups.

`xarray.open_dataset(path)` gives the values of the main attention; everything else is in
groups: `/blocks/decoder`, `/groups/self`, `/documents`, and the states of each attention in
`/states/self`: arrays of one type one after the other in one variable, `contents` says which lies
where. Hundreds of small variables would take seconds to write and to read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping

import numpy as np
import xarray as xr

from headscope.atomic import atomic_path
from headscope.results.netcdf import load_groups, save_groups
from headscope.results.result import MeasuredDocument, Result

KIND = "result"


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
        of_groups = {name: blocks[block] for name, blocks in result.groups.items()}
        datasets[f"/groups/{block}"] = _stacked(of_groups)
    for block, metrics in result.states.items():
        datasets[f"/states/{block}"] = _packed(metrics)
    datasets["/documents"] = _documents(result)
    with atomic_path(path) as temporary:
        save_groups(temporary, datasets)


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
        if kind == "states" and len(rest) == 1 and "contents" in data:
            states[rest[0]] = _unpacked(data)
        elif kind == "groups" and len(rest) == 1:
            for number, group in enumerate(data["group"].values):
                by_group.setdefault(str(group), {})[rest[0]] = data.isel(group=number, drop=True)
    return Result(blocks, states, provenance, _measured(loaded["/documents"]), by_group)


def _stacked(groups: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """One dataset with the groups as a further axis: a dataset for each would load slowly."""
    first = next(iter(groups.values()))
    arrays = {
        name: (
            ("group", *array.dims),
            np.stack([data.variables[name].values for data in groups.values()]),
            array.attrs,
        )
        for name, array in first.data_vars.items()
    }
    return xr.Dataset(arrays, {**first.coords, "group": list(groups)}, first.attrs)


def _packed(metrics: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """The arrays of all states, laid end to end by type."""
    contents = []
    flat: dict[str, list[np.ndarray]] = {}
    for metric, data in metrics.items():
        for name, array in data.data_vars.items():
            values = array.values
            contents.append([metric, name, values.dtype.name, array.dims, values.shape])
            flat.setdefault(values.dtype.name, []).append(values.ravel())
    arrays = {kind: ((f"of_{kind}",), np.concatenate(parts)) for kind, parts in flat.items()}
    return xr.Dataset({**arrays, "contents": ((), json.dumps(contents))})


def _unpacked(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """What `_packed` laid end to end."""
    arrays: dict[str, dict[str, tuple[list[str], np.ndarray]]] = {}
    used: dict[str, int] = {}
    for metric, name, kind, dims, shape in json.loads(str(data["contents"].item())):
        start = used.get(kind, 0)
        used[kind] = start + math.prod(shape)
        values = data[kind].values[start : used[kind]].reshape(shape)
        arrays.setdefault(metric, {})[name] = dims, values
    for kind, packed in data.drop_vars("contents").data_vars.items():
        if used.get(str(kind), 0) != packed.size:
            raise ValueError(
                f"states have {packed.size} numbers of type {kind}, expected "
                f"{used.get(str(kind), 0)}"
            )
    return {metric: xr.Dataset(of_metric) for metric, of_metric in arrays.items()}


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
        fields = json.loads(str(text))
        tokens = {stack: tuple(tokens) for stack, tokens in fields["tokens"].items()}
        documents[int(number)] = MeasuredDocument(fields["id"], tokens)
    return documents
