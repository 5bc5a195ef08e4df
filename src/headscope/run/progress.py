"""How far a run is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class Meter:
    """Counts documents. `shown=None` shows a bar where stderr is a terminal, else nothing;
    True also prints lines where it is not.
    """

    def __init__(
        self, total: int, *, done: int = 0, shown: bool | None = None, stream: TextIO | None = None
    ) -> None:
        self._stream = stream or sys.stderr
        self._total, self._done, self._start_done = total, done, done
        self._started = self._last = time.monotonic()
        is_terminal = self._stream.isatty()
        self._prints = shown is True and not is_terminal
        self._bar: Progress | None = None
        if is_terminal and shown is not False:
            self._bar = Progress(
                TextColumn("measuring"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("documents · {task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
            )
            self._task = self._bar.add_task("", total=total, completed=done, rate="")
            self._bar.start()

    def advance(self, documents: int) -> None:
        """So many more documents are done."""
        self._done += documents
        rate = self._rate()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, rate=f"{rate:.1f}/s")
        elif self._prints and (
            time.monotonic() - self._last >= SECONDS_BETWEEN_LINES or self._done >= self._total
        ):
            self._last = time.monotonic()
            left = (self._total - self._done) / rate if rate else 0.0
            self._line(
                f"{self._done} of {self._total} documents ({self._done / self._total:.0%}), "
                f"{rate:.1f} per second, {left:.0f} s left"
            )

    def say(self, text: str) -> None:
        """A line about something that happened."""
        if self._bar is not None:
            self._bar.console.print(text)
        elif self._prints:
            self._line(text)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def _rate(self) -> float:
        seconds = time.monotonic() - self._started
        return (self._done - self._start_done) / seconds if seconds else 0.0

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
