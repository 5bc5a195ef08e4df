"""How to show a variable: what its metric wrote beside its values, read in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

SPACE = "\u00a0"
LABELS: Mapping[str, Mapping[str, str]] = {
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
"""Labels of axes, and what people call them."""
LAST = 1 << 20
CURE = "cut long documents (max_tokens), or take as many sentences of each"
"""Where one document dominates a sum."""
METHOD = (
    "delete-one jackknife over parts, Bell-McCaffrey degrees of freedom, Hall's skewness and what "
    "few documents hide of it, none of shares within 0.001 of 1"
)
"""How intervals are made, as their attribute says; intervals made otherwise are made again when a
result is opened."""


@dataclass(frozen=True, slots=True)
class VariableDisplay:
    """A variable in words.

    Attributes:
        title: what a heading says.
        short_title: for narrow columns.
        units: what it is counted in.
        format: as Python formats numbers; `.1%` for shares.
        equation: in LaTeX; empty where there is none.
        paper: where it was defined.
        meaning: one sentence for a researcher.
        order: where it stands among others in lists.
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
        """Is it printed in percent?"""
        return self.format.endswith("%")

    def show(self, value: float) -> str:
        """A value with its units: `43.1 %`, `5.44 tokens`."""
        if not math.isfinite(value):
            return "–"
        number = f"{value:{self.format}}".replace("-", "−")
        if self.is_share:
            return f"{number.removesuffix('%')}{SPACE}%"
        return f"{number}{SPACE}{self.units}" if self.units else number


def display_of(array: xr.DataArray | xr.Variable, name: str | None = None) -> VariableDisplay:
    """What a variable's attributes say of it; its name where they say nothing. The title also says
    that attention was weighted by norms, where it was.
    """
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


def _format(given: object, usual: str) -> str:
    """What a file says numbers are formatted by, if Python can."""
    try:
        f"{0.5:{given}}"
    except (ValueError, TypeError):
        return usual
    return usual if given is None else str(given)


def _order(given: object) -> int:
    try:
        return int(str(given))
    except ValueError:
        return LAST


def is_shown(array: xr.DataArray | xr.Variable) -> bool:
    """Does it have a heading of its own? Counts, intervals and means stand beside others."""
    return "title" in array.attrs


def label_of(dim: str, label: object) -> str:
    """A label of an axis as people call it."""
    return LABELS.get(dim, {}).get(str(label), str(label))
