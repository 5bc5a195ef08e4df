"""Measure shards on a Ray cluster.

Ray Data streams shards to a pool of actors, each of which loads the model once. It holds back
shards that do not fit into memory and replaces actors that die. This process writes the same
checkpoint files as the local engine, so that each engine can resume the other's runs. Ray itself
runs in a process of its own: see `ray_driver`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from headscope.atomic import atomic_path
from headscope.errors import MissingExtra, warn
from headscope.model.model import Model
from headscope.run.checkpoint import ShardStore
from headscope.run.engines.processes import n_cores
from headscope.run.options import Execution
from headscope.run.plan import Plan, Shard
from headscope.run.progress import Meter

PATIENCE = 5.0
"""Seconds to wait for a cluster to answer, and for Ray to end."""
RAY_SILENCE = 120.0
"""Seconds without a shard after which the user is warned."""


def run_ray(
    model: Model,
    plan: Plan,
    shards: Callable[[], Iterator[Shard]],
    store: ShardStore,
    meter: Meter,
    execution: Execution,
) -> None:
    """Measure with actors of a Ray cluster, by default one a core.

    The address may be `auto` or `ray://host:10001`; without one Ray is started here, unless it
    runs already. `shards` is called in one of Ray's processes. Raises ConnectionError if the
    cluster does not answer or dies.
    """
    address = execution.address
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("pyarrow") is None:
        raise MissingExtra.of("ray", "ray", "engine='ray'")
    if address is not None:
        _check_reachable(address)
    import ray

    from headscope.run.engines.ray_driver import DONE, Row, Work, measure_on_ray

    workers = execution.workers or n_cores()
    work = Work(pickle.dumps(model), plan, shards, workers, address)

    def keep(row: Row) -> None:
        with atomic_path(store.path(row.id)) as temporary:
            temporary.write_bytes(row.states)
        store.merge()
        meter.advance(row.documents)

    if ray.is_initialized():  # by the caller
        for row in measure_on_ray(work):
            keep(row)
        return
    with tempfile.TemporaryFile() as log, _driver(log) as driver:
        assert driver.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the driver ended: reading shows that
            content: bytes = ray.cloudpickle.dumps(work)  # type: ignore[no-untyped-call, unused-ignore]
            driver.stdin.write(content)
            driver.stdin.flush()
        session, is_done = "", False
        try:
            for message in _messages(driver):
                if isinstance(message, Row):
                    keep(message)
                elif isinstance(message, BaseException):
                    raise message
                elif message is DONE:
                    is_done = True
                else:
                    session = str(message)
            if not is_done:
                raise ConnectionError(
                    f"Ray ended in the middle of the run (exit code {driver.wait()}), as it does "
                    f"when its node or its cluster dies.{_last_words(log)}"
                )
        finally:
            _end(driver)
            _sweep(session, address)


def _check_reachable(address: str) -> None:
    """Raise ConnectionError for an address without an answer: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # `auto` and `local`, which Ray resolves itself
        return
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"No Ray cluster answers at {address} ({error}). `ray status` on its head node says "
            "whether it runs."
        ) from None


@contextmanager
def _driver(log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the process that talks to Ray, without Ctrl-C, and end it after the block."""
    driver = subprocess.Popen(
        [sys.executable, "-c", "from headscope.run.engines.ray_driver import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
    )
    try:
        yield driver
    finally:
        _end(driver)
        for pipe in (driver.stdin, driver.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _messages(driver: subprocess.Popen[bytes]) -> Iterator[object]:
    """Yield the driver's messages until it ends; warn after a long silence."""
    messages: queue.SimpleQueue[object] = queue.SimpleQueue()
    ended = object()

    def read() -> None:
        assert driver.stdout is not None
        with contextlib.suppress(EOFError, pickle.UnpicklingError, OSError, ValueError):
            while True:
                messages.put(pickle.load(driver.stdout))
        messages.put(ended)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            message = messages.get(timeout=RAY_SILENCE)
        except queue.Empty:
            warn(
                f"Nothing has come back from Ray for {RAY_SILENCE:.0f} seconds: `ray status` says "
                "whether its cluster runs and has cores that are free."
            )
            continue
        if message is ended:
            return
        yield message


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    telling = [line for line in lines if "terminated" in line or "Failed to connect" in line]
    return f" Ray says: {telling[0].strip()[:200]}" if telling else ""


def _end(driver: subprocess.Popen[bytes]) -> None:
    if driver.poll() is None:
        driver.terminate()
        try:
            driver.wait(2 * PATIENCE)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()


def _sweep(session: str, address: str | None) -> None:
    """Kill the processes of a Ray that a dead driver had started here, by its session's folder."""
    if not session or address is not None:
        return
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if session.encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
