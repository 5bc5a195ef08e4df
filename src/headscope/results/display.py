"""Display of variables (titles, units, formats from their attributes), and printed tables."""

from __future__ import annotations

import csv
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import xarray as xr

from headscope.atomic import atomic_path
from headscope.notebook import columns_table

if TYPE_CHECKING:
    import pandas as pd


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
LAST = 1 << 20
CURE = "cut long documents (max_tokens), or take as many sentences of each"
"""Remedy if one document dominates a sum."""
METHOD = (
    "delete-one jackknife over buckets of documents, Bell-McCaffrey degrees of freedom, Hall's "
    "skewness with a bound for few documents, none of shares within 0.001 of 1"
)
"""Method of intervals, stored as an attribute."""


@dataclass(frozen=True, slots=True)
class VariableDisplay:
    """Display attributes of a variable; `meaning` is one sentence for a researcher."""

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


def counted(n: int, noun: str = "document") -> str:
    """`1 document`, `2,001 documents`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def is_shown(array: xr.DataArray | xr.Variable) -> bool:
    """Return True if a variable has its own heading, unlike counts, intervals and means."""
    return "title" in array.attrs


def label_of(dim: str, label: object) -> str:
    """Return the display name of an axis label."""
    return LABEL_NAMES.get(dim, {}).get(str(label), str(label))


Value = str | int | float | None
LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"${character}$" for character in "<>|"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"−": "$-$", "±": r"$\pm$", "≥": r"$\ge$", "≤": r"$\le$", "→": r"$\rightarrow$"}
    | {"–": "--", "…": r"\ldots{}", "\u00a0": "~"}
)
"""Characters that LaTeX reads as commands or lacks in text fonts."""


class Table(ABC):
    """Rows with a title. A subclass provides `_cells`, and `records` for rows of another kind."""

    title: str
    rows: tuple[Any, ...]
    _row: ClassVar[type[Any] | None] = None
    """Class of the rows, if they are dataclasses."""
    _left: ClassVar[tuple[str, ...]] = ()
    """Headings of left-aligned columns, besides the first column."""
    _max_printed: ClassVar[int | None] = None
    """Rows that `print` shows; None for all."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def records(self) -> list[dict[str, Value]]:
        """Return the rows as plain values, one dict each."""
        return [asdict(row) for row in self.rows]

    @abstractmethod
    def _cells(self) -> list[list[str]]:
        """Return the headings, then the rows, as printed."""

    @property
    def _caption(self) -> str:
        return f"{self.title}. {self._note}"

    @property
    def _heading(self) -> str:
        return self.title

    @property
    def _note(self) -> str:
        return ""

    def _columns(self) -> list[str]:
        if self._row is not None:
            return [each.name for each in fields(self._row)]
        return list(next(iter(self.records()), ()))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `records` to a CSV file, which appears when complete. Accuracies are shares."""
        with (
            atomic_path(path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.DictWriter(file, self._columns(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records())

    def to_dataframe(self) -> pd.DataFrame:
        """Return `records` as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=self._columns())

    def to_latex(self) -> str:
        """Return a LaTeX table (package booktabs), with intervals as value [low, high]."""
        header, *rows = self._cells()
        return latex_table(header, rows, self._caption, self._left)

    def __str__(self) -> str:
        cells = self._cells()
        end = None if self._max_printed is None else 1 + self._max_printed
        lines = [self._heading, *(aligned(cells[:end], self._left) if cells[1:] else ())]
        if len(cells[:end]) < len(cells):
            lines.append(f"… and {len(cells) - len(cells[:end])} more: to_dataframe() has all.")
        return "\n".join([*lines, *filter(None, [self._note])])

    def _repr_html_(self) -> str:
        header, *rows = self._cells()
        return columns_table(". ".join(filter(None, [self._heading, self._note])), header, rows)


def latex_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, left: Container[str] = ()
) -> str:
    """Return a booktabs table with escaped cells; the first column and `left` are left-aligned."""
    alignment = "".join("l" if not i or name in left else "r" for i, name in enumerate(header))
    head, *body = [" & ".join(c.translate(LATEX) for c in row) + r" \\" for row in (header, *rows)]
    return "\n".join(
        [
            *(r"\begin{table}", r"\centering", rf"\caption{{{caption.translate(LATEX)}}}"),
            *(rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", head, r"\midrule", *body),
            *(r"\bottomrule", r"\end{tabular}", r"\end{table}", ""),
        ]
    )


def aligned(cells: Sequence[Sequence[str]], left: Container[str] = ()) -> list[str]:
    """Return lines of text; the first column and those headed `left` are left-aligned."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_left = [not i or name in left for i, name in enumerate(cells[0])]
    return [
        "  ".join(
            cell.ljust(width) if flag else cell.rjust(width)
            for cell, width, flag in zip(line, widths, is_left, strict=True)
        ).rstrip()
        for line in cells
    ]


def percent(value: float, low: float, high: float, sign: str = "") -> str:
    """Format shares as `43.1 [42.0, 44.2]`, without NaN bounds; `sign="+"` shows the signs."""
    form = f"{sign}.1f"
    text = f"{100 * value:{form}}"
    if math.isfinite(low):
        text += f" [{100 * low:{form}}, {100 * high:{form}}]"
    return text.replace("-", "−") if sign else text
