"""The typical document: against scipy, by hand, and how often lists are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headscope.statistics.cross_fitting import best_set
from headscope.statistics.differences import p_above_both, p_differs_both, paired, typical, unpaired
from headscope.statistics.intervals import benjamini_hochberg, p_above
from headscope.statistics.jackknife import Jackknife, ratio_jackknife


def sums(seed: int, buckets: int = 20, heads: int = 6) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(5, 200, buckets)[:, None]
    return sizes * generator.gamma(3.0, 1.0, (buckets, heads)), np.repeat(sizes, heads, 1)


def test_the_value_of_a_bucket_is_its_own_ratio() -> None:
    a, b = sums(0)
    b[3, 2] = a[3, 2] = 0  # no documents here
    of = ratio_jackknife(a, b, "positive")
    values = of.bucket_values
    assert np.isnan(values[3, 2])
    known = b > 0
    np.testing.assert_allclose(values[known], (a[known] / b[known]), rtol=1e-10)
    np.testing.assert_allclose(typical(of), np.nanmedian(values, axis=0), rtol=1e-10)
    other = ratio_jackknife(a[:, ::-1], b[:, ::-1], "positive")
    expected = np.nanmedian(values - values[:, ::-1], axis=0)
    np.testing.assert_allclose(typical(of, other), expected, rtol=1e-10, atol=1e-12)


def test_most_buckets_are_above_by_the_sign_test() -> None:
    a, b = sums(1)
    of = ratio_jackknife(a, b, "positive")
    threshold = 2.5
    for head in range(a.shape[1]):
        k = int((a[:, head] / b[:, head] > threshold).sum())
        sign = stats.binomtest(k, len(a), 0.5, alternative="greater").pvalue
        expected = max(sign, float(p_above(of, threshold)[head]))
        assert p_above_both(of, threshold)[head] == pytest.approx(expected)
    mean = of.mean((0,)).at(None)
    x = a / b
    k = (x > x.mean(1, keepdims=True)).sum(0)
    signs = [stats.binomtest(int(n), len(a), 0.5, alternative="greater").pvalue for n in k]
    both = np.maximum(signs, p_above(of - mean))
    np.testing.assert_allclose(p_above_both(of, mean), both, rtol=1e-8)


def test_paired_differences_need_most_buckets() -> None:
    (a, b), (c, _) = sums(2), sums(3)
    left, right = (ratio_jackknife(x, b, "positive") for x in (a, c))
    difference = paired(left, right)
    k = (np.sign(a / b - c / b) == np.sign(difference.value)).sum(0)
    signs = [2 * stats.binomtest(int(n), len(a), 0.5, alternative="greater").pvalue for n in k]
    expected = np.maximum(difference.p, np.minimum(signs, 1.0))
    np.testing.assert_allclose(p_differs_both(left, right, is_paired=True), expected, rtol=1e-8)
    assert (p_differs_both(left, left, is_paired=True) == 1).all()


def test_unpaired_differences_are_brunner_and_munzels() -> None:
    (a, b), (c, d) = sums(4), sums(5, buckets=14)
    left, right = ratio_jackknife(a, b, "positive"), ratio_jackknife(c, d, "positive")
    difference = unpaired(left, right)
    found = p_differs_both(left, right, is_paired=False)
    for head in range(a.shape[1]):
        sides = [a[:, head] / b[:, head], c[:, head] / d[:, head]]
        if difference.value[head] > 0:
            sides.reverse()
        most = 2 * stats.brunnermunzel(*sides, alternative="less").pvalue
        assert found[head] == pytest.approx(max(difference.p[head], min(most, 1.0)))


def heavy(generator: np.random.Generator, documents: int, heads: int) -> Jackknife:
    """Heads with the same median; in some, two of 100 documents are fifty times the others."""
    x = generator.normal(1.0, 0.1, (documents, heads))
    is_odd = (generator.random((documents, heads)) < 0.02) & (np.arange(heads) % 3 == 0)
    b = generator.integers(50, 150, documents)[:, None] * np.ones((1, heads))
    return ratio_jackknife(np.where(is_odd, 50.0, x) * b, b, "positive")


def test_odd_documents_decide_no_list() -> None:
    """All heads have the median 1. The total of every third is 2: samples without its odd
    documents know nothing of it, and call the others above or below.
    """
    generator = np.random.default_rng(0)
    n = 300
    both = alone = 0
    for _ in range(n):
        of = heavy(generator, 40, 30)
        both += bool((benjamini_hochberg(p_above_both(of, 1.0)) < 0.05).any())
        one, two = of.at(slice(None, None, 3)), of.at(slice(1, None, 3))
        p = p_differs_both(one, two, is_paired=True)
        alone += bool((benjamini_hochberg(p) < 0.05).any())
    assert stats.binomtest(both, n, 0.05, alternative="greater").pvalue > 0.01, both
    assert stats.binomtest(alone, n, 0.05, alternative="greater").pvalue > 0.01, alone


@pytest.mark.parametrize("lowest", [False, True])
def test_the_truly_best_is_in_the_set_of_the_best(lowest: bool) -> None:
    generator = np.random.default_rng(1)
    means = np.linspace(1.0, 1.1, 8)
    best = int(means.argmin() if lowest else means.argmax())
    n, held, right = 300, 0, 0
    for _ in range(n):
        b = generator.integers(20, 200, 25)[:, None] * np.ones((1, 8))
        shared = generator.gamma(20.0, 0.05, (25, 1))
        of = ratio_jackknife(b * shared * generator.normal(means, 0.2, (25, 8)), b, "positive")
        right += int((of.value.argmin() if lowest else of.value.argmax()) == best)
        found = best_set(of, lowest=lowest)
        assert found is not None
        held += bool(found[best])
    assert right / n < 0.8  # the superlative alone would often be wrong
    assert stats.binomtest(held, n, 0.95, alternative="less").pvalue > 0.01, held


def test_the_buckets_of_a_mean_over_heads_are_the_means_of_theirs() -> None:
    """Also where heads have other denominators, as those of attention without null keys."""
    a, b = sums(6)
    b = b * np.random.default_rng(7).uniform(0.5, 2.0, b.shape)
    b[2, 1] = a[2, 1] = 0
    of = ratio_jackknife(a, b, "positive")
    with np.errstate(invalid="ignore"):
        expected = np.nanmean(a / b, axis=1)
    mean = of.mean((0,))
    np.testing.assert_allclose(mean.bucket_values, expected, rtol=1e-10)
    np.testing.assert_allclose(mean.at(None).bucket_values[:, 0], expected, rtol=1e-10)
