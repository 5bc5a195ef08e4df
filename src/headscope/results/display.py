"""Display of variables: titles, units and formats from their attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

NO_BREAK_SPACE = "\u00a0"
LABEL_NAMES: Mapping[str, Mapping[str, str]] = {
    "parent": {
        "query": "the query is the parent",
        "key": "the key is the parent",
        "either": "either is the parent",
    },
    "offset": {"-1": "the previous token", "0": "itself", "1": "the next token"},
    "direction": {"dependent": "dependent → parent", "head": "parent → dependent"},
    "key_class": {"first": "the first token"},
    "gradient_class": {"first": "the first token"},
}
"""Display names of axis labels."""
LAST = 1 << 20
CURE = "cut long documents (max_tokens), or take as many sentences of each"
"""Remedy if one document dominates a sum."""
METHOD = (
    "delete-one jackknife over parts, Bell-McCaffrey degrees of freedom, Hall's skewness and what "
    "few documents hide of it, none of shares within 0.001 of 1"
)
"""Method of intervals, stored as an attribute."""


@dataclass(frozen=True, slots=True)
class VariableDisplay:
    """Display attributes of a variable.

    Attributes:
        title: heading.
        short_title: heading of narrow columns.
        units: units of the values.
        format: Python format of numbers; `.1%` for shares.
        equation: LaTeX, or an empty string.
        paper: paper that defines it.
        meaning: one sentence for a researcher.
        order: position in lists.
    """

    title: str
    short_title: str
    units: str
    format: str
    equation: str
    paper: str
    meaning: str
    order: int

    @property
    def is_share(self) -> bool:
        """True if values are printed in percent."""
        return self.format.endswith("%")

    def show(self, value: float) -> str:
        """Format a value with its units: `43.1 %`, `5.44 tokens`."""
        if not math.isfinite(value):
            return "–"
        number = f"{value:{self.format}}".replace("-", "−")
        if self.is_share:
            return f"{number.removesuffix('%')}{NO_BREAK_SPACE}%"
        return f"{number}{NO_BREAK_SPACE}{self.units}" if self.units else number


def display_of(array: xr.DataArray | xr.Variable, name: str | None = None) -> VariableDisplay:
    """Return the display of a variable from its attributes; the name is the default title."""
    attributes = array.attrs
    plain = str(name or getattr(array, "name", None) or "").replace("_", " ").capitalize()
    title = str(attributes.get("title", plain)) + ", by norm" * (attributes.get("over") == "norm")
    units = str(attributes.get("units", ""))
    usual = ".1%" if units.startswith("share") else ".2f"
    return VariableDisplay(
        title=title,
        short_title=str(attributes.get("short_title", title)),
        units=units,
        format=_format(attributes.get("format"), usual),
        equation=str(attributes.get("equation", "")),
        paper=str(attributes.get("paper", "")),
        meaning=str(attributes.get("long_name", "")),
        order=_order(attributes.get("order")),
    )


def _format(value: object, default: str) -> str:
    """Return a file's number format, or the default if Python rejects it."""
    try:
        f"{0.5:{value}}"
    except (ValueError, TypeError):
        return default
    return default if value is None else str(value)


def _order(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return LAST


def is_shown(array: xr.DataArray | xr.Variable) -> bool:
    """Return True if a variable has its own heading, unlike counts, intervals and means."""
    return "title" in array.attrs


def label_of(dim: str, label: object) -> str:
    """Return the display name of an axis label."""
    return LABEL_NAMES.get(dim, {}).get(str(label), str(label))
