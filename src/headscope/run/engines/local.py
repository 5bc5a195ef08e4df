"""Measure shards on this machine, in this process or in worker processes.

When a worker dies (killed, out of memory), a new one runs its shard again. If workers keep dying at
one shard, the documents of the fatal batch run one at a time. If workers die at one document
alone, this document is left out and reported.

A worker sends messages through a pipe: `("at", (numbers, amount))` before each batch,
`("done", tokens)` for a shard on disk, `("error", exception)` for a failure. If the
parent process has ended, the worker ends at its next message.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import torch
import torch.multiprocessing  # registers how tensors are sent to other processes

from headscope.errors import HeadscopeError, InputError, warn
from headscope.model.model import Model
from headscope.run.checkpoint import ShardKey, ShardStore, write_sums
from headscope.run.engines.processes import start_process
from headscope.run.plan import Plan, Shard
from headscope.run.progress import Meter
from headscope.run.shard import FREED, measure_shard, prepare


@dataclass(frozen=True, slots=True)
class Task:
    """A shard to measure, with documents to run alone or to exclude, because workers died."""

    shard: Shard
    path: Path
    key: ShardKey
    alone: frozenset[int] = frozenset()
    excluded: frozenset[int] = frozenset()


def serve(pipe: Connection) -> None:
    """Run a worker, which first receives the model and the plan."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    model: Model
    plan: Plan
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionError):
        try:
            model, plan = pipe.recv()
            torch.set_num_threads(plan.settings.threads)
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
                write_sums(task.path, measured, task.key)
                pipe.send(("done", measured.report.tokens))
        except (EOFError, BrokenPipeError, ConnectionError):
            raise
        except BaseException as error:
            pipe.send(("error", _sendable(error)))


