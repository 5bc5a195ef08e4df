"""The folder of a run: whose it is, and who may work in it.

out/plan.json   what is being run
out/shards/     checkpoints (`run/checkpoint.py`)
out/result.nc   the result
out/.lock       held by the process that is at work
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

from headscope.atomic import atomic_path, remove_leftovers
from headscope.errors import FileFormatError, InputError, OtherRun
from headscope.results.opening import RESULT
from headscope.results.opening import open as open_file
from headscope.results.result import Result
from headscope.run.checkpoint import FOLDER
from headscope.run.plan import Plan

MOST_SHOWN = 4
"""Differences of two plans that a message names."""
CAUSES = ("model name", "corpus name", "corpus unit", "the model", "the documents")
"""How differences begin from which others follow, such as other labels."""
IN_WORDS = {
    "corpus hash": "the documents were other ones",
    "model weights_sha256": "the model had other weights",
    "format": "it was written by another version of headscope",
}
"""Differences of which the values say nothing to a reader."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within the block no other process works in the folder. What a killed one left half written
    is removed.
    """
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise InputError(f"Another run is at work in {folder}. Wait for it, or stop it.") from None
    try:
        for place in (folder, folder / FOLDER):
            remove_leftovers(place)
        yield
    finally:
        lock.release()


def finished(folder: Path, plan: Plan) -> Result | None:
    """The result of this plan, where its run is complete.

    Raises:
        FileFormatError: the result is damaged, or is of another plan.
    """
    file = folder / RESULT
    if not file.is_file():
        return None
    try:
        opened = open_file(file)
    except FileFormatError as error:
        raise FileFormatError(
            f"{error} Pass resume=False (--no-resume) to measure everything again."
        ) from error
    if not isinstance(opened, Result):
        raise FileFormatError(f"{file} is not the result of a run.")
    if opened.provenance.get("plan") != plan.hash:
        raise OtherRun(
            f"{file} is the result of another run than {folder / 'plan.json'} describes. Choose "
            "another folder, or pass resume=False (--no-resume) to replace it."
        )
    return opened


def check_plan(folder: Path, plan: Plan, *, resume: bool) -> None:
    """Make sure that the folder holds a run of this plan, or write the plan into it.

    Raises:
        OtherRun: the folder holds a run with another plan; the message says what differs.
        InputError: the plan in the folder cannot be read.
    """
    file = folder / "plan.json"
    ours = json.loads(json.dumps(plan.to_dict()))
    if file.is_file() and resume:
        try:
            theirs = dict(json.loads(file.read_text(encoding="utf-8"))["plan"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{file} is damaged ({error}). Remove the folder, or pass resume=False."
            ) from error
        if theirs != ours:
            differences = _differences(theirs, ours)
            first = [text for text in differences if text.startswith(CAUSES)]
            differences = first or differences  # with another model or corpus, much else differs
            n_more = len(differences) - MOST_SHOWN
            more = f"; and {n_more} more" if n_more > 0 else ""
            shown = "; ".join(differences[:MOST_SHOWN]) + more
            raise OtherRun(
                f"{folder} holds another run: {shown}. Choose another folder, or pass "
                "resume=False (--no-resume) to replace it."
            )
        return
    if resume:
        _refuse_unknown(folder, file)
    else:
        for path in [folder / RESULT, *(folder / FOLDER).glob("*.npz")]:
            path.unlink(missing_ok=True)
    with atomic_path(file) as temporary:
        content = {"hash": plan.hash, "plan": ours}
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _refuse_unknown(folder: Path, file: Path) -> None:
    """Refuse a folder that holds a result, but no plan that says what the result is of."""
    if (folder / RESULT).is_file():
        raise OtherRun(
            f"{folder} holds a result, but no {file.name} that says what it is of. headscope.open "
            "reads it; for a new run choose another folder, or pass resume=False (--no-resume) to "
            "replace it."
        )


def _differences(
    theirs: Mapping[str, object], ours: Mapping[str, object], where: str = ""
) -> list[str]:
    """What differs, leaf by leaf: `settings max_tokens was 512, is 128`."""
    differences = []
    for key in {**theirs, **ours}:
        before, now = theirs.get(key), ours.get(key)
        if before == now:
            continue
        name = f"{where} {key}".strip()
        if name in IN_WORDS:
            differences.append(IN_WORDS[name])
        elif name == "metrics" and isinstance(before, list) and isinstance(now, list):
            differences += _metric_differences(before, now)
        elif isinstance(before, dict) and isinstance(now, dict):
            differences += _differences(before, now, name)
        else:
            differences.append(f"{name} was {_short(before)}, is {_short(now)}")
    return differences


def _metric_differences(
    theirs: Sequence[Mapping[str, object]], ours: Sequence[Mapping[str, object]]
) -> list[str]:
    """Which metrics differ: `distance was measured, and is not asked for now`."""
    before, now = (
        {str(metric["name"]): metric for metric in metrics} for metrics in (theirs, ours)
    )
    differences = [f"{name} was measured, and is not asked for now" for name in before.keys() - now]
    differences += [f"{name} was not measured" for name in now.keys() - before]
    for name in before.keys() & now:
        differences += _differences(before[name], now[name], name)
    return sorted(differences) or ["its metrics were in another order"]


def _short(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"
