"""What the tables of probes share: aligned text, CSV files, percentages with their bounds."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Container, Iterable, Mapping, Sequence

from headscope.atomic import atomic_path

Value = str | int | float | None


def aligned(lines: Sequence[Sequence[str]], left: Container[int] = (0,)) -> list[str]:
    """Lines of cells as text: columns `left` begin at one place, the others end at one."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def write_csv(
    path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Mapping[str, Value]]
) -> None:
    """Write rows; the file appears when it is complete."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def percent(value: float, bounds: tuple[float, float]) -> str:
    """`43.1 [42.0, 44.2]`; without the bounds where there are none."""
    shown = f"{100 * value:.1f}"
    if not math.isfinite(bounds[0]):
        return shown
    return f"{shown} [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"
