"""docs/statistics.md says what the study of error rates counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats
from studies.errors.page import BOUND, FIGURE, LEVEL, MARK, PAGE, TABLES, coverage_figure, written
from studies.errors.record import Rate, read_rates, upper_bound, write_rates

RATES = read_rates()
MODELS, CORPORA = ("MiniLM", "SmolLM2"), ("GUM", "EWT", "GAP", "GAP2")
POPULATIONS = {f"{model}, {corpus}" for model in MODELS for corpus in CORPORA}


def test_the_tables_are_what_the_study_counted() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {found[2] for found in MARK.finditer(text)} == {*TABLES}
    assert text == written(text, RATES), "run: python -m studies.errors.page"
    assert len(text.split()) <= 2000


def test_the_figure_is_there_and_light() -> None:
    assert FIGURE.stat().st_size < 150_000
    assert f"figures/{FIGURE.name}" in PAGE.read_text(encoding="utf-8")
    panels = coverage_figure(RATES).axes
    assert [panel.get_title() for panel in panels] == [
        "null_share", "dep_alignment", "distance", "entropy",
    ]  # fmt: skip


@pytest.mark.parametrize("question", ["groups", "relations"])
def test_reports_hold_their_error_rate(question: str) -> None:
    """The targets: 5 %, with an upper Monte Carlo bound of 7 % at 1,000 repetitions."""
    asked = [r for r in RATES if r.question == question and r.variable != "one relation"]
    assert {rate.population for rate in asked} == POPULATIONS
    for rate in asked:
        assert rate.repetitions >= 1000
        assert round(rate.now, 2) <= LEVEL  # shuffles are exact: .051 of 1,000 is chance
        assert rate.bound <= BOUND


@pytest.mark.parametrize("question", ["coverage", "value", "half", "mean", "changed", "known", "r"])
def test_both_models_were_asked_on_all_corpora(question: str) -> None:
    assert {r.population for r in RATES if r.question == question} == POPULATIONS


def test_every_row_is_of_one_run_and_says_whether_it_was_held_out() -> None:
    (run,) = {rate.run for rate in RATES}
    assert run
    assert "dirty" not in run
    for rate in RATES:
        assert rate.choosing == ("held out" if rate.population.endswith("GAP2") else "used")


def test_a_whole_run_keeps_no_row_of_another(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    write_rates([Rate("a", "one", "x", 5, 10, 0.25, run="first")], path)
    write_rates([Rate("b", "one", "x", 5, 10, 0.25, run="second")], path, is_whole=True)
    assert [rate.run for rate in read_rates(path)] == ["second"]


def test_intervals_are_not_much_wider_than_before() -> None:
    wide = [r.width for r in RATES if r.question == "coverage" and r.documents == 200]
    assert wide
    assert max(wide) <= 1.25


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    for k, n in ((0, 40), (3, 40), (40, 40)):
        exact = stats.binomtest(k, n, alternative="less").proportion_ci(0.95).high
        assert upper_bound([1.0] * k + [0.0] * (n - k)) == pytest.approx(float(exact))
    shares = [0.0, 0.5, 0.25, 0.0, 0.1]
    error = stats.sem(shares)
    assert upper_bound(shares) == pytest.approx(0.17 + stats.norm.ppf(0.95) * error, abs=1e-4)


def test_new_rates_replace_those_of_the_same_question(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    old, kept = (Rate("a", name, "x", 5, 10, 0.25, bound=0.5) for name in ("one", "two"))
    write_rates([old, kept], path)
    new = Rate("a", "one", "x", 8, 20, 0.125)
    write_rates([new], path)
    first, second = read_rates(path)
    assert str((first, second)) == str((new, kept))
