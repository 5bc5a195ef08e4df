"""The side of a run that talks to Ray, in a process of its own.

Ray ends a process that has lost its node or cluster without a Python error, so the process that the
user is in is never Ray's: it starts this one, gives it the work through a pipe, and reads what was
measured from another. When the pipe closes, this one ends, and Ray's processes with it.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import ray
import torch
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from headscope.errors import HeadscopeError
from headscope.model.model import Model
from headscope.run.checkpoint import ShardKey, dump_measured
from headscope.run.engines.processes import n_cores
from headscope.run.plan import Plan, Shard
from headscope.run.shard import measure_shard, prepare

SHARDS_PER_BLOCK = 1
DONE = None
"""Sent after the last row."""


@dataclass(frozen=True)
class Work:
    """What is to be measured, and by whom."""

    model: bytes
    """The pickled model: only actors unpack it."""
    plan: Plan
    shards: Callable[[], Iterator[Shard]]
    workers: int
    address: str | None


@dataclass(frozen=True)
class Row:
    """One shard that was measured."""

    id: int
    documents: int
    states: bytes


class _Actor:
    """Measures shards in one of Ray's processes."""

    def __init__(self, packed: list[ray.ObjectRef[bytes]], plan: Plan) -> None:
        torch.set_num_threads(plan.settings.threads)
        self._model: Model = pickle.loads(ray.get(packed[0]))
        self._plan = plan
        prepare(plan)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[object]]:
        states: list[object] = []
        for content in batch["shard"]:
            file = io.BytesIO()
            shard: Shard = pickle.loads(content)
            measured = measure_shard(self._model, self._plan, shard)
            dump_measured(file, measured, ShardKey(self._plan.hash, shard.id))
            states.append(file.getvalue())
        return {"id": list(batch["id"]), "documents": list(batch["documents"]), "states": states}


class _ShardSource(Datasource):  # type: ignore[misc, unused-ignore]
    """The shards of a plan, read from the corpus as fast as they are measured."""

    def __init__(self, shards: Callable[[], Iterator[Shard]]) -> None:
        self._shards = shards

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown."""
        return None

    def get_read_tasks(self, parallelism: int, *args: object, **options: object) -> list[ReadTask]:
        """One task that goes through the corpus."""
        shards = self._shards
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)

        def blocks() -> Iterator[pa.Table]:
            for shard in shards():
                yield pa.table(
                    {
                        "id": [shard.id],
                        "documents": [len(shard.documents)],
                        "shard": pa.array([pickle.dumps(shard)], pa.large_binary()),
                    }
                )

        return [ReadTask(blocks, unknown)]


def connect(work: Work) -> None:
    """Join the cluster of that address, or start Ray on this machine."""
    cores = None if work.address else max(n_cores(), work.workers * work.plan.settings.threads)
    # Without an address Ray would look for a cluster on this machine, even one that is gone.
    ray.init(
        address=work.address or "local",
        include_dashboard=None if work.address else False,
        log_to_driver=False,
        num_cpus=cores,
    )


def measure_on_ray(work: Work) -> Iterator[Row]:
    """Every shard as soon as an actor has measured it. Ray replaces actors that die."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = False
    packed = ray.put(work.model)
    # Reading reserves no core: otherwise it would wait for actors that wait for it.
    source = ray.data.read_datasource(
        _ShardSource(work.shards), ray_remote_args={"num_cpus": 0}, override_num_blocks=1
    )
    measured = source.map_batches(
        _Actor,
        fn_constructor_args=([packed], work.plan),
        batch_size=SHARDS_PER_BLOCK,
        compute=ray.data.ActorPoolStrategy(size=work.workers),
        num_cpus=work.plan.settings.threads,
    )
    for row in measured.iter_rows():
        yield Row(int(row["id"]), int(row["documents"]), row["states"])


def reason(error: BaseException) -> BaseException:
    """What the user should see of an error that came through Ray's processes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HeadscopeError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    plain = " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())
    # A traceback that came from another process ends with what went wrong.
    return ConnectionError(f"Ray could not go on: {plain[-400:] or type(error).__name__}")


def main() -> None:
    """Measure what comes in on stdin; write rows, or the error that ended the run, to stdout."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print belongs to the log
    work: Work = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        connect(work)
        _send(answers, ray.get_runtime_context().get_session_name())
        for row in measure_on_ray(work):
            _send(answers, row)
        _send(answers, DONE)
    except Exception as error:  # Ray raises its own, of many kinds
        _send(answers, reason(error))
    finally:
        ray.shutdown()


def _send(answers: IO[bytes], answer: object) -> None:
    pickle.dump(answer, answers)
    answers.flush()


def _end_with_parent() -> None:
    """When the process that started this one is gone, end as if asked to."""
    while os.read(0, 1):  # a buffered reader's lock would outlive the interpreter
        pass
    os.kill(os.getpid(), signal.SIGTERM)
