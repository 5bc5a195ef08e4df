"""The traces a lab keeps: each reader's own, the latest of them, and no more than fit."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from headscope.app.lab.limits import Limits
from headscope.errors import HeadscopeError
from headscope.page.live_replies import LiveReplies
from headscope.results.trace import Trace


class Forgotten(HeadscopeError):
    """The lab does not keep a trace any more, or never had it."""


@dataclass(frozen=True)
class Kept:
    """What one request traced, and for whom."""

    reader: str
    replies: LiveReplies
    size: int


class Shelf:
    """Traces by their names, which nobody can guess; found only by the reader they are of."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def add(self, reader: str, traces: list[Trace]) -> str:
        """Keep traces for a reader; the oldest go."""
        name = secrets.token_urlsafe(12)
        size = sum(block.data.nbytes for trace in traces for block in trace.blocks.values())
        self._kept[name] = Kept(reader, LiveReplies(traces), size)
        of_reader = [key for key, kept in self._kept.items() if kept.reader == reader]
        for key in of_reader[: -self._limits.kept]:
            del self._kept[key]
        while len(self._kept) > 1 and self.size > self._limits.bytes_kept:
            self._kept.popitem(last=False)
        return name

    def find(self, reader: str, name: object) -> LiveReplies:
        """A reader's traces by name.

        Raises:
            Forgotten: they are not kept.
        """
        kept = self._kept.get(name) if isinstance(name, str) else None
        if kept is None or kept.reader != reader:
            raise Forgotten("The lab does not keep this text any more; show it once more.")
        self._kept.move_to_end(str(name))
        return kept.replies

    @property
    def size(self) -> int:
        """Bytes of all that is kept."""
        return sum(kept.size for kept in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)
