"""A probe as one netCDF file: scores at the root, parameters and the log in groups."""

from __future__ import annotations

import json
import os

from headscope.atomic import atomic_path
from headscope.results.netcdf import load_groups, save_groups
from headscope.results.probe import Probe

KIND = "probe"
GROUPS = ("parameters", "log")


def save_probe(probe: Probe, path: str | os.PathLike[str]) -> None:
    """Write a probe; the file appears under its name only when it is complete."""
    # Long texts are variables: HDF5 limits attributes to 64 kB.
    text = json.dumps(dict(probe.provenance), ensure_ascii=True)
    root = probe.scores.assign(provenance=((), text))
    root.attrs.update(headscope=KIND, kind=probe.kind)
    with atomic_path(path) as temporary:
        save_groups(temporary, {"/": root, **{f"/{x}": getattr(probe, x) for x in GROUPS}})


def load_probe(path: str | os.PathLike[str]) -> Probe:
    """The probe a file holds, without its model."""
    loaded = load_groups(path)
    root = loaded["/"]
    provenance = json.loads(str(root["provenance"].item()))
    kind = str(root.attrs["kind"])
    root = root.drop_vars("provenance")
    root.attrs = {}
    return Probe(kind, loaded["/parameters"], root, loaded["/log"], provenance)
