"""What the study counted, one row for each rate: `docs/study/errors.csv`."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

__all__ = ["STORED", "Rate", "read_rates", "upper_bound", "write_rates"]

STORED = Path(__file__).parents[2] / "docs" / "study" / "errors.csv"
NORMAL = 1.6449
"""The 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Rate:
    """One rate; NaN where something was not asked."""

    question: str
    population: str
    variable: str
    documents: int
    """In each sample."""
    repetitions: int
    now: float
    bound: float = math.nan
    """The upper 95 % Monte Carlo bound of an error rate."""
    before: float = math.nan
    """By the rule of earlier versions."""
    effective: float = math.nan
    """The median of the effective number of documents."""
    width: float = math.nan
    """Of the intervals of now, relative to those of before."""
    heaviest: float = math.nan
    """The largest share of one document in what any head varies by, among all documents."""
    undecided: float = math.nan
    """The same as `now`, of the heads alone that no document decides among all documents."""
    undecided_bound: float = math.nan
    choosing: str = ""
    """`used`: procedures were chosen on this population; `held out`: they were settled before."""
    run: str = ""
    """When the run began that counted this, and the commit of its code."""


def upper_bound(outcomes: Sequence[float] | np.ndarray) -> float:
    """What a rate is at most, with 95 % confidence, from the outcomes of the repetitions.

    Of outcomes that are 0 or 1, Clopper & Pearson's (1934) bound; of shares, such as the false
    ones of a list, the mean and 1.64 standard errors.
    """
    values = np.asarray(outcomes, dtype=np.float64)
    n, mean = len(values), float(values.mean())
    if np.isin(values, (0.0, 1.0)).all():
        k = round(float(values.sum()))
        return 1.0 if k == n else float(special.betaincinv(k + 1, n - k, 0.95))
    return mean + NORMAL * float(values.std(ddof=1)) / math.sqrt(n)


def read_rates(path: Path = STORED) -> list[Rate]:
    """The rates of a file."""
    if not path.is_file():
        return []
    kinds = {field.name: field.type for field in fields(Rate)}
    read: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": _as_float}
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Rate(**{name: read[str(kinds[name])](text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def write_rates(rates: Iterable[Rate], path: Path = STORED, *, is_whole: bool = False) -> None:
    """Write rates; those of the same questions that the file had are replaced, or all of them."""
    new = list(rates)
    asked = {(rate.question, rate.population, rate.variable) for rate in new}
    old = [] if is_whole else read_rates(path)
    kept = [r for r in old if (r.question, r.population, r.variable) not in asked]
    rows = sorted(kept + new, key=lambda r: (r.question, r.population, r.variable, r.documents))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Rate)])
        writer.writerows([_text(value) for value in asdict(rate).values()] for rate in rows)


def _as_float(text: str) -> float:
    return float(text or "nan")


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return str(value)
