"""Best head against best head of two models: values, bounds and error rates by simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import headscope as hs
from headscope.model.model import Model
from headscope.results.effect_data import Comparison
from headscope.run.compare import ProbeCounts, _crossfit, best_differences, best_heads
from headscope.statistics.differences import paired
from headscope.statistics.intervals import holm, interval
from headscope.statistics.jackknife import MAX_VARIANCE_EXPONENT, ratio_jackknife
from tests.probes.slow_probes import crossfit_accuracy
from tests.run.corpora import make_corpus

LABELS = ["det", "obj", "nsubj"]
BUCKETS = 64


def sampled(
    generator: np.random.Generator,
    n: int,
    best: tuple[float, float],
    rest: tuple[float, float] = (0.2, 0.2),
    heads: tuple[int, int] = (40, 16),
) -> list[ProbeCounts]:
    """Two models of different shape on n documents. One head of each is best; documents are
    harder or easier for both models, and for each."""
    bucket = generator.integers(0, BUCKETS, n)
    cases = generator.poisson(generator.lognormal(2.3, 0.7, (n, 1)), (n, len(LABELS)))
    shared = generator.normal(0, 0.6, (n, 1, len(LABELS)))
    models = []
    for n_heads, high, low in zip(heads, best, rest, strict=True):
        accuracy = np.full(n_heads, low)
        accuracy[generator.integers(n_heads)] = high
        own = shared + generator.normal(0, 0.4, (n, 1, len(LABELS)))
        odds = np.log(accuracy / (1 - accuracy))[:, None] + own
        right = generator.binomial(cases[:, None], 1 / (1 + np.exp(-odds)))
        by_bucket = np.zeros((BUCKETS, n_heads, len(LABELS)))
        all_cases = np.zeros((BUCKETS, len(LABELS)))
        np.add.at(by_bucket, bucket, right)
        np.add.at(all_cases, bucket, cases)
        none = np.zeros((BUCKETS, 0, len(LABELS)))
        models.append(ProbeCounts("accuracy", "relation", LABELS, by_bucket, all_cases, none))
    return models


def truth(accuracy: float) -> float:
    """The accuracy over all documents, whose odds vary."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    odds = np.log(accuracy / (1 - accuracy)) + np.hypot(0.6, 0.4) * points
    return float((weights / (1 + np.exp(-odds))).sum() / weights.sum())


def test_values_and_bounds_against_loops() -> None:
    ours, theirs = sampled(np.random.default_rng(0), 30, (0.7, 0.6), (0.65, 0.5))
    found = best_differences(ours, theirs)
    for i, label in enumerate(LABELS):
        cases = ours.cases[:, i]
        scores = [
            crossfit_accuracy(
                {g: side.right[g, :, i] for g in range(BUCKETS)}, dict(enumerate(cases))
            )
            for side in (ours, theirs)
        ]
        value = found["accuracy_best"].sel(relation=label)
        assert float(value) == pytest.approx(scores[0] - scores[1])
        # The lower bound: our cross-fitted heads against each of theirs, the smallest bound.
        by_odd, by_even = (int(ours.right[h::2, :, i].sum(0).argmax()) for h in (1, 0))
        chosen = [ours.right[g, by_odd if g % 2 == 0 else by_even, i] for g in range(BUCKETS)]
        lows = []
        for k in range(theirs.right.shape[1]):
            gain = ratio_jackknife(np.array(chosen) - theirs.right[:, k, i], cases)
            object.__setattr__(gain, "variance_exponent", MAX_VARIANCE_EXPONENT)
            lows.append(float(interval(gain).low))
        low, high = found["accuracy_best_interval"].sel(relation=label).values
        assert low == pytest.approx(min(lows))
        assert low <= float(value) <= high


