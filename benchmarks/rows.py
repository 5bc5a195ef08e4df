"""Rows of the one table that `make bench` prints.

A benchmark that is run alone prints what it always did; run by `python -m benchmarks`, its
`record` calls also reach the table.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["FILE", "Row", "read_rows", "record"]

FILE = "HEADSCOPE_BENCH_ROWS"
"""Environment variable: the file that rows are added to."""


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison within one run."""

    part: str
    """`views`, `corpus`, …"""
    what: str
    """What was done, on what."""
    ours: str
    """What headscope took, with its unit."""
    other: str
    """What it is compared with, and what that took."""
    ratio: float | None
    """How many times less (or more, where `is_cost`); None where the other never ended."""
    is_cost: bool = False
    """Is it an overhead, ours over theirs, rather than a gain, theirs over ours?"""
    bound: float | None = None
    """What we hold ourselves to."""

    @property
    def shown_ratio(self) -> str:
        """For people: `78 ×`, `1.07`."""
        if self.ratio is None:
            return "—"
        return f"{self.ratio:.2f}" if self.is_cost else f"{self.ratio:.3g} ×"

    @property
    def shown_bound(self) -> str:
        """For people: `≤ 1.10`, `≥ 60 ×`."""
        if self.bound is None:
            return ""
        return f"≤ {self.bound:.2f}" if self.is_cost else f"≥ {self.bound:g} ×"


def record(
    part: str,
    what: str,
    ours: str,
    other: str,
    ratio: float | None,
    *,
    is_cost: bool = False,
    bound: float | None = None,
) -> None:
    """Add a row to the table, if one is being made."""
    file = os.environ.get(FILE)
    if file:
        row = Row(part, what, ours, other, ratio, is_cost, bound)
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


def read_rows(file: Path) -> list[Row]:
    """The rows that benchmarks have added."""
    if not file.exists():
        return []
    return [Row(**json.loads(line)) for line in file.read_text("utf-8").splitlines()]
