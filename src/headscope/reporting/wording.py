"""Numbers in words: values with their intervals, heads and lists as people read them.

A sentence is a list of parts: text, heads (which the page makes into buttons) and figures
(which it makes into links). `plain` gives the same sentence as text alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

Part = str | dict[str, Any]
Sentence = list[Part]
SPACE = "\u00a0"


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its 95 % interval, where it has one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def is_known(self) -> bool:
        """Is there a value at all?"""
        return math.isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        """Is there an interval?"""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def is_above(self, other: float) -> bool:
        """Is all of the interval above a number? Never without an interval."""
        return self.has_interval and math.isfinite(other) and self.low > other

    def is_below(self, other: float) -> bool:
        """Is all of the interval below a number?"""
        return self.has_interval and math.isfinite(other) and self.high < other

    def is_apart(self, other: Measured) -> bool:
        """Do the two intervals not overlap?"""
        both = self.has_interval and other.has_interval
        return both and (self.low > other.high or other.low > self.high)


def measured(data: xr.Dataset, name: str, **labels: Any) -> Measured:
    """One value of a dataset with its interval; NaN where the dataset has it not."""
    if name not in data:
        return Measured(math.nan)
    value = float(data[name].sel(labels))
    if f"{name}_interval" not in data:
        return Measured(value)
    low, high = (float(x) for x in data[f"{name}_interval"].sel(labels).values)
    return Measured(value, low, high)


def with_interval(found: Measured, units: str = "") -> str:
    """`43.1 % [42.0–44.2]` for shares, `5.44 tokens [5.10–5.80]` for others."""
    is_share = is_share_of(units)
    digits = 1 if is_share else _digits(found.value)
    factor = 100 if is_share else 1
    shown = (
        f"{_signed(found.value * factor, digits)}{SPACE}%"
        if is_share
        else _named(_signed(found.value, digits), units)
    )
    if not found.has_interval:
        return shown
    low, high = (_signed(x * factor, digits) for x in (found.low, found.high))
    dash = " to " if "−" in low + high else "–"
    return f"{shown} [{low}{dash}{high}]"


def is_share_of(units: str) -> bool:
    """Is a number with these units a share, to be printed in percent?"""
    return units.startswith("share") or units in ("accuracy", "UAS")


def head(subject: int, layer: int, number: int) -> Part:
    """A head, which the page makes into a button."""
    return {"head": [subject, int(layer), int(number)]}


def figure(name: str) -> Part:
    """A figure, which the page makes into a link: ` (Fig. 3)`."""
    return {"figure": name}


def sentence(*parts: Part | Sequence[Part]) -> Sentence:
    """Parts in a row; lists of parts are laid flat."""
    found: Sentence = []
    for part in parts:
        found.extend([part] if isinstance(part, str | dict) else part)
    return found


def listed(items: Sequence[Part | Sequence[Part]]) -> Sentence:
    """`a, b and c`."""
    found: Sentence = []
    for number, item in enumerate(items):
        if number:
            found.append(" and " if number == len(items) - 1 else ", ")
        found.extend(sentence(item))
    return found


def count_of(n: int, noun: str) -> str:
    """`one head`, `3 heads`."""
    return f"one {noun}" if n == 1 else f"{n:,} {noun}s"


def plain(parts: Iterable[Part]) -> str:
    """A sentence without its links."""
    shown = []
    for part in parts:
        if isinstance(part, str):
            shown.append(part)
        elif "head" in part:
            _, layer, number = part["head"]
            shown.append(f"L{layer} H{number}")
    return "".join(shown).replace(SPACE, " ")


def _named(number: str, units: str) -> str:
    return f"{number}{SPACE}{units}" if units else number


def _digits(value: float) -> int:
    size = abs(value)
    if size >= 100:
        return 0
    if size >= 10:
        return 1
    return 2 if size >= 0.1 or size == 0 else 3


def _signed(value: float, digits: int) -> str:
    shown = f"{value:.{digits}f}"
    return shown.lstrip("-") if float(shown) == 0 else shown.replace("-", "−")
