"""Skewness that few documents hide: rare long documents are mostly not in a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from studies.errors.decided import heaviest, undecided
from studies.errors.lists import changed_heads, heads_above_the_mean
from studies.errors.rates import coverage, discoveries

from headscope.statistics import intervals
from headscope.statistics.intervals import (
    hall_inverse,
    interval,
    p_differs,
    skewness_bound,
    t_critical,
)
from headscope.statistics.jackknife import ratio_jackknife

HEADS = 12
Sums = tuple[np.ndarray, np.ndarray]


def rarely_long(n: int = 400, *, seed: int = 3) -> Sums:
    """Distances of documents, one of twelve of which is read five times as far."""
    generator = np.random.default_rng(seed)
    tokens = generator.lognormal(5, 0.4, (n, 1)) * np.ones(HEADS)
    far = np.where(generator.random((n, 1)) < 1 / 12, 5.0, 1.0)
    noise = np.exp(generator.normal(0, 0.2, (n, HEADS)))
    return tokens * 4 * far ** np.linspace(0.3, 1, HEADS) * noise, tokens


def test_hidden_skewness_by_hand() -> None:
    """Four times what it seems, up to 2.5/n; never less, and nothing of what is not above 0."""
    gamma = np.array([-0.5, 0.0, 0.05, 0.2, 0.9])
    np.testing.assert_allclose(skewness_bound(gamma, np.full(5, 5.0)), [-0.5, 0.0, 0.2, 0.5, 0.9])
    np.testing.assert_allclose(
        skewness_bound(gamma, np.full(5, 100.0)), [-0.5, 0.0, 0.05, 0.2, 0.9]
    )
    assert skewness_bound(np.array(0.3), np.array(np.nan)) == 0.3


def test_the_upper_end_is_the_farther_of_two() -> None:
    generator = np.random.default_rng(0)
    b = generator.uniform(50, 150, (8, 40))
    of = ratio_jackknife(b * generator.lognormal(1, 0.4, b.shape), b, "positive")
    found = interval(of)
    t, error = t_critical(of.df), np.sqrt(of.variance)
    low, plain, care = (
        of.value - hall_inverse(at, gamma) * error
        for at, gamma in (
            (t, of.skewness),
            (-t, of.skewness),
            (-t, skewness_bound(of.skewness, of.df + 1)),
        )
    )
    np.testing.assert_allclose(found.low, np.maximum(low, 0.0))
    np.testing.assert_allclose(found.high, np.maximum(plain, care))
    assert (care > 1.1 * plain).any()
    # Tests of a number agree with its interval at both ends.
    np.testing.assert_allclose(p_differs(of, found.high), 0.05)
    is_above = low > 0
    np.testing.assert_allclose(p_differs(of, found.low)[is_above], 0.05)
    plainly = replace(of, scale="skewed")  # differences may be skewed either way
    np.testing.assert_allclose(interval(plainly).high, plain)


@pytest.mark.parametrize("n", [8, 12])
def test_intervals_allow_for_long_documents_that_a_sample_lacks(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = rarely_long()
    found = coverage(a, b, "positive", n, repetitions=300, seed=n)
    many = coverage(a, b, "positive", 200, repetitions=50, n_bootstraps=20)
    monkeypatch.setattr(intervals, "skewness_bound", lambda skewness, documents: skewness)
    seen = coverage(a, b, "positive", n, repetitions=300, seed=n)
    assert found.jackknife > seen.jackknife + 0.01
    assert many.width < 1.25


def test_shares_that_rare_documents_pull_down_are_rarely_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All heads rest less in some documents, much less in few of them."""
    generator = np.random.default_rng(5)
    sizes = generator.lognormal(5, 0.3, (400, 1)) * np.ones(HEADS)
    logits = 1.5 - generator.lognormal(-1, 0.7, (400, 1)) + generator.normal(0, 0.2, (400, HEADS))
    sums = sizes / (1 + np.exp(-logits)), sizes
    found = discoveries(*sums, "logit", 12, repetitions=400, seed=12)
    assert found.any_false.rate <= 0.077  # 0.05 and 2.5 standard errors
    assert found.any_undecided == found.any_false
    monkeypatch.setattr(intervals, "MIN_DOWNWARD_SKEWNESS", 0.0)
    seen = discoveries(*sums, "logit", 12, repetitions=400, seed=12)
    assert found.any_false.rate < seen.any_false.rate
    assert found.found > seen.found / 2


def test_heads_that_one_document_decides_are_counted_apart() -> None:
    a, b = rarely_long()
    whole = ratio_jackknife(a, b, "positive")
    assert undecided(whole).all()
    odd = a.copy()
    odd[7, 0] += a[:, 0].sum() / 2
    decided = ratio_jackknife(odd, b, "positive")
    assert undecided(decided).tolist() == [False] + [True] * (HEADS - 1)
    assert heaviest(decided) > 0.9 > 0.5 > heaviest(whole)
    found = coverage(odd, b, "positive", 20, repetitions=60)
    assert found.undecided > found.jackknife
    for rates in (
        heads_above_the_mean((odd, b), "positive", 20, repetitions=60)[1],
        changed_heads((odd, b), "positive", 20, repetitions=60)[1],
    ):
        assert rates.undecided <= rates.now
        assert rates.undecided_bound <= rates.bound
