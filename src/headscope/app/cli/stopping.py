"""What Ctrl-C and SIGTERM do to a verb: one line that says how to go on, and the exit code that
shells expect (128 + the signal's number).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """The user, or the system, stopped the verb."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message or "stopped")
        self.exit_code = exit_code


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block SIGTERM stops the work as Ctrl-C does. Either one becomes `Stopped`, with
    what the library says about how to go on.

    typer would turn KeyboardInterrupt into a return value, and lose its message.
    """
    received = signal.SIGINT

    def terminate(number: int, frame: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if is_main else None
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped(str(stop), 128 + received) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)
