"""A worker process: measures the shards it is sent, until there are no more.

It answers through a pipe: `("at", (numbers, amount))` before each batch, with what is done of the
shard; `("done", tokens)` when a shard is on disk; `("error", exception)` when it cannot go on with
the shard. If its parent process is gone, a worker ends at its next answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from headscope.model.model import Model
from headscope.run.checkpoint import Stamp, write_measured
from headscope.run.plan import Plan, Shard
from headscope.run.shard import measure_shard, prepare


@dataclass(frozen=True, slots=True)
class Task:
    """A shard to measure; documents to run alone or not at all, because workers died at them."""

    shard: Shard
    path: Path
    stamp: Stamp
    alone: frozenset[int] = frozenset()
    excluded: frozenset[int] = frozenset()


def serve(pipe: Connection) -> None:
    """The life of a worker, who is first sent the model and the plan."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    model: Model
    plan: Plan
    model, plan = pipe.recv()
    torch.set_num_threads(plan.settings.threads)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionError):
        try:
            prepare(plan)
            pipe.send(("ready", None))
            while (task := pipe.recv()) is not None:
                measured = measure_shard(
                    model,
                    plan,
                    task.shard,
                    announce=lambda numbers, done: pipe.send(("at", (numbers, done))),
                    alone=task.alone,
                    excluded=task.excluded,
                )
                write_measured(task.path, measured, task.stamp)
                pipe.send(("done", measured.report.tokens))
        except (EOFError, BrokenPipeError, ConnectionError):
            raise
        except BaseException as error:
            pipe.send(("error", _sendable(error)))


def _sendable(error: BaseException) -> BaseException:
    """The error itself if it can be pickled, otherwise one with the same message."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
