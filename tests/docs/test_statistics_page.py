"""docs/statistics.md says what the study of error rates counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats
from studies.errors.causal import HELD_OUT as CAUSAL_HELD_OUT
from studies.errors.page import (
    BOUND,
    FIGURE,
    LEVEL,
    MARK,
    PAGE,
    SENTENCES,
    TABLES,
    coverage_figure,
    written,
)
from studies.errors.populations import HELD_OUT
from studies.errors.record import Rate, read_rates, upper_bound, write_rates

from headscope.reporting import comparisons
from headscope.reporting.findings import TOPICS

RATES = read_rates()
MODELS, CORPORA = ("MiniLM", "SmolLM2"), ("GUM", "EWT", "GAP", "GAP2", "PYDOC")
POPULATIONS = {f"{model}, {corpus}" for model in MODELS for corpus in CORPORA}


def test_the_tables_are_what_the_study_counted() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {found[2] for found in MARK.finditer(text)} == {*TABLES}
    assert text == written(text, RATES), "run: python -m studies.errors.page"
    assert len(text.split()) <= 4000


SAID = {
    "_opening": "",  # counts
    "_null": "Mean, share",
    "_sinks": "N heads are above a number",
    "_broad": "N heads are above the mean, a baseline",
    "_distance": "Grows or falls",
    "_correlation": "r over heads",
    "_alignment": "N layers are above",
    "_aligned_head": "Most in layer",
    "relations": "Heads beat the best offset",
    "trained": "Trained probes",
    "_offsets": "N heads are above a number",
    "_variability": "The head that depends least",
    "_repeats": "N heads are above a number",
    "_tags": "For n tags",
    "coreference": "Heads find antecedents",
    "effects": "N heads change the loss",
    "norms": "Weighted by norms",
    "importance": "Gradients are larger",
    "about_changes": "N heads changed",
    "about_differences": "Differs between models",
    "about_best_heads": "The best heads of a model",
    "about_groups": "Kinds of text differ",
    "about_replications": "N findings hold",
    "about_planned": "N planned claims hold",
    "about_training": "The first head of a role",
}
"""The rules that write sentences of a report, and the row of each."""


def test_every_kind_of_sentence_has_a_row() -> None:
    rules = {rule.__qualname__.split(".")[0] for some in TOPICS.values() for rule in some}
    rules |= {name for name in vars(comparisons) if name.startswith("about_")}
    assert rules == {*SAID}
    for row in SAID.values():
        assert any(sentence.startswith(row) for sentence, *_ in SENTENCES), row


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


@pytest.mark.parametrize("question", ["mean", "changed"])
def test_lists_hold_their_error_rate_with_odd_documents(question: str) -> None:
    asked = [r for r in RATES if r.question == question]
    for rate in asked:
        assert rate.now <= LEVEL
        assert rate.bound <= BOUND
    assert max(rate.before for rate in asked) > 0.2  # by the test of the total alone


def test_sets_of_superlatives_hold_the_true_one() -> None:
    asked = [r for r in RATES if r.question == "best" and r.now == r.now]
    assert min(rate.now for rate in asked) >= 0.95


@pytest.mark.parametrize(
    "question", ["coverage", "value", "half", "mean", "changed", "known", "r", "best", "slope"]
)
def test_both_models_were_asked_on_all_corpora(question: str) -> None:
    assert {r.population for r in RATES if r.question == question} == POPULATIONS


def test_every_question_is_of_one_run_and_says_what_was_held_out() -> None:
    for question in {rate.question for rate in RATES}:
        runs = {rate.run for rate in RATES if rate.question == question}
        assert len(runs) == 1, question
        assert "dirty" not in runs.pop()
    for rate in RATES:
        corpora = CAUSAL_HELD_OUT if rate.question.startswith("causal") else HELD_OUT
        is_held_out = rate.population.endswith(corpora)
        assert rate.choosing == ("held out" if is_held_out else "used")


def test_a_whole_run_keeps_no_row_of_another(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    write_rates([Rate("a", "one", "x", 5, 10, 0.25, run="first")], path)
    write_rates([Rate("b", "one", "x", 5, 10, 0.25, run="second")], path, is_whole=True)
    assert [rate.run for rate in read_rates(path)] == ["second"]


def test_intervals_are_not_much_wider_than_before() -> None:
    wide = [
        r.width
        for r in RATES
        if r.question == "coverage" and r.documents == 200 and r.choosing == "used"
    ]
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
