"""How worker processes start: as forks of a server that has everything imported.

A process that is started from nothing imports torch and transformers for seconds. The server does
that once, beside whatever this process does meanwhile, and each worker is a fork of it. The server
is ours alone (others' use of `multiprocessing` is not touched), runs no operation of torch, because
threads do not survive a fork, and is stopped when the run is over. Where there is no such server,
workers are spawned.

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
from multiprocessing import context, spawn
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.forkserver import ForkServer

PRELOADED = ["headscope.run.engines.preloaded"]
FROM_BYTES = 64_000
"""A file of so many bytes may be worth several workers: a server is started for it at once."""

_server: ForkServer | None = None


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warm_up(source: object, workers: int | None) -> None:
    """Start the server now if a run over this source is likely to want several workers.

    Args:
        source: a corpus, or the name of a file or folder; anything else is not looked at.
        workers: how many were asked for; None if the size of the job decides.
    """
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
    """Start a process that runs `target(pipe)`, forked from the server or else spawned.

    Args:
        target: a function that can be imported.
        pipe: what it is called with.
        needs_main: does what it will be sent refer to the main module? Otherwise that is not
            imported, so that a script need not hide its last lines behind `__name__`.
    """
    with sigint_held():
        if _start_server() is not None:
            process: BaseProcess = _Forked(target=target, args=(pipe,), daemon=True)
            process.needs_main = needs_main  # type: ignore[attr-defined]
            try:
                process.start()
                return process
            except (OSError, EOFError):  # the server is gone
                stop_server()
        process = context.SpawnProcess(target=target, args=(pipe,), daemon=True)
        process.start()
        return process


def stop_server() -> None:
    """End the server, if it runs. Workers that are left keep running."""
    global _server
    server, _server = _server, None
    pid = getattr(server, "_forkserver_pid", None)
    if server is None or pid is None:
        return
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        server._stop()  # type: ignore[attr-defined]


@contextmanager
def sigint_held() -> Iterator[None]:
    """Within the block Ctrl-C waits. A process that is started here begins with SIGINT blocked, so
    that Ctrl-C does not end it with a traceback before it can say that the signal is not for it.
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
    """The server, started if need be; None where there is none (forks are safe on Linux only)."""
    global _server
    if sys.platform != "linux":
        return None
    if _server is None:
        from multiprocessing.forkserver import ForkServer

        _server = ForkServer()
        _server.set_forkserver_preload(PRELOADED)
    try:
        with sigint_held():
            _server.ensure_running()
    except OSError:
        _server = None
    return _server


class _Forked(BaseProcess):
    """A process that is a fork of our server."""

    _start_method = "forkserver"
    needs_main = False

    @staticmethod
    def _Popen(process: BaseProcess) -> object:  # noqa: N802  # multiprocessing's name
        return _popen_class()(process)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _popen_class() -> type:
    """How multiprocessing itself starts a process by a fork server, with our server in place of the
    one that all of this process share.
    """
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
                raise EOFError("the server is gone")
            self.sentinel, writing = _server.connect_to_new_process(self._fds)  # type: ignore[attr-defined]
            kept = os.dup(writing)  # by it the worker notices that this process has ended
            self.finalizer = util.Finalize(self, _close, (kept, self.sentinel))
            with os.fdopen(writing, "wb", closefd=True) as file:
                file.write(buffer.getbuffer())
            self.pid = forkserver.read_signed(self.sentinel)

    return Popen
