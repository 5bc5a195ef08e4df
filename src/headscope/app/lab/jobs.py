"""Queue of model runs: one thread, with a deadline and cancellation.

A thread cannot be killed. The tap therefore raises at the next layer once a job is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from typing import TypeVar

from headscope.attention import Attention
from headscope.errors import HeadscopeError
from headscope.model.model import Model

T = TypeVar("T")
POLL_SECONDS = 0.05
"""Seconds between checks that the reader is still connected."""
FIRST_ESTIMATE = 1.0
"""Assumed seconds of a request before the first is measured."""


class QueueFull(HeadscopeError):
    """Too many requests are waiting; the next attempt is due in `wait` seconds."""

    def __init__(self, message: str, wait: int) -> None:
        super().__init__(message, wait)
        self.wait = wait

    def __str__(self) -> str:
        return str(self.args[0])


class DeadlineExceeded(HeadscopeError):
    """A request exceeded its time limit."""


class Cancelled(Exception):
    """The reader left or the lab closes: ends a run from inside."""


class JobQueue:
    """Runs jobs one after the other in one thread; runs of `models` can be cancelled."""

    def __init__(self, models: Iterable[Model], waiting: int) -> None:
        self._models = list(models)
        self._max_waiting = waiting
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headscope-lab")
        self._mean_seconds = FIRST_ESTIMATE
        self._stops: set[threading.Event] = set()

    async def run(
        self, job: Callable[[], T], is_gone: Callable[[], Awaitable[bool]], seconds: float
    ) -> T:
        """Run a job in the queue's thread and return its value.

        Args:
            job: function to run.
            is_gone: whether the reader has left.
            seconds: time limit of the job.

        Raises:
            QueueFull: too many jobs are waiting.
            DeadlineExceeded: the job exceeded `seconds`.
            Cancelled: the reader has left.
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
                    await asyncio.wait({future}, timeout=POLL_SECONDS)
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
                if not future.cancelled():
                    future.exception()  # asked for, so that asyncio does not report it
            self._mean_seconds = 0.8 * self._mean_seconds + 0.2 * (loop.time() - began)
            return answer

    def close(self) -> None:
        """Cancel all jobs."""
        for stop in self._stops:
            stop.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def _place(self, is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """Wait for the model; raise Cancelled if the reader leaves meanwhile."""
        if self._waiting >= self._max_waiting:
            wait = max(1, round(self._mean_seconds * self._max_waiting))
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
        def check(_: Attention) -> None:
            if stop.is_set():
                raise Cancelled

        with warnings.catch_warnings(), ExitStack() as stack:
            for model in self._models:  # cancelled at the next layer of any model
                stack.enter_context(model.tapped(check, returns_weights=False))
            warnings.simplefilter("ignore")  # the server's reader does not see them
            return job()
