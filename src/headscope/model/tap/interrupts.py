"""Hold Ctrl-C while a model is changed or restored.

Python raises KeyboardInterrupt between any two instructions of the main thread, also inside the
code that sets or removes hooks. While something is attached, our handler looks where an interrupt
came. In functions marked `held`, and in contextlib on the way into and out of any context of
`headscope.model`, it waits. It is delivered at the next attention call, or once everything is
restored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

_HELD: set[CodeType] = set()
_MODEL = str(Path(__file__).parents[1]) + os.sep


class _Pending:
    handler: Callable[[int, FrameType | None], object] | None = None
    """Handler that ours replaced."""
    is_waiting = False


def held(function: Function) -> Function:
    """Mark a function: interrupts wait while it, or anything that it calls, runs."""
    _HELD.add(function.__code__)
    return function


@contextmanager
@held
def interrupts_held() -> Iterator[None]:
    """Within the block, interrupts of `held` functions wait."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is _handle or not callable(before):
        yield
        return
    _Pending.handler = before
    signal.signal(signal.SIGINT, _handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _handle:  # not replaced within the block
            signal.signal(signal.SIGINT, before)
        deliver()


def deliver() -> None:
    """Deliver an interrupt that waits, in the main thread."""
    if _Pending.is_waiting and threading.current_thread() is threading.main_thread():
        _Pending.is_waiting = False
        if _Pending.handler is not None:
            _Pending.handler(signal.SIGINT, sys._getframe())


def _handle(number: int, frame: FrameType | None) -> None:
    if _is_held(frame):
        _Pending.is_waiting = True
    elif _Pending.handler is not None:
        _Pending.handler(number, frame)


def _is_held(frame: FrameType | None) -> bool:
    if frame is not None and frame.f_code.co_filename == contextlib.__file__:
        generator = getattr(frame.f_locals.get("self"), "gen", None)
        if generator is not None and generator.gi_code.co_filename.startswith(_MODEL):
            return True
    while frame is not None and frame.f_code not in _HELD:
        if frame.f_code.co_filename == threading.__file__ and frame.f_code.co_name == "wait_for":
            return False  # it waits for another thread, and has changed nothing yet
        frame = frame.f_back
    return frame is not None
