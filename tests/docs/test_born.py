"""The gallery's table of heads that are born is that of the study's file."""

from __future__ import annotations

import csv
import re

from studies.born import DOCS, FILE, Row, fallen, risen

PAGE = DOCS.parent / "gallery.md"


def test_the_table_is_that_of_the_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = re.search(r"<!-- born: measured -->(.*?)<!-- end of born -->", text, re.DOTALL)
    assert table is not None
    shown = [[int(n) for n in re.findall(r"\d+", row)] for row in table[1].splitlines()[4:]]
    with FILE.open(encoding="utf-8") as file:
        rows: list[Row] = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    seeds = sorted({int(row["seed"]) for row in rows})
    expected = []
    for seed in seeds:
        own = [row for row in rows if row["seed"] == seed]
        previous, induction = risen(own, "previous_L0"), risen(own, "induction_L1")
        expected.append([seed, previous, induction, fallen(own)])
    assert [row for row in shown if row] == expected
    assert all(a < b <= c for _, a, b, c in expected)  # what the text says
    assert len(seeds) == 5


def test_a_rise_by_hand() -> None:
    values = [0.0, 0.6, 0.2, 0.5, 0.9, 1.0]
    rows: list[Row] = [{"step": 2 * n, "score": value} for n, value in enumerate(values)]
    assert risen(rows, "score") == 6
