"""Error rates, tested like numbers: fixed seeds, made-up documents, bounds from the targets."""

from __future__ import annotations

import numpy as np
import pytest
from studies.errors.draws import draw
from studies.errors.lists import (
    alike,
    best_sets,
    changed_heads,
    correlations,
    heads_above_the_mean,
    slopes,
)
from studies.errors.rates import (
    coverage,
    discoveries,
    false_groups,
    false_relations,
    found_relations,
    honest_p,
    pairing,
)

from headscope.statistics.cross_fitting import cross_fit_score
from headscope.statistics.intervals import holm, p_above, p_differs
from headscope.statistics.jackknife import Scale, ratio_jackknife

HEADS = 12
Sums = tuple[np.ndarray, np.ndarray]


def documents(n: int = 400, *, spread: float = 0.5, seed: int = 0) -> Sums:
    """Numerators and denominators of shares: documents differ in size and in what heads do, and
    heads agree about documents."""
    generator = np.random.default_rng(seed)
    sizes = generator.lognormal(5, spread, (n, 1)) * np.ones(HEADS)
    shared = generator.normal(0, 0.4, (n, 1))
    logits = np.linspace(-2.5, 1, HEADS) + shared + generator.normal(0, 0.3, (n, HEADS))
    return sizes / (1 + np.exp(-logits)), sizes


def reaches(n: int = 400, *, seed: int = 1) -> Sums:
    """Distances: in documents of long sentences some heads look farther, others do not."""
    generator = np.random.default_rng(seed)
    length = generator.lognormal(2.5, 0.5, (n, 1))
    tokens = length * generator.integers(4, 12, (n, 1)) * np.ones(HEADS)
    noise = np.exp(generator.normal(0, 0.15, (n, HEADS)))
    return tokens * length ** np.linspace(0, 1, HEADS) * noise, tokens


@pytest.mark.parametrize("n", [5, 8, 12, 20, 64, 200])
def test_intervals_hold_the_truth(n: int) -> None:
    a, b = documents()
    found = coverage(a, b, "logit", n, repetitions=300, seed=n)
    # 300 samples whose heads agree: three standard errors are 0.04.
    assert 0.90 <= found.jackknife <= 0.985
    assert found.given > (0.6 if n == 5 else 0.97)


def test_positive_numbers_hold_too_and_are_not_much_wider_than_before() -> None:
    a, b = documents()
    found = coverage(8 * a, b, "positive", 200, repetitions=100, n_bootstraps=20)
    assert 0.90 <= found.jackknife <= 0.99
    assert found.width < 1.25
    few = coverage(8 * a, b, "positive", 5, repetitions=100, n_bootstraps=100)
    assert few.bootstrap < 0.85 < few.jackknife


def test_shuffled_groups_rarely_differ() -> None:
    sums = {f"variable {seed}": documents(seed=seed) for seed in range(2)}
    now, before = false_groups(sums, 5, 30, repetitions=120, n_permutations=99, n_bootstraps=120)
    assert now.rate <= 0.10  # 0.05 and 2.5 standard errors
    assert before > 0.3


def test_tied_heads_rarely_beat_the_offset() -> None:
    generator = np.random.default_rng(0)
    accuracy = generator.beta(4, 6, (200, 6))
    cases = generator.integers(0, 12, (200, 6))
    any_claim, nominal, before = false_relations(
        accuracy, cases, 24, 30, repetitions=80, n_bootstraps=80
    )
    assert any_claim.rate <= 0.11
    assert nominal <= 0.07
    assert before > nominal


def test_all_relations_at_once_are_tested_like_each() -> None:
    generator = np.random.default_rng(2)
    cases = generator.integers(0, 5, (40, 7)) * (generator.random((40, 7)) < np.linspace(0, 1, 7))
    right = generator.binomial(cases[:, None], 0.5, (40, 9, 7))
    rival = generator.binomial(cases, 0.4)
    each = [cross_fit_score(right[..., i], cases[:, i], rival[:, i, None]).p for i in range(7)]
    np.testing.assert_allclose(honest_p(right, cases, rival), each)
    assert np.isfinite(each).sum() in range(3, 7)


def test_false_discoveries_are_few_and_true_ones_are_found() -> None:
    a, b = documents()
    assert discoveries(a, b, "logit", 20, repetitions=150).false.rate <= 0.07
    assert discoveries(a, b, "logit", 200, repetitions=30).found > 0.5