def _sendable(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, otherwise one with the same message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


DEATHS_BEFORE_BLAME = 3
MAX_EXCLUDED = 20
WRITE_ATTEMPTS = 3
SILENCE = 60.0
"""Seconds without a message after which a worker is reported."""


def run_here(
    model: Model, plan: Plan, shards: Iterator[Shard], store: ShardStore, meter: Meter
) -> None:
    """Measure in this process, one shard after the other."""
    n_before = torch.get_num_threads()
    torch.set_num_threads(plan.settings.threads)
    try:
        prepare(plan)
        for shard in shards:
            measured = measure_shard(
                model, plan, shard, announce=lambda _, done: meter.reach("here", done)
            )
            for attempt in range(1, WRITE_ATTEMPTS + 1):
                try:
                    store.add(shard.id, measured)
                    break
                except OSError:
                    if attempt == WRITE_ATTEMPTS:
                        raise
                    time.sleep(attempt)
            meter.forget("here")
            meter.advance(*shard.amount(measured.report.tokens))
    finally:
        torch.set_num_threads(n_before)
    FREED.give_back()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    documents: list[int] = field(default_factory=list)
    is_ready: bool = False
    last_message: float = field(default_factory=time.monotonic)
    """Time of the last message or report."""


class _Pool:
    def __init__(self, model: Model, plan: Plan, store: ShardStore, meter: Meter) -> None:
        self._model, self._plan, self._store, self._meter = model, plan, store, meter
        self._workers: list[_Worker] = []
        self._again: deque[Task] = deque()
        self._deaths: Counter[int] = Counter()
        self._failed_writes: Counter[int] = Counter()
        self._excluded = 0
        self._killed_early = 0

    def run(self, shards: Iterator[Shard], n: int) -> None:
        try:
            self._meter.say(f"starting {n} workers")
            for _ in range(n):
                self._workers.append(self._start())
            while self._dispatch(shards):
                for worker in self._waiting():
                    self._hear(worker)
                self._store.merge()
        finally:
            self._stop()

    def _start(self) -> _Worker:
        ours, theirs = Pipe()
        try:
            content = ForkingPickler.dumps((self._model, self._plan))
        except Exception as error:  # pickling a live model can fail in many ways
            raise InputError(
                f"The model cannot be sent to worker processes ({type(error).__name__}: "
                f"{error}). Run with workers=1."
            ) from error
        process = start_process(serve, theirs, needs_main=b"__main__" in bytes(content))
        theirs.close()
        with contextlib.suppress(OSError):  # the worker died; reading its pipe will show that
            ours.send_bytes(content)
        return _Worker(process, ours)

    def _dispatch(self, shards: Iterator[Shard]) -> bool:
        """Assign tasks to idle workers; return whether any worker is busy or starting."""
        for worker in self._workers:
            if worker.task is None and worker.is_ready:
                if self._again:
                    task = self._again.popleft()
                elif (shard := next(shards, None)) is not None:
                    task = Task(shard, self._store.path(shard.id), self._store.key(shard.id))
                else:
                    continue
                worker.task, worker.documents = task, []
                worker.last_message = time.monotonic()
                # If it died while idle, reading its pipe shows that.
                with contextlib.suppress(OSError):
                    worker.pipe.send(task)
        return any(worker.task is not None or not worker.is_ready for worker in self._workers)

    def _waiting(self) -> list[_Worker]:
        by_pipe = {worker.pipe: worker for worker in self._workers}
        ready = [by_pipe[pipe] for pipe in wait(list(by_pipe), SILENCE) if pipe in by_pipe]
        for worker in self._workers:
            is_silent = time.monotonic() - worker.last_message >= SILENCE
            if is_silent and worker not in ready and (worker.task or not worker.is_ready):
                worker.last_message = time.monotonic()
                pid = worker.process.pid
                hint = "It may be busy with a long batch;"
                if is_stopped(pid):
                    hint = f"It is stopped: `kill -CONT {pid}` resumes it,"
                task = worker.task
                doing = f"at documents {worker.documents}" if task else "while it was starting"
                warn(
                    f"Worker {pid} has not answered for {SILENCE:.0f} seconds {doing}. {hint} "
                    f"`kill -KILL {pid}` replaces it."
                )
        return ready

    def _hear(self, worker: _Worker) -> None:
        worker.last_message = time.monotonic()
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            self._handle_death(worker)
            return
        if kind == "ready":
            worker.is_ready = True
        elif kind == "at":
            worker.documents, done = content
            self._meter.reach(worker, done)
        elif kind == "done":
            assert worker.task is not None
            shard, worker.task = worker.task.shard, None
            self._meter.forget(worker)
            self._meter.advance(*shard.amount(content))
        elif isinstance(content, OSError) and self._may_retry(worker):
            worker.process.join()
            self._replace(worker)
        else:
            raise content

    def _may_retry(self, worker: _Worker) -> bool:
        """May the shard be run again after a failed write (a full disk)?"""
        if worker.task is None:
            return False
        self._failed_writes[worker.task.shard.id] += 1
        n_failed = self._failed_writes[worker.task.shard.id]
        if n_failed < WRITE_ATTEMPTS:
            time.sleep(n_failed)
            self._again.append(worker.task)
        return n_failed < WRITE_ATTEMPTS

    def _handle_death(self, worker: _Worker) -> None:
        worker.process.join()
        code = worker.process.exitcode
        was_killed = code is not None and code < 0
        if not worker.is_ready:
            self._killed_early += was_killed
            if was_killed and self._killed_early <= DEATHS_BEFORE_BLAME:
                self._replace(worker)
                return
            raise HeadscopeError(
                f"A worker ended while it was starting (exit code {code}). In a script, call "
                'analyze under `if __name__ == "__main__":`, and keep metrics of your own in a '
                "module that workers can import; or run with workers=1."
            )
        task = worker.task
        if task is not None:
            self._again.append(self._next_attempt(task, worker.documents))
            self._meter.say(
                f"A worker died (exit code {code}) at shard {task.shard.id}; running it again."
            )
        self._replace(worker)

    def _next_attempt(self, task: Task, documents: list[int]) -> Task:
        """Return the task after a worker died: with suspect documents alone, or excluded."""
        shard_id = task.shard.id
        self._deaths[shard_id] += 1
        if self._deaths[shard_id] < DEATHS_BEFORE_BLAME:
            return task
        self._deaths[shard_id] = DEATHS_BEFORE_BLAME - 2  # one more attempt after each step
        if len(documents) != 1:
            return replace(task, alone=task.alone | frozenset(documents))
        self._excluded += 1
        if self._excluded > MAX_EXCLUDED:
            raise HeadscopeError(
                f"Workers died at {self._excluded} documents, each run alone. The documents are "
                "probably not the cause. Most likely there is too little memory: use fewer workers "
                "or smaller batches (batch_tokens)."
            )
        return replace(task, excluded=task.excluded | frozenset(documents))

    def _replace(self, worker: _Worker) -> None:
        self._meter.forget(worker)
        worker.pipe.close()
        self._workers[self._workers.index(worker)] = self._start()

    def _stop(self) -> None:
        try:
            for worker in self._workers:
                if worker.task is None and worker.is_ready:
                    with contextlib.suppress(OSError):
                        worker.pipe.send(None)
                else:
                    worker.process.terminate()
            for worker in self._workers:
                worker.process.join(5)
        finally:  # also after a second Ctrl-C
            for worker in self._workers:
                if worker.process.is_alive():
                    worker.process.kill()
                    worker.process.join()
                worker.pipe.close()


def run_workers(
    model: Model, plan: Plan, shards: Iterator[Shard], store: ShardStore, meter: Meter, n: int
) -> None:
    """Measure in n worker processes."""
    _Pool(model, plan, store, meter).run(shards, n)


def is_stopped(pid: int | None) -> bool:
    """Has a signal stopped the process? Only known on Linux."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] in (["T"], ["t"])
