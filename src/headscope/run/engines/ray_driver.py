"""The process of a run that talks to Ray.

Ray ends a process that has lost its node or cluster without a Python error. So the user's process
only starts this one, sends the work through a pipe, and reads sums from another.
When the pipe closes, this process ends, and Ray's processes with it.
"""

from __future__ import annotations

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
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from headscope.errors import HeadscopeError
from headscope.model.model import Model
from headscope.run.checkpoint import ShardKey, pack_sums
from headscope.run.engines.processes import n_cores
from headscope.run.plan import Plan, Shard
from headscope.run.shard import measure_shard, prepare

DONE = None
"""Sent after the last row."""


@dataclass(frozen=True)
class Work:
    """Model, plan and shards to measure, and the cluster for them."""

    model: bytes
    """Pickled model, which only actors unpickle."""
    plan: Plan
    shards: Callable[[], Iterator[Shard]]
    workers: int
    address: str | None


@dataclass(frozen=True)
class Row:
    """A measured shard."""

    id: int
    documents: int
    states: bytes


class _Actor:
    def __init__(self, packed: list[ray.ObjectRef[bytes]], plan: Plan) -> None:
        torch.set_num_threads(plan.settings.threads)
        self._model: Model = pickle.loads(ray.get(packed[0]))
        self._plan = plan
        prepare(plan)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[object]]:
        states: list[object] = []
        for content in batch["shard"]:
            shard: Shard = pickle.loads(content)
            measured = measure_shard(self._model, self._plan, shard)
            states.append(pack_sums(measured, ShardKey(self._plan.hash, shard.id)))
        return {"id": list(batch["id"]), "documents": list(batch["documents"]), "states": states}


class _ShardSource(Datasource):  # type: ignore[misc, unused-ignore]
    """Shards of a plan, read from the corpus as fast as they are measured."""

    def __init__(self, shards: Callable[[], Iterator[Shard]]) -> None:
        self._shards = shards

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *args: object, **options: object) -> list[ReadTask]:
        shards = self._shards
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)

        def blocks() -> Iterator[pa.Table]:
            for shard in shards():
                content = pa.array([pickle.dumps(shard)], pa.large_binary())
                n = len(shard.documents)
                yield pa.table({"id": [shard.id], "documents": [n], "shard": content})

        return [ReadTask(blocks, unknown)]


def connect(work: Work) -> None:
    """Join the cluster at the address, or start Ray on this machine."""
    cores = None if work.address else max(n_cores(), work.workers * work.plan.settings.threads)
    # Without an address Ray would search a cluster on this machine, even a dead one.
    ray.init(
        address=work.address or "local",
        include_dashboard=None if work.address else False,
        log_to_driver=False,
        num_cpus=cores,
    )


def measure_on_ray(work: Work) -> Iterator[Row]:
    """Yield each shard when an actor has measured it. Ray replaces actors that die."""
    packed = ray.put(work.model)
    # Other nodes may lack the files of the corpus.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    source = ray.data.read_datasource(
        _ShardSource(work.shards),
        # Reading reserves no core: otherwise it would wait for actors that wait for it.
        ray_remote_args={"num_cpus": 0, "scheduling_strategy": here},
        override_num_blocks=1,
    )
    measured = source.map_batches(
        _Actor,
        fn_constructor_args=([packed], work.plan),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=work.workers),
        num_cpus=work.plan.settings.threads,
    )
    measured.context.enable_progress_bars = False
    measured.context.execution_options.preserve_order = False
    measured.context.target_max_block_size = 1  # byte: each shard is a block, and a task of its own
    for row in measured.iter_rows():
        yield Row(int(row["id"]), int(row["documents"]), row["states"])


def reason(error: BaseException) -> BaseException:
    """Return the error to show to the user for an error from Ray's processes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HeadscopeError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    plain = " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())
    # A traceback from another process ends with the message.
    return ConnectionError(f"Ray could not go on: {plain[-400:] or type(error).__name__}")


def main() -> None:
    """Measure the work on stdin; write rows, or the error that ended the run, to stdout."""
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of libraries go to the log
    work: Work = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        connect(work)
        _send(messages, ray.get_runtime_context().get_session_name())
        for row in measure_on_ray(work):
            _send(messages, row)
        _send(messages, DONE)
    except Exception as error:  # Ray raises many kinds of errors
        _send(messages, reason(error))
    finally:
        ray.shutdown()


def _send(pipe: IO[bytes], message: object) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def _end_with_parent() -> None:
    while os.read(0, 1):  # a buffered reader's lock would outlive the interpreter
        pass
    os.kill(os.getpid(), signal.SIGTERM)
