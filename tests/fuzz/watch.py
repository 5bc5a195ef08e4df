"""Run fuzz bodies in a worker process that the test watches from outside.

An alarm inside a process cannot fire while C code loops, and a crash ends the tests with it. One
worker runs many cases. A worker that dies, or is silent for more than 20 seconds, is replaced, and
the case fails. The input of a failed case is saved: `python -m tests.fuzz.watch FILE` repeats it.
"""

from __future__ import annotations

import atexit
import faulthandler
import multiprocessing
import pickle
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.hostile import LONGEST, TRIES, count

START_SECONDS = 120.0
"""Time in which a worker starts, imports the body of a case and sets it up."""

MAX_FAILURES = 10


class Failure(AssertionError):
    """A case that crashed, was silent for too long, or raised an exception."""


class Watch:
    """Worker process and the outcomes of its cases, by kind of input."""

    def __init__(self, longest: float = LONGEST) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self._failures: list[str] = []
        self._longest = longest
        self._process: Any = None
        self._connection: Connection | None = None

    def __call__(
        self,
        kind: str,
        body: Callable[..., str],
        *args: Any,
        case: str = "",
        setup: Callable[[], object] = str,
        **options: Any,
    ) -> str:
        """Call `body` in the worker, after `setup`, and return its outcome.

        Raises:
            Failure: the worker crashed or was silent, or `body` raised. A failure of a named
                `case` is kept for `seeds`.
        """
        packed = pickle.dumps((setup, body, args, options))
        is_sound, outcome = self._answer(packed)
        counts = self.outcomes.setdefault(kind, Counter())
        counts[outcome if is_sound else "FAILED"] += 1
        if not is_sound:
            message = f"{kind}, {case or 'case'} saved in {_save(kind, packed)}: {outcome}"
            if not case:
                raise Failure(message)
            self._failures.append(message)
        return outcome

    def seeds(self, kind: str) -> Iterator[int]:
        """Yield the seeds of a kind of input: the same in each short run, others in a long one.

        Raises:
            Failure: cases failed that had a name, after the last seed or the tenth failure.
        """
        self._failures.clear()
        first = random.SystemRandom().randrange(10**9) if TRIES else 0
        for seed in range(first, first + count(kind)):
            yield seed
            if len(self._failures) >= MAX_FAILURES:
                break
        if self._failures:
            raise Failure("\n\n".join(self._failures))

    def stop(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    def _answer(self, packed: bytes) -> tuple[bool, str]:
        connection = self._connection or self._start()
        try:
            connection.send_bytes(packed)
            if connection.poll(START_SECONDS):
                connection.recv()
            if connection.poll(self._longest):
                found: tuple[bool, str] = connection.recv()
                return found
            reason = f"silent for {self._longest:.0f} seconds"
        except (EOFError, OSError):
            self._process.join()
            reason = f"the process crashed (exit code {self._process.exitcode})"
        self.stop()
        return False, reason

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        assert ours.poll(START_SECONDS)
        ours.recv()
        self._connection = ours
        return ours


watch = Watch()
atexit.register(watch.stop)


def _serve(connection: Connection) -> None:
    """Answer cases until the test ends. Warnings are errors, as in all tests."""
    import headscope  # noqa: F401

    faulthandler.enable()
    connection.send("ready")
    while True:
        try:
            setup, body, args, options = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        setup()
        connection.send("set up")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", r"(?s).*The rest of the file is left out")
                answer = True, body(*args, **options)
        except BaseException:
            answer = False, traceback.format_exc()
        connection.send(answer)


def _save(kind: str, packed: bytes) -> Path:
    folder = Path(tempfile.gettempdir()) / "headscope-fuzz"
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(
        dir=folder, prefix=f"{kind.replace(' ', '-')}-", suffix=".pickle", delete=False
    ) as file:
        file.write(packed)
    return Path(file.name)


if __name__ == "__main__":
    _, body, args, options = pickle.loads(Path(sys.argv[1]).read_bytes())
    print(body(*args, **options))
