"""What changes with the kind of text: the question Vig & Belinkov left open."""

from __future__ import annotations

from dataclasses import dataclass

import xarray as xr

from headscope.results.result import Result
from studies.gum.estimates import Estimate, estimate, rests_of

__all__ = ["COLUMNS", "GenreRow", "genre_rows"]

COLUMNS = {
    "null attention": "null_share",
    "distance": "distance",
    "entropy": "entropy",
    "alignment / baseline": "",
}

METRICS = ("null_share", "distance", "entropy", "dep_alignment", "dep_baseline")


@dataclass(frozen=True)
class GenreRow:
    """One genre: how much text, and each column's estimate."""

    genre: str
    sentences: int
    tokens: float
    values: dict[str, Estimate]


def genre_rows(result: Result) -> list[GenreRow]:
    """A row for each genre, shortest sentences first."""
    rows = []
    for genre in result.groups:
        own = result.group(genre)
        data, rests = own.dataset, rests_of(own, METRICS)
        values = {title: estimate(data, rests, _statistic(name)) for title, name in COLUMNS.items()}
        n = int(data["tokens_per_document_count"])
        rows.append(GenreRow(genre, n, float(data["tokens_per_document"]), values))
    return sorted(rows, key=lambda row: row.tokens)


def _statistic(name: str):  # type: ignore[no-untyped-def]
    if name:
        return lambda d: d[name].mean()

    def ratio(d: xr.Dataset) -> float:
        alignment = d["dep_alignment"].sel(parent="either").mean()
        return float(alignment / d["dep_baseline"])

    return ratio
