"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

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
"""Without a terminal: seconds before the first line; the interval doubles up to the maximum."""


class Amount(NamedTuple):
    """Amount of work."""

    documents: int = 0
    tokens: int = 0
    characters: int = 0
    """Basis of the remaining time, because long documents come first."""

    def __add__(self, other: object) -> Amount:
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(*(a + b for a, b in zip(self, other, strict=True)))

    def part(self, share: float) -> Amount:
        """Return a share of the tokens and characters; documents count when they are done."""
        return Amount(0, int(self.tokens * share), int(self.characters * share))


@contextmanager
def phase(name: str, shown: bool | None = None, stream: TextIO | None = None) -> Iterator[None]:
    """Within the block, show a phase: with a clock on a terminal, else in a line if `shown`."""
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
    """Counter of documents: `total` in all, `done` in an earlier run; `left` is the remaining work.
    `shown=None` shows a bar only on a terminal; True also prints lines elsewhere.
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
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("measuring"),
                BarColumn(bar_width=12),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rates]}"),
                console=Console(file=self._stream),
            )
            self._task = self._bar.add_task("", total=total, completed=done, rates="")
            self._bar.start()

    def advance(self, documents: int, tokens: int = 0, characters: int = 0) -> None:
        """Advance the bar by this amount."""
        self._done += Amount(documents, tokens, characters)
        self._show()

    def reach(self, worker: object, amount: Amount) -> None:
        """Show the work done in a worker's current shard, which is not written yet."""
        self._under_way[worker] = amount
        self._show()

    def forget(self, worker: object) -> None:
        """Drop a worker's current shard: it is finished or will be run again."""
        self._under_way.pop(worker, None)

    def say(self, text: str) -> None:
        """Print a line about an event."""
        if self._bar is not None:
            self._bar.console.print(text)
        elif self._prints:
            self._line(text)

    def close(self) -> None:
        """Restore the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        done = sum(self._under_way.values(), self._done)
        n: float = self._before + done.documents
        if not done.documents:  # the first may be a book: show its rows
            n += min(self._part(done), 0.99)
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
            parts = (f"{int(n)} of {self._total} documents ({share:.0%})", *self._rates(done))
            self._line(", ".join(parts))

    def _part(self, done: Amount) -> float:
        """Return the share of the work that is done: of characters, else of documents."""
        if self._left.characters and done.characters:
            return done.characters / self._left.characters
        return done.documents / max(self._left.documents, 1)

    def _rates(self, done: Amount) -> list[str]:
        """Return speed and remaining time: `31.8/s`, `812 tokens/s`, `12 s left`."""
        seconds, part = time.monotonic() - self._started, self._part(done)
        if not part or not seconds:
            return []
        rates = [f"{done.documents / seconds:,.1f}/s"] if done.documents else []
        rates += [f"{done.tokens / seconds:,.0f} tokens/s"] if done.tokens else []
        return [*rates, f"{_clock(max(seconds / part - seconds, 0.0))} left"]

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _clock(seconds: float) -> str:
    """`12 s`, `3 min 5 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