def test_relations_are_corrected_without_all_and_head_the_table() -> None:
    sides = sampled(np.random.default_rng(2), 30, (0.7, 0.4))
    plain = best_differences(*sides)
    labels = ["det", "obj", "all"]
    found = best_differences(*(dataclasses.replace(side, labels=labels) for side in sides))
    p = found["accuracy_best_p"].values
    np.testing.assert_array_equal(p, plain["accuracy_best_p"].values)
    np.testing.assert_allclose(found["accuracy_best_p_adjusted"], [*holm(p[:2]), p[2]])
    about = {"left": "one", "right": "other"}
    latex = Comparison(found, {"bound": ["low", "high"]}, about).to_latex("accuracy_best")
    assert "relation & accuracy" in latex
    assert "corrected over 2 numbers (Holm 1979; “all” is tested alone)" in latex


def test_swapped_models_give_the_opposite() -> None:
    ours, theirs = sampled(np.random.default_rng(1), 30, (0.7, 0.6))
    one, other = best_differences(ours, theirs), best_differences(theirs, ours)
    np.testing.assert_allclose(one["accuracy_best"], -other["accuracy_best"])
    np.testing.assert_allclose(
        one["accuracy_best_interval"][0], -other["accuracy_best_interval"][1]
    )
    np.testing.assert_allclose(one["accuracy_best_p"], other["accuracy_best_p"])


@pytest.mark.parametrize(
    ("n", "rest"), [(20, (0.2, 0.2)), (64, (0.2, 0.2)), (64, (0.55, 0.2)), (150, (0.55, 0.55))]
)
def test_equal_best_heads_rarely_differ(n: int, rest: tuple[float, float]) -> None:
    """Also where many heads are nearly best, so that a half chooses one of them: a paired test of
    the two cross-fitted scores claims a difference in .16 to .28 of these samples."""
    generator = np.random.default_rng(n)
    any_claim, scores_alone, held, repetitions = 0, 0, [], 120
    for _ in range(repetitions):
        models = sampled(generator, n, (0.6, 0.6), rest)
        scores = [_crossfit(model, LABELS, BUCKETS)[0] for model in models]
        scores_alone += bool((holm(paired(scores[0], scores[1]).p) < 0.05).any())
        found = best_differences(*models)
        any_claim += bool((found["accuracy_best_p_adjusted"] < 0.05).any())
        low, high = found["accuracy_best_interval"].values
        held += ((low <= 0) & (high >= 0)).tolist()
    assert any_claim / repetitions <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / repetitions)
    assert np.mean(held) >= 0.93
    assert (scores_alone / repetitions > 0.1) == (max(rest) > 0.5)


def test_differences_are_covered_and_found() -> None:
    generator = np.random.default_rng(3)
    true, held, claims = truth(0.75) - truth(0.6), [], []
    for _ in range(120):
        found = best_differences(*sampled(generator, 64, (0.75, 0.6)))
        low, high = found["accuracy_best_interval"].values
        held += ((low <= true) & (true <= high)).tolist()
        claims += (found["accuracy_best_p_adjusted"].values < 0.05).tolist()
    assert 0.92 <= np.mean(held) <= 0.99
    assert np.mean(claims) > 0.5


def test_two_models_are_compared_by_relation(tiny_bert: Model, tiny_llama: Model) -> None:
    corpus = make_corpus(60)
    left, right = (hs.probe_dependencies(m, corpus, min_cases=20) for m in (tiny_bert, tiny_llama))
    found = left.compare(right)
    best = found["accuracy_best"]
    tables = [side.table() for side in (left, right)]
    for label in ("all", "det", "obj"):
        expected = tables[0][label].crossfit_accuracy - tables[1][label].crossfit_accuracy
        assert float(best.sel(relation=label)) == pytest.approx(expected)
    p = found["accuracy_best_p"].dropna("relation")
    adjusted = found["accuracy_best_p_adjusted"].sel(relation=p["relation"])
    assert float(adjusted.sel(relation="all")) == float(p.sel(relation="all"))
    assert (adjusted >= p).all()
    other = hs.probe_dependencies(tiny_llama, make_corpus(60, seed=1, first=100), min_cases=20)
    assert not best_heads(left, other)  # not the same documents
