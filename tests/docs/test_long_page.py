"""The page on long texts says what its study measured."""

from __future__ import annotations

from pathlib import Path

from studies.long_texts import LENGTHS, lines

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_what_the_study_measured() -> None:
    page = (DOCS / "guide" / "long.md").read_text(encoding="utf-8").splitlines()
    made = lines(DOCS / "study" / "long_texts.csv")
    assert len(made) > len(LENGTHS) + 8
    for line in made:
        assert line in page
