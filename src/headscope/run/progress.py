"""How far a run is, from its first second: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

FIRST_LINE = 2.0
MAX_BETWEEN_LINES = 30.0
"""Where stderr is no terminal, the first line comes after so many seconds, and the time to the next
doubles up to the second number."""


class Amount(NamedTuple):
    """Work that was done."""

    documents: int = 0
    tokens: int = 0
    characters: int = 0
    """By these the time that is left is told: long documents come first."""

    def __add__(self, other: object) -> Amount:
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(*(a + b for a, b in zip(self, other, strict=True)))


@contextmanager
def phase(name: str, shown: bool | None = None, stream: TextIO | None = None) -> Iterator[None]:
    """Within the block, say that this is under way: with a clock that runs, on a terminal; else in
    a line, where `shown` is True.
    """
    stream = stream or sys.stderr
    if stream.isatty() and shown is not False:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=stream), transient=True) as bar:
            bar.add_task(name, total=None)
            yield
        return
    if shown is True:
        print(name, file=stream, flush=True)
    yield


class Meter:
    """Counts documents. `shown=None` shows a bar where stderr is a terminal, else nothing;
    True also prints lines where it is not.

    Args:
        total: documents in all.
        done: of these, done in an earlier run.
        shown: whether to show anything.
        stream: where to.
        left: what is not done yet, if the characters are known.
    """

    def __init__(
        self,
        total: int,
        *,
        done: int = 0,
        shown: bool | None = None,
        stream: TextIO | None = None,
        left: Amount | None = None,
    ) -> None:
        self._stream = stream or sys.stderr
        self._total, self._before = total, done
        self._left = left or Amount(total - done)
        self._done = Amount()
        self._under_way: dict[object, Amount] = {}
        self._started = self._last = time.monotonic()
        self._interval = FIRST_LINE
        is_terminal = self._stream.isatty()
        self._prints = shown is True and not is_terminal
        self._bar: Progress | None = None
        if is_terminal and shown is not False:
            self._bar = self._new_bar()

    def advance(self, documents: int, tokens: int = 0, characters: int = 0) -> None:
        """So much more is done."""
        self._done += Amount(documents, tokens, characters)
        self._show()

    def reach(self, worker: object, amount: Amount) -> None:
        """So much is done of the shard that a worker is at; it is not kept yet."""
        self._under_way[worker] = amount
        self._show()

    def forget(self, worker: object) -> None:
        """The worker is through with its shard, or will begin it again."""
        self._under_way.pop(worker, None)

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

    def _new_bar(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        bar = Progress(
            TextColumn("measuring"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rates]}"),
            console=Console(file=self._stream),
        )
        self._task = bar.add_task("", total=self._total, completed=self._before, rates="")
        bar.start()
        return bar

    def _show(self) -> None:
        done = sum(self._under_way.values(), self._done)
        n = self._before + done.documents
        if self._bar is not None:
            rates = " · ".join(self._rates(done))
            self._bar.update(self._task, completed=n, rates=rates)
        elif self._prints and (
            time.monotonic() - self._last >= self._interval
            or (n >= self._total and not self._under_way)
        ):
            self._last = time.monotonic()
            self._interval = min(2 * self._interval, MAX_BETWEEN_LINES)
            share = n / self._total if self._total else 1.0
            told = (f"{n} of {self._total} documents ({share:.0%})", *self._rates(done))
            self._line(", ".join(told))

    def _rates(self, done: Amount) -> list[str]:
        """How fast it goes, and how long it will: `31.8/s`, `812 tokens/s`, `12 s left`."""
        seconds = time.monotonic() - self._started
        if not done.documents or not seconds:
            return []
        part = (
            done.characters / self._left.characters
            if self._left.characters and done.characters
            else done.documents / max(self._left.documents, 1)
        )
        rates = [f"{done.documents / seconds:,.1f}/s"]
        rates += [f"{done.tokens / seconds:,.0f} tokens/s"] if done.tokens else []
        return [*rates, f"{_clock(max(seconds / part - seconds, 0.0))} left"]

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _clock(seconds: float) -> str:
    """`12 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
