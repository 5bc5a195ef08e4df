"""Checkpoints in the folder of a run, and the lock on it.

    out/plan.json                the plan of the run
    out/shards/12-3f9a….npz      states of a shard, written atomically
    out/shards/prefix-3f9a….npz  the sum of shards 0 … n, which replaces their files
    out/result.nc                the result
    out/.lock                    held by the running process

Shards are added in the order of their ids, so that sums are bit-equal for any order of workers.
Names and contents of files include the hash of their plan: a checkpoint of another plan is never
counted. A seal at the end of each file is compared before anything is parsed (`headscope.atomic`):
a damaged checkpoint is measured again. Files have arrays and JSON; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import filelock
import numpy as np

from headscope.atomic import (
    DamagedFile,
    UnsealedFile,
    atomic_path,
    read_sealed,
    remove_leftovers,
    sealed,
)
from headscope.errors import (
    FileFormatError,
    HeadscopeError,
    InputError,
    RunMismatch,
    WriteError,
    warn,
)
from headscope.metrics.core.accumulator import States, merge_states
from headscope.metrics.core.contract import LayersMetric
from headscope.metrics.core.registry import OWN
from headscope.results.files import RESULT_FILE
from headscope.results.files import open as open_file
from headscope.results.result import Result
from headscope.run.plan import Plan
from headscope.run.shard import ShardReport, ShardSums

FOLDER = "shards"
FOLD_EVERY = 16
MAX_FILES = 5

T = TypeVar("T")


class ShardKey(NamedTuple):
    """Identity of a checkpoint."""

    plan: str
    shard: int | None
    """Shard id; None for a sum of several."""
    through: int = 0
    """Number of shards in a sum, from shard 0."""


class ShardStore:
    """Finished shards and their sum so far. Unless the folder outlives the run (`is_kept`), files
    that only a later run would read are not written.
    """

    def __init__(self, folder: Path, plan: Plan, n_shards: int, *, is_kept: bool = True) -> None:
        self._is_kept = is_kept
        self._folder = folder / FOLDER
        self._plan = plan
        self._hash = plan.hash
        self._n_shards = n_shards
        self._total: ShardSums | None = None
        self._next = 0
        self._on_disk = 0
        self._is_half_added = False
        self._folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def path(self, shard_id: int) -> Path:
        """Return the file of a shard's states."""
        return self._folder / f"{shard_id}{self._ending}"

    def key(self, shard_id: int) -> ShardKey:
        """Return the key of a shard's file."""
        return ShardKey(self._hash, shard_id)

    @property
    def done(self) -> set[int]:
        """Ids of the finished shards."""
        return set(range(self._next)) | {shard_id for shard_id, _ in self._files()}

    @property
    def is_complete(self) -> bool:
        """Are all shards in the sum?"""
        return self._next == self._n_shards

    def total(self) -> ShardSums:
        """Return the sum of all shards."""
        assert self._total is not None
        return self._total

    def add(self, shard_id: int, measured: ShardSums) -> None:
        """Write a shard that was measured in this process, and add it if it is next in order."""
        if self._is_kept or shard_id != self._next:
            write_sums(self.path(shard_id), measured, self.key(shard_id))
        if shard_id == self._next:
            self._add_next(measured, in_place=True)
        self.merge()

    def merge(self, *, flush: bool = False) -> None:
        """Add the shards that are next in order; write the sum to disk regularly.

        After an interrupt or error within an addition, the sum is not used: shards are on disk.
        """
        if self._is_half_added:
            return
        while self._next < self._n_shards and self.path(self._next).is_file():
            path = self.path(self._next)
            try:
                self._add_next(read_sums(path, self.key(self._next)), in_place=True)
            except (OSError, MemoryError):
                raise
            except Exception as error:  # as in `_tried`; shapes may also differ from the sum's
                path.unlink(missing_ok=True)
                raise HeadscopeError(
                    f"The checkpoint of shard {self._next} was damaged while the run used it "
                    f"({error}) and was removed. Run the same again: the shard is measured again, "
                    "the others are kept."
                ) from error
        n_new = self._next - self._on_disk
        if self._total is not None and n_new and (flush or n_new >= FOLD_EVERY):
            if self._is_kept:
                write_sums(self._prefix, self._total, ShardKey(self._hash, None, self._next))
            for shard_id in range(self._on_disk, self._next):
                self.path(shard_id).unlink(missing_ok=True)
            self._on_disk = self._next

    @property
    def _ending(self) -> str:
        return _ending(self._hash)

    @property
    def _prefix(self) -> Path:
        return self._folder / f"prefix{self._ending}"

    def _files(self) -> list[tuple[int, Path]]:
        paths = ((p.name.removesuffix(self._ending), p) for p in self._folder.glob("*-*.npz"))
        return sorted((int(name), p) for name, p in paths if name.isdecimal() and name.isascii())

    def _add_next(self, measured: ShardSums, *, in_place: bool) -> None:
        total, metrics = self._total, self._plan.metrics
        if total is None:
            self._total = measured
        else:
            self._is_half_added = in_place
            states = merge_states(metrics, total.states, measured.states, in_place=in_place)
            total.report.add(measured.report)
            self._total = ShardSums(states, total.report)
        self._next += 1
        self._is_half_added = False

    def _resume(self) -> None:
        """Add readable checkpoints; remove others with a warning, to measure them again."""
        damaged: list[str] = []
        if self._prefix.is_file() and (read := self._tried(self._prefix, damaged, self._sum)):
            key, self._total = read
            self._next = self._on_disk = key.through
        for shard_id, path in self._files():
            if shard_id < self._next or shard_id >= self._n_shards:
                path.unlink()
            else:
                self._tried(path, damaged, self._checked(shard_id))
        names = sorted(path.name for path in self._folder.glob("*.npz"))
        foreign = [name for name in names if not name.endswith(self._ending)]
        for problem, some in (
            (f"{self._folder} also has checkpoints of another run, which are left alone", foreign),
            (f"Checkpoints in {self._folder} could not be read and are measured again", damaged),
        ):
            if some:
                more = f" and {len(some) - MAX_FILES} more" if len(some) > MAX_FILES else ""
                warn(f"{problem}: {', '.join(some[:MAX_FILES])}{more}.")
        self.merge()

    def _sum(self, path: Path) -> tuple[ShardKey, ShardSums]:
        key, measured = read_keyed(path)
        is_in_run = 0 < key.through <= self._n_shards
        if key != ShardKey(self._hash, None, key.through) or not is_in_run:
            raise ValueError(f"it says that it is {key}")
        check_states(self._plan, measured.states)
        return key, measured

    def _checked(self, shard_id: int) -> Callable[[Path], None]:
        """Return a reader of a shard's file, which adds the shard if it is next in order."""

        def check(path: Path) -> None:
            measured = read_sums(path, self.key(shard_id))
            check_states(self._plan, measured.states)
            if shard_id == self._next:
                # Not in place: if shapes do not match, the sum must not change.
                self._add_next(measured, in_place=False)

        return check

    def _tried(self, path: Path, damaged: list[str], read: Callable[[Path], T]) -> T | None:
        """Call `read`; if it fails, remove the file and list it as damaged."""
        if path.is_dir():
            raise InputError(f"{str(path)!r} is a folder where a checkpoint belongs: remove it.")
        try:
            return read(path)
        except Exception as error:  # zip, JSON and NumPy raise many kinds of errors
            damaged.append(f"{path.name} ({type(error).__name__}: {str(error)[:80]})")
            path.unlink()
            return None