def test_heads_that_rest_nearly_always_are_not_listed_above_their_own_share() -> None:
    """In one document of thirty they look elsewhere; most samples of 12 have none of these."""
    generator = np.random.default_rng(7)
    sizes = generator.lognormal(5, 0.3, (400, 1)) * np.ones(HEADS)
    rest = 1 - generator.lognormal(-9, 0.5, (400, HEADS))
    away = generator.random((400, 1)) < 1 / 30
    shares = np.where(away, generator.uniform(0.7, 0.95, (400, HEADS)), rest)
    found = discoveries(sizes * shares, sizes, "logit", 12, repetitions=200)
    assert found.any_false.rate <= 0.03


def test_pairing_is_as_sure_and_narrower() -> None:
    a, b = documents()
    other = a * np.random.default_rng(3).normal(1.1, 0.05, a.shape)
    covers, _, wider = pairing((a, b), (other, b), 20, repetitions=150)
    assert 0.89 <= covers <= 0.99
    assert wider > 2


def test_a_head_that_is_better_is_found() -> None:
    generator = np.random.default_rng(0)
    cases = generator.integers(2, 12, (100, 2))
    chance = np.array([[0.75, 0.4], [0.3, 0.4]])  # `head relation`
    heads = generator.binomial(cases[:, None], chance, (100, 2, 2))
    offsets = generator.binomial(cases[:, None], 0.4, (100, 6, 2))
    power = found_relations(heads, offsets, cases, 20, repetitions=20)
    assert power[0] > 0.9
    assert power[1] < 0.2


def test_heads_that_are_alike_are_rarely_above_their_mean() -> None:
    a, b = reaches()
    values = alike(a, b, "positive").sum(0) / b.sum(0)
    np.testing.assert_allclose(values, values.mean())
    for false in heads_above_the_mean((a, b), "positive", 20, repetitions=300, seed=20)[:2]:
        assert false.now <= 0.08  # 0.05 and 2.5 standard errors
    *_, power = heads_above_the_mean((a, b), "positive", 200, repetitions=100, seed=64)
    assert power.now > 0.9


def test_shares_that_are_alike_are_rarely_above_their_mean() -> None:
    a, b = documents()
    values = alike(a, b, "logit").sum(0) / b.sum(0)
    np.testing.assert_allclose(values, values.mean())
    for false in heads_above_the_mean((a, b), "logit", 20, repetitions=200)[:2]:
        assert false.now <= 0.09


def test_heads_that_are_alike_rarely_changed() -> None:
    for found in changed_heads(reaches(), "positive", 20, repetitions=300, seed=20):
        assert found.now <= 0.08


def test_superlatives_are_often_wrong_and_their_sets_rarely() -> None:
    a, b = reaches()
    near = alike(a, b, "positive") * np.linspace(1.0, 1.1, a.shape[1])
    found = best_sets((near, b), "positive", 20, repetitions=100)
    assert found.now >= 0.95
    assert found.before < found.now


def test_slopes_over_layers_hold() -> None:
    found = slopes(reaches(), "positive", 4, 20, repetitions=300)
    assert 0.90 <= found.now <= 0.99


@pytest.mark.parametrize("n", [20, 64])
def test_the_interval_of_r_holds_the_r_of_all_documents(n: int) -> None:
    a, b = reaches()
    noise = np.exp(np.random.default_rng(5).normal(0, 0.2, a.shape))
    other = b * np.log1p(a / b) * noise
    found = correlations((a, b, "positive"), (other, b, "positive"), n, repetitions=200, seed=n)
    assert 0.90 <= found.now <= 0.99
    assert found.now >= found.before


@pytest.mark.parametrize("n", [8, 20, 64])
def test_layers_that_are_alike_are_rarely_told_apart(n: int) -> None:
    """The lowest and the highest layer (`layer_extremes`), and layers above a baseline."""
    worlds: list[tuple[Sums, Scale]] = [(documents(), "logit"), (reaches(), "positive")]
    for (a, b), scale in worlds:
        same = alike(a, b, scale)
        apart, above = [], []
        for drawn in draw(len(same), n, 400, n, HEADS):
            numerator, denominator = drawn.pooled(same, b)
            every = ratio_jackknife(numerator, denominator, scale)
            for of in (every.at(i) for i in range(len(drawn))):
                ends = [of.at(int(end(of.value))) for end in (np.nanargmax, np.nanargmin)]
                apart.append(p_differs(ends[0] - ends[1]) * HEADS * (HEADS - 1) / 2 < 0.05)
                rival = of.at(HEADS - 1).at(None)
                above.append((holm(p_above(of.at(slice(0, -1)) - rival)) < 0.05).any())
        assert np.mean(apart) <= 0.013
        assert scale != "logit" or np.mean(above) <= 0.028  # a baseline is of shares only
