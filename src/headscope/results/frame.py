"""Variables of a result as one pandas table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.results.described import is_shown

HEADS = ("layer", "head")
INTERVAL = "_interval"
BESIDE = (INTERVAL, "_documents")


def make_frame(
    data: xr.Dataset, names: Sequence[str], labels: Mapping[str, str | int]
) -> pd.DataFrame:
    """Variables over the same axes as columns; their axes, layer and head first, as the index."""
    for axis, label in labels.items():
        if axis not in data.coords:
            raise UnknownName.of("axis", axis, map(str, data.coords))
        if label not in data[axis].values.tolist():
            raise UnknownName.of(axis, label, map(str, data[axis].values.tolist()))
    data = data.sel(labels)
    known = [str(name) for name in data.data_vars if not str(name).endswith(BESIDE)]
    for name in names:
        if name not in known:
            raise UnknownName.of("variable", name, known)
    chosen = list(names) or [
        name for name in known if set(data[name].dims) == set(HEADS) and is_shown(data[name])
    ]
    if not chosen:
        raise InputError("This result has no variable over layer and head alone: name one.")
    axes = {name: sorted(map(str, data[name].dims), key=_heads_first) for name in chosen}
    first = axes[chosen[0]]
    for name in chosen:
        if not axes[name]:
            raise InputError(f'{name} is a single number: float(result["{name}"]).')
        if set(axes[name]) != set(first):
            raise InputError(
                f"{chosen[0]} is over {', '.join(first)}, {name} over {', '.join(axes[name])}. "
                "Variables of one table have the same axes: name a label of the others, such as "
                'parent="either", or ask for one table each.'
            )
    columns = {}
    for name in chosen:
        columns[name] = _column(data[name], first)
        if f"{name}{INTERVAL}" in data:
            bounds = data[f"{name}{INTERVAL}"]
            for bound in ("low", "high"):
                columns[f"{name}_{bound}"] = _column(bounds.sel(bound=bound, drop=True), first)
    return pd.DataFrame(columns)


def _heads_first(axis: str) -> tuple[int, str]:
    return (HEADS.index(axis) if axis in HEADS else len(HEADS)), axis


def _column(values: xr.DataArray, axes: list[str]) -> pd.Series:
    """One value a row, indexed by the labels of the axes."""
    return values.transpose(*axes).to_series()
