"""The runs that a verb was given: files, run folders, or folders of run folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscope.results.result import Result

DEPTH = 2
"""How many levels below a given folder finished runs are looked for."""


def find_runs(paths: list[Path]) -> list[Path]:
    """The paths, where a folder of run folders is replaced by the finished runs in it, by name."""
    from headscope.results.opening import RESULT

    runs: list[Path] = []
    for path in paths:
        inside: list[Path] = []
        if path.is_dir() and not (path / RESULT).is_file():
            for depth in range(1, DEPTH + 1):
                inside += sorted(path.glob("*/" * depth + RESULT))
        runs += [file.parent for file in inside] or [path]
    return runs


def open_results(paths: list[Path]) -> list[Result]:
    """The results of run folders and files, which must all be of one model."""
    import headscope as hs
    from headscope.errors import InputError
    from headscope.results.probe import Probe
    from headscope.results.result import Result

    results = []
    for path in find_runs(paths):
        opened = hs.open(path)
        if not isinstance(opened, Result):
            what = "a trained probe" if isinstance(opened, Probe) else "a trace of one input"
            raise InputError(f"{str(path)!r} holds {what}; expected a run over a corpus.")
        results.append(opened)
    models = sorted({result.model for result in results})
    if len(models) > 1:
        raise InputError(f"These runs are of different models: {', '.join(models)}.")
    return results
