"""The study's page says what its judgements say, and its rule of judging is what it states."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from studies.gum import reproduced
from studies.gum.corpora import draw_per_document
from studies.gum.estimates import Estimate, decide, estimate
from studies.gum.finding import Judgement, settle

ROOT = Path(__file__).parents[2]
JUDGED = json.loads((ROOT / "docs" / "study" / "judgements.json").read_text(encoding="utf-8"))

REPLICATED = json.loads((ROOT / "docs" / "study" / "replication.json").read_text(encoding="utf-8"))

SAID = {
    # "What carries over": in both models
    ("structure", "baseline"): ("holds", "holds"),
    ("structure", "near"): ("holds", "holds"),
    ("structure", "from"): ("holds", "holds"),
    ("structure", "depth"): ("holds", "holds"),
    ("structure", "relations"): ("holds", "holds"),
    ("surface", "positional"): ("holds", "holds"),
    ("surface", "early"): ("holds", "holds"),
    ("surface", "broad"): ("holds", "holds"),
    ("surface", "layers"): ("holds", "holds"),
    # "What does not": SmolLM2, then MiniLM
    ("structure", "deepest"): ("fails", "holds"),
    ("structure", "entropy"): ("open", "holds"),
    ("structure", "middle"): ("holds", "fails"),
    ("structure", "position"): ("fails", "holds"),
    ("surface", "sep"): (None, "fails"),
}
"""What the prose of the page states, finding by finding."""


@pytest.mark.parametrize(("part", "finding"), SAID)
def test_the_prose_agrees_with_the_judgements(part: str, finding: str) -> None:
    found = tuple(JUDGED[part][model][finding]["verdict"] for model in ("smollm2", "minilm"))
    assert found == SAID[part, finding]


def test_every_judgement_is_on_the_page() -> None:
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    for models in JUDGED.values():
        for findings in models.values():
            for judgement in findings.values():
                assert judgement["text"] in page
    assert "<!--" not in page


def test_the_replication_is_on_the_page_and_reverses_nothing() -> None:
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    pairs = [
        (JUDGED[part][model][name], again)
        for part, models in REPLICATED.items()
        for model, findings in models.items()
        for name, again in findings.items()
        if name in JUDGED[part][model] and again["verdict"] and JUDGED[part][model][name]["verdict"]
    ]
    assert len(pairs) > 40
    assert all(again["text"] in page for _, again in pairs)
    tested = [pair for pair in pairs if None not in (one["p_adjusted"] for one in pair)]
    verdicts = [{first["verdict"], again["verdict"]} for first, again in tested]
    assert len(verdicts) >= 28
    assert {"holds", "fails"} not in verdicts
    assert "No verdict by a test is reversed" in page


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.6, 0.7, "holds"), (0.3, 1.0, "open"), (np.nan, np.nan, "holds")],
)
def test_verdicts_follow_from_tests(low: float, high: float, verdict: str) -> None:
    found = Estimate(0.65, low, high)
    judged = {"part": {"model": {"above": Judgement(decide(found, above=0.5), "")}}}
    assert settle(judged)["part"]["model"]["above"].verdict == verdict
    opposite = {"holds": "fails", "open": "open"}[verdict]
    judged = {"part": {"model": {"below": Judgement(decide(found, below=0.5), "")}}}
    assert settle(judged)["part"]["model"]["below"].verdict == opposite


def test_verdicts_are_corrected_for_one_another() -> None:
    """A number that would just do alone does not among forty."""
    near = Judgement(decide(Estimate(0.65, 0.51, 0.79), above=0.5), "")
    assert settle({"part": {"model": {"one": near}}})["part"]["model"]["one"].verdict == "holds"
    many = {"part": {"model": {str(n): near for n in range(40)}}}
    assert {one.verdict for one in settle(many)["part"]["model"].values()} == {"open"}


def test_a_statistic_is_taken_without_each_part() -> None:
    """Of the mean of equal parts, the jackknife is the usual interval."""
    x = np.array([1.0, 2.0, 4.0, 9.0, 3.0, 5.0])
    data = xr.Dataset({"x": ("head", [x.mean()])})
    rests = xr.Dataset(
        {
            "x": (("bucket", "head"), ((x.sum() - x) / 5)[:, None]),
            "documents_of_part": ("bucket", np.full(6, 1 / 6)),
        }
    )
    found = estimate(data, rests, lambda d: d["x"].mean())
    half = 2.5706 * x.std(ddof=1) / np.sqrt(6)
    assert (found.low, found.high) == pytest.approx((4 - half, 4 + half), abs=1e-3)
    count = estimate(data, rests, lambda d: float((d["x"] > -1).sum()))
    assert (count.value, np.isnan(count.low)) == (1.0, True)


def test_the_same_sentences_are_drawn_whatever_the_order() -> None:
    from headscope.text.readers.read import demo_corpus

    pieces = list(demo_corpus("sentence"))
    drawn = draw_per_document(pieces, 3)
    assert len(drawn) == 33
    assert {piece.id for piece in draw_per_document(pieces[::-1], 3)} == {p.id for p in drawn}


@pytest.mark.parametrize("page", reproduced.PAGES, ids=lambda page: page.stem)
def test_tables_of_findings_are_what_the_study_stored(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert reproduced.MARK.search(text)
    expected = reproduced.written(text, reproduced.read_judgements())
    assert text == expected, "run: python -m studies.gum.reproduced"


def test_the_table_shows_what_failed() -> None:
    shown, everything = (reproduced.table(JUDGED, which) for which in ("misses", "all"))
    texts = {
        judgement["text"]
        for models in JUDGED.values()
        for findings in models.values()
        for judgement in findings.values()
        if judgement["verdict"] in ("open", "fails")
    }
    assert len(texts) > 5
    assert all(text in everything for text in texts)
    rows = shown.splitlines()[3:]
    assert len(rows) == reproduced.MISSES
    assert all("✗ fails" in row or "~ open" in row for row in rows)
