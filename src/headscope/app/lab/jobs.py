"""One model run at a time: a queue in front of one thread, with a deadline and a way to stop.

A thread cannot be killed. What runs is stopped by the tap, which raises at the next layer once
nobody waits for the answer any more.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TypeVar

from headscope.attention import Attention
from headscope.errors import HeadscopeError
from headscope.model.model import Model

T = TypeVar("T")
GLANCE = 0.05
"""Seconds between looks at whether the reader is still there."""
USUAL = 1.0
"""Seconds that a request is thought to take before any has."""


class QueueFull(HeadscopeError):
    """Too many requests wait already.

    Attributes:
        wait: seconds after which to ask again.
    """

    def __init__(self, message: str, wait: int) -> None:
        super().__init__(message, wait)
        self.wait = wait

    def __str__(self) -> str:
        return str(self.args[0])


class DeadlineExceeded(HeadscopeError):
    """A request took longer than it may."""


class Cancelled(Exception):
    """Nobody waits for the answer any more. Not an error: it ends a run from inside."""


class JobQueue:
    """Runs jobs one after the other, each in the same thread.

    Args:
        models: whose runs a job may be stopped in.
        waiting: how many jobs may wait.
    """

    def __init__(self, models: Iterable[Model], waiting: int) -> None:
        self._models = list(models)
        self._most = waiting
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headscope-lab")
        self._usual = USUAL
        self._stops: set[threading.Event] = set()

    async def run(
        self,
        job: Callable[[], T],
        is_gone: Callable[[], Awaitable[bool]],
        seconds: float,
    ) -> T:
        """What the job returns.

        Args:
            job: what to do, in the queue's thread.
            is_gone: has the reader left?
            seconds: after which the job is stopped.

        Raises:
            Busy: too many wait.
            Late: it took longer than that.
            Stopped: the reader has left.
        """
        async with self._place(is_gone):
            stop = threading.Event()
            self._stops.add(stop)
            loop = asyncio.get_running_loop()
            began = loop.time()
            future = loop.run_in_executor(self._thread, self._stoppable, job, stop)
            reason: HeadscopeError | Cancelled | None = None
            try:
                while not future.done():
                    await asyncio.wait({future}, timeout=GLANCE)
                    if reason is None and loop.time() - began > seconds:
                        reason = DeadlineExceeded(
                            f"The model did not finish within {seconds:g} seconds and was stopped. "
                            "Try a shorter text, or start the lab with a larger --seconds."
                        )
                        stop.set()
                    elif reason is None and not future.done() and await is_gone():
                        reason = Cancelled()
                        stop.set()
                answer = future.result()
            except Cancelled:
                raise (reason or Cancelled()) from None
            finally:
                stop.set()  # also where this task itself is cancelled
                self._stops.discard(stop)
                if not future.done():
                    await asyncio.wait({future})
            self._usual = 0.8 * self._usual + 0.2 * (loop.time() - began)
            return answer

    def close(self) -> None:
        """Stop what runs."""
        for stop in self._stops:
            stop.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def _place(self, is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """A turn; readers who leave while they wait give theirs up."""
        if self._waiting >= self._most:
            wait = max(1, round(self._usual * self._most))
            raise QueueFull(
                f"The model is busy and {self._waiting} requests wait; ask again in about "
                f"{wait} s.",
                wait,
            )
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            if await is_gone():
                raise Cancelled
            yield
        finally:
            self._turn.release()

    def _stoppable(self, job: Callable[[], T], stop: threading.Event) -> T:
        with self._watched(stop), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nobody reads them here
            return job()

    @contextmanager
    def _watched(self, stop: threading.Event) -> Iterator[None]:
        """Within the block, every layer of every model looks whether it should stop."""

        def look(_: Attention) -> None:
            if stop.is_set():
                raise Cancelled

        with ExitStack() as stack:
            for model in self._models:
                stack.enter_context(model.tapped(look, returns_weights=False))
            yield
