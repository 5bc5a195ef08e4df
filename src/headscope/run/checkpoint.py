"""Checkpoints: shards on disk, folded in order into one state.

    out/plan.json        what is being run
    out/shards/12.npz    states of a shard, written whole or not at all
    out/shards/prefix.npz  the sum of shards 0 … n, which replaces their files
    out/result.nc        the result

Shards are added in the order of their ids, whichever worker measured them and whenever, so that
the sums are always the same to the last bit. Files hold arrays and JSON: nothing is unpickled.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headscope.atomic import atomic_path
from headscope.errors import HeadscopeWarning, InputError, OtherRun
from headscope.measuring.fold import States, merge_states
from headscope.results.opening import RESULT
from headscope.run.plan import Plan
from headscope.run.shard import Measured, ShardReport

FOLD_EVERY = 16
MOST_SHOWN = 4
"""Differences of two plans that a message names."""
CAUSES = ("model name", "corpus name", "corpus unit", "the model", "the documents")
"""How differences begin from which others follow, such as other labels."""
IN_WORDS = {
    "corpus hash": "the documents were other ones",
    "model weights_sha256": "the model had other weights",
}
"""Differences of which the values say nothing to a reader."""


class Ledger:
    """Which shards are done, and their sum so far."""

    def __init__(self, folder: Path, plan: Plan, n_shards: int) -> None:
        self._folder = folder / "shards"
        self._plan = plan
        self._n_shards = n_shards
        self._total: Measured | None = None
        self._next = 0
        self._on_disk = 0
        self._folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def path(self, shard_id: int) -> Path:
        """Where a shard's states are written."""
        return self._folder / f"{shard_id}.npz"

    @property
    def done(self) -> set[int]:
        """Ids of the shards that need not be run."""
        later = {int(path.stem) for path in self._folder.glob("[0-9]*.npz")}
        return set(range(self._next)) | later

    @property
    def is_complete(self) -> bool:
        """Is every shard folded in?"""
        return self._next == self._n_shards

    def total(self) -> Measured:
        """The sum of all shards."""
        assert self._total is not None
        return self._total

    def fold(self, *, flush: bool = False) -> None:
        """Add the shards that are next in line; now and then write the sum to disk."""
        while self._next < self._n_shards and self.path(self._next).is_file():
            measured = read_measured(self.path(self._next))
            if self._total is None:
                self._total = Measured(measured.states, measured.report)
            else:
                states = merge_states(
                    self._plan.metrics, self._total.states, measured.states, in_place=True
                )
                self._total.report.add(measured.report)
                self._total = Measured(states, self._total.report)
            self._next += 1
        folded = self._next - self._on_disk
        if self._total is not None and folded and (flush or folded >= FOLD_EVERY):
            write_measured(self._folder / "prefix.npz", self._total, through=self._next)
            for shard_id in range(self._on_disk, self._next):
                self.path(shard_id).unlink(missing_ok=True)
            self._on_disk = self._next

    def _resume(self) -> None:
        for leftover in self._folder.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        prefix = self._folder / "prefix.npz"
        if prefix.is_file() and not _is_readable(prefix):
            prefix.unlink()
            warnings.warn(
                f"{prefix} is damaged: the shards whose sum it held are measured again.",
                HeadscopeWarning,
                stacklevel=5,
            )
        if prefix.is_file():
            through = _meta(prefix)["through"]
            self._total = read_measured(prefix)
            self._next = self._on_disk = int(through)
        for path in self._folder.glob("[0-9]*.npz"):
            if int(path.stem) < self._next or not _is_readable(path):
                path.unlink()
        self.fold()


def write_measured(path: Path, measured: Measured, **extra: int) -> None:
    """Write a shard; the file appears only when it is complete."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        dump_measured(file, measured, **extra)


def dump_measured(file: BinaryIO, measured: Measured, **extra: int) -> None:
    """A shard as arrays and JSON in one npz."""
    arrays = {
        f"{block}|{metric}|{name}": array
        for block, metrics in measured.states.items()
        for metric, state in metrics.items()
        for name, array in state.items()
    }
    meta = json.dumps({"report": measured.report.to_dict(), **extra}).encode()
    np.savez(file, meta=np.frombuffer(meta, dtype=np.uint8), **arrays)  # type: ignore[arg-type]


def read_measured(path: Path) -> Measured:
    """What `write_measured` wrote."""
    states: States = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            if key != "meta":
                block, metric, name = key.split("|")
                states.setdefault(block, {}).setdefault(metric, {})[name] = file[key]
    return Measured(states, ShardReport(**_meta(path)["report"]))


def _meta(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        meta: dict[str, Any] = json.loads(file["meta"].tobytes())
    return meta


def _is_readable(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except Exception:  # zipfile raises many kinds for a damaged file
        return False


def check_plan(folder: Path, plan: Plan, *, resume: bool) -> None:
    """Make sure that the folder holds a run of this plan, or write the plan into it.

    Raises:
        OtherRun: the folder holds a run with another plan; the message says what differs.
        InputError: the plan in the folder cannot be read.
    """
    file = folder / "plan.json"
    ours = plan.to_dict()
    if file.is_file() and resume:
        try:
            theirs = json.loads(file.read_text(encoding="utf-8"))["plan"]
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{file} is damaged ({error}). Remove the folder, or pass resume=False."
            ) from error
        if theirs != json.loads(json.dumps(ours)):
            differences = _differences(theirs, json.loads(json.dumps(ours)))
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
    if not resume:
        for path in [folder / RESULT, *(folder / "shards").glob("*.npz")]:
            path.unlink(missing_ok=True)
    with atomic_path(file) as temporary:
        content = {"hash": plan.hash, "plan": ours}
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


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
        elif isinstance(before, dict) and isinstance(now, dict):
            differences += _differences(before, now, name)
        else:
            differences.append(f"{name} was {_short(before)}, is {_short(now)}")
    return differences


def _short(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"