def remove_checkpoints(folder: Path, plan: Plan) -> None:
    """Delete the checkpoints of a plan whose result is on disk."""
    shards = folder / FOLDER
    with contextlib.suppress(OSError):  # the next call tries again
        for path in shards.glob(f"*{_ending(plan.hash)}"):
            path.unlink(missing_ok=True)
        if shards.is_dir() and not any(shards.iterdir()):
            shards.rmdir()


def _ending(plan_hash: str) -> str:
    return f"-{plan_hash[:12]}.npz"


def write_sums(path: Path, measured: ShardSums, key: ShardKey) -> None:
    """Write a checkpoint atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(pack_sums(measured, key))


def pack_sums(measured: ShardSums, key: ShardKey) -> bytes:
    """Return a checkpoint: arrays and JSON in one npz, sealed."""
    arrays = {
        f"{block}|{metric}|{name}": array
        for block, metrics in measured.states.items()
        for metric, state in metrics.items()
        for name, array in state.items()
    }
    meta = json.dumps({"report": measured.report.to_dict(), **key._asdict()}).encode()
    file = io.BytesIO()
    np.savez(file, meta=np.frombuffer(meta, dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return sealed(file.getvalue())


def read_sums(path: Path, expected: ShardKey) -> ShardSums:
    """Read a checkpoint and check its plan and shard."""
    key, measured = read_keyed(path)
    if key != expected:
        raise ValueError(f"it says that it is shard {key.shard} of plan {key.plan[:12]}")
    return measured


def read_keyed(path: Path) -> tuple[ShardKey, ShardSums]:
    """Read a checkpoint and its key."""
    states: States = {}
    with np.load(io.BytesIO(read_sealed(path)), allow_pickle=False) as file:
        meta = json.loads(file["meta"].tobytes())
        for entry in file.files:
            if entry != "meta":
                block, metric, name = entry.split("|")
                states.setdefault(block, {}).setdefault(metric, {})[name] = file[entry]
    report = ShardReport(**meta.pop("report"))
    return ShardKey(**meta), ShardSums(states, report)


def check_states(plan: Plan, states: States) -> None:
    """Raise ValueError if names, axes or types of arrays differ from the plan's metrics."""
    metrics = {metric.name: metric for metric in plan.metrics}
    for block, measured in states.items():
        for name, state in measured.items():
            if (metric := metrics.get(name)) is None:
                raise ValueError(f"it has {name!r}, which the plan does not measure")
            found = {key: (array.dtype, array.ndim) for key, array in state.items()}
            n_lead = int(metric.scope == "layer" and not isinstance(metric, LayersMetric))
            zero = metric.zero(1, plan.axes, is_causal=True)
            expected = {k: (v.dtype, n_lead + len(metric.state_dims(k))) for k, v in zero.items()}
            if found != expected:
                raise ValueError(f"{block} {name} has arrays {found}, expected {expected}")


