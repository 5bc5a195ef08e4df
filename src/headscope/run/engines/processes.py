"""Start worker processes as forks of a server that has imported everything.

A new process needs seconds to import torch and transformers. The server does that once, in
parallel, and each worker is a fork of it. The server belongs to headscope: other uses of
`multiprocessing` are not affected. It runs no torch operation, because threads do not survive a
fork. It is stopped after the run. On systems without such a server, workers are spawned.

This module imports nothing heavy: a command starts the server before it imports torch itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context, resource_tracker, spawn
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.forkserver import ForkServer

PRELOADED = ["headscope.run.engines.preloaded"]
FROM_BYTES = 64_000
"""Minimum bytes of a file for which the server is started at once."""

_server: ForkServer | None = None


def n_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warm_up(source: object, workers: int | None) -> None:
    """Start the server now if a run over this corpus or file probably needs several workers."""
    if workers == 1 or n_cores() == 1:
        return
    paths = getattr(getattr(source, "source", None), "paths", None) or [source]
    n_bytes = 0
    for path in paths:
        with contextlib.suppress(OSError, TypeError, ValueError):
            file = Path(path)
            n_bytes += file.stat().st_size if file.is_file() else 0
    if workers is not None or n_bytes >= FROM_BYTES:
        _start_server()


def start_process(target: Callable[..., None], pipe: Connection, needs_main: bool) -> BaseProcess:
    """Start a process that runs `target(pipe)`, forked from the server or else spawned. The main
    module is imported only if messages refer to it (`needs_main`): scripts need no guard.
    """
    with sigint_held():
        if _start_server() is not None:
            process: BaseProcess = _Forked(target=target, args=(pipe,), daemon=True)
            process.needs_main = needs_main  # type: ignore[attr-defined]
            try:
                process.start()
                return process
            except (OSError, EOFError):  # the server has ended
                stop_server()
        process = context.SpawnProcess(target=target, args=(pipe,), daemon=True)
        process.start()
        return process


def stop_server() -> None:
    """End the server, if it runs. Running workers continue."""
    global _server
    server, _server = _server, None
    pid = getattr(server, "_forkserver_pid", None)
    if server is not None and pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            server._stop()  # type: ignore[attr-defined]


@contextmanager
def sigint_held() -> Iterator[None]:
    """Within the block Ctrl-C waits. A process started here begins with SIGINT blocked. Otherwise
    Ctrl-C could end it with a traceback before it ignores the signal.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_server() -> ForkServer | None:
    """Return the server, started if necessary; None without one (forks are safe on Linux only)."""
    global _server
    if sys.platform != "linux":
        return None
    if _server is None:
        from multiprocessing.forkserver import ForkServer

        _server = ForkServer()
        _server.set_forkserver_preload(PRELOADED)
    try:
        # Starting the tracker unblocks SIGINT in Python 3.11, so it must run before the server.
        resource_tracker.ensure_running()
        with sigint_held():
            _server.ensure_running()
    except OSError:
        _server = None
    return _server


class _Forked(BaseProcess):
    _start_method = "forkserver"
    needs_main = False

    @staticmethod
    def _Popen(process: BaseProcess) -> object:  # noqa: N802  # multiprocessing's name
        return _popen_class()(process)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _popen_class() -> type:
    """Return multiprocessing's class for fork servers, changed to use our server."""
    from multiprocessing import forkserver, popen_forkserver, reduction, util

    class Popen(popen_forkserver.Popen):
        def _launch(self, process: BaseProcess) -> None:
            prepared = spawn.get_preparation_data(process.name)
            if not getattr(process, "needs_main", True):
                for name in ("init_main_from_name", "init_main_from_path"):
                    prepared.pop(name, None)
            buffer = io.BytesIO()
            context.set_spawning_popen(self)
            try:
                reduction.dump(prepared, buffer)
                reduction.dump(process, buffer)
            finally:
                context.set_spawning_popen(None)
            if _server is None:
                raise EOFError("the server has ended")
            self.sentinel, writing = _server.connect_to_new_process(self._fds)  # type: ignore[attr-defined]
            kept = os.dup(writing)  # when it closes, the worker sees that this process has ended
            self.finalizer = util.Finalize(self, _close, (kept, self.sentinel))
            with os.fdopen(writing, "wb", closefd=True) as file:
                file.write(buffer.getbuffer())
            self.pid = forkserver.read_signed(self.sentinel)

    return Popen