MAX_DIFFERENCES = 4
CAUSES = ("model name", "corpus name", "corpus unit", "the model", "the documents")
"""Prefixes of differences that cause others, such as other labels."""
DIFFERENCE_TEXTS = {
    "corpus hash": "the documents were other ones",
    "model weights_sha256": "the model had other weights",
    "format": "it was written by another version of headscope",
}
"""Texts for differences whose values mean nothing to a reader."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder; within the block no other process works in it. Files of killed processes are
    removed. A finished run in a folder that cannot be written is only opened.
    """
    lock = filelock.FileLock(folder / ".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise InputError(f"Another run uses {folder}. Wait for it, or stop it.") from None
    except OSError as error:
        if not (folder / RESULT_FILE).is_file():
            raise WriteError.of(folder, error) from error
    try:
        if lock.is_locked:
            for path in (folder, folder / FOLDER):
                remove_leftovers(path)
        yield
    except HeadscopeError:
        raise
    except OSError as error:
        name = error.filename
        if name is None or Path(os.fsdecode(name)).is_relative_to(folder):
            raise WriteError.of(folder, error) from error
        raise
    finally:
        lock.release()


def finished(folder: Path, plan: Plan) -> Result | None:
    """Return the result of this plan if its run is complete and its file is sound."""
    file = folder / RESULT_FILE
    if not file.is_file():
        return None
    try:
        opened = open_file(file)
        if not isinstance(opened, Result):
            raise FileFormatError(f"{file} is not the result of a run.")
    except (DamagedFile, UnsealedFile) as error:
        aside = file.replace(file.with_name(f"{file.name}.damaged"))
        warn(f"{error} It was renamed to {aside.name} and is measured again.")
        return None
    if opened.provenance.get("plan") != plan.hash:
        raise RunMismatch(
            f"{file} is the result of another run than {folder / 'plan.json'} describes. Choose "
            "another folder, or pass resume=False (--no-resume) to replace it."
        )
    return opened


def check_plan(folder: Path, plan: Plan, *, resume: bool) -> None:
    """Check that the folder has a run of this plan, or write the plan into it."""
    file = folder / "plan.json"
    ours = json.loads(json.dumps(plan.to_dict()))
    if file.is_file() and resume:
        try:
            theirs = read_plan(file)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{file} is damaged ({error}). Remove the folder, or pass resume=False."
            ) from error
        if theirs == ours:
            return
        if _is_older_metric(theirs, ours) and not (folder / RESULT_FILE).exists():
            for path in (file, folder / FOLDER):
                if path.exists():
                    path.replace(path.with_name(f"{path.name}.older"))
            warn(
                f"{folder} held an unfinished run with an older version of a metric of yours. It "
                f"is set aside as {file.name}.older and {FOLDER}.older."
            )
            check_plan(folder, plan, resume=resume)
            return
        differences = _differences(theirs, ours)
        first = [text for text in differences if text.startswith(CAUSES)]
        differences = first or differences  # with another model or corpus, much else differs
        n_more = len(differences) - MAX_DIFFERENCES
        more = f"; and {n_more} more" if n_more > 0 else ""
        raise RunMismatch(
            f"{folder} holds another run: {'; '.join(differences[:MAX_DIFFERENCES])}{more}. "
            "Choose another folder, or pass resume=False (--no-resume) to replace it."
        )
    if resume:
        if (folder / RESULT_FILE).is_file():
            raise RunMismatch(
                f"{folder} holds a result, but no {file.name} that says what it is of. "
                "headscope.open reads it; for a new run choose another folder, or pass "
                "resume=False (--no-resume) to replace it."
            )
    else:
        for path in [folder / RESULT_FILE, *(folder / FOLDER).glob("*.npz")]:
            path.unlink(missing_ok=True)
    with atomic_path(file) as temporary:
        content = {"hash": plan.hash, "plan": ours}
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _is_older_metric(theirs: Mapping[str, object], ours: Mapping[str, object]) -> bool:
    def without_code(plan: Mapping[str, Any]) -> Mapping[str, Any]:
        metrics = plan["metrics"] if isinstance(plan.get("metrics"), list) else []
        return {**plan, "metrics": [m["name"] if OWN in m else m for m in metrics]}

    return without_code(theirs) == without_code(ours)


def read_plan(file: Path) -> dict[str, object]:
    """Return the plan in a `plan.json` after comparing it with its hash."""
    content = json.loads(file.read_text(encoding="utf-8"))
    plan = dict(content["plan"])
    found = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    if found != content["hash"]:
        raise ValueError(f"its hash is {found[:16]}…, expected {content['hash']!s:.16}…")
    return plan


def _differences(
    theirs: Mapping[str, object], ours: Mapping[str, object], prefix: str = ""
) -> list[str]:
    """List differences, leaf by leaf: `settings max_tokens was 512, is 128`."""
    differences = []
    for key in {**theirs, **ours}:
        before, now = theirs.get(key), ours.get(key)
        if before == now:
            continue
        name = f"{prefix} {key}".strip()
        if name in DIFFERENCE_TEXTS:
            differences.append(DIFFERENCE_TEXTS[name])
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
    """List differences of metrics: `distance was measured, and is not asked for now`."""
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
