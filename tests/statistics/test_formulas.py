"""Each formula against a slow one written from its definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from headscope.statistics.correlation import (
    correlation,
    correlation_interval,
    pearson,
    ranks,
    within_layers,
)
from headscope.statistics.cross_fitting import best_set, cross_fit_score
from headscope.statistics.differences import (
    in_most,
    over_texts,
    paired,
    permutation_test,
    unpaired,
)
from headscope.statistics.intervals import (
    benjamini_hochberg,
    conservative_t,
    holm,
    interval,
    p_above,
    p_differs,
)
from headscope.statistics.jackknife import (
    crossed_jackknife,
    degrees_of_freedom,
    jackknife_from_values,
    pool,
    ratio_jackknife,
    scale_of,
)


def _sums(n: int = 9, shape: tuple[int, ...] = (), seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    b = generator.lognormal(3, 0.7, (n, *shape))
    return b * generator.beta(2, 5, (n, *shape)), b


def test_pulls_are_what_the_ratio_loses_without_each_part() -> None:
    a, b = _sums(shape=(3,))
    of = ratio_jackknife(a, b)
    for part in range(len(a)):
        rest = np.delete(a, part, 0).sum(0) / np.delete(b, part, 0).sum(0)
        np.testing.assert_allclose(of.deltas[part], of.value - rest, rtol=1e-12)
    again = jackknife_from_values(of.value, of.value - of.deltas, np.ones(len(a)))
    np.testing.assert_allclose(again.variance, of.variance)


def test_parts_without_documents_change_nothing() -> None:
    a, b = _sums()
    empty = np.zeros(4)
    with_empty = ratio_jackknife(np.concatenate((empty, a)), np.concatenate((empty, b)))
    without = ratio_jackknife(a, b)
    assert with_empty.variance == pytest.approx(float(without.variance))
    assert with_empty.df == pytest.approx(float(without.df))


def test_the_degrees_of_freedom_are_those_of_the_matrices() -> None:
    b = _sums()[1]
    p, n = b / b.sum(), len(b)
    m = np.diag(1 / (1 - p)) @ (np.eye(n) - np.outer(p, np.ones(n)))
    c = m @ np.diag(b**1.5) @ m.T
    assert degrees_of_freedom(p) == pytest.approx(np.trace(c) ** 2 / np.trace(c @ c))
    assert degrees_of_freedom(np.full(12, 1 / 12)) == pytest.approx(11)
    assert degrees_of_freedom(np.array([0.97, 0.01, 0.01, 0.01])) < 2
    assert np.isnan(degrees_of_freedom(np.array([1.0, 0.0])))


def test_an_interval_is_symmetric_on_its_scale() -> None:
    a, b = _sums()
    of = ratio_jackknife(a, b)
    share, plain, positive = (
        interval(ratio_jackknife(a, b, scale)) for scale in ("logit", "identity", "positive")
    )
    half = stats.t.ppf(0.975, of.df) * np.sqrt(of.variance)
    assert plain.low == pytest.approx(of.value - half)
    assert plain.documents == pytest.approx(of.df + 1)
    logit = [np.log(x / (1 - x)) for x in (share.low, of.value, share.high)]
    assert logit[1] - logit[0] == pytest.approx(logit[2] - logit[1])
    assert logit[1] - logit[0] == pytest.approx(half / (of.value * (1 - of.value)))
    # Hall's interval ends where the transformed statistic is Student's quantile.
    skewness = np.sum(of.deltas**3) / np.sum(of.deltas**2) ** 1.5
    quantile = stats.t.ppf(0.975, ratio_jackknife(a, b, "positive").df)
    for bound, expected in ((positive.low, quantile), (positive.high, -quantile)):
        t = (of.value - bound) / np.sqrt(of.variance)
        hall = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
        assert hall == pytest.approx(expected)


def test_without_skew_an_interval_of_positive_numbers_is_plain() -> None:
    b = np.full(12, 10.0)
    a = b * (0.5 + 0.1 * np.tile([-1, 1], 6))  # deviations are symmetric
    of = ratio_jackknife(a, b, "positive")
    half = stats.t.ppf(0.975, of.df) * np.sqrt(of.variance)
    assert interval(of).bounds == pytest.approx(of.value + np.array([-half, half]))


def test_no_interval_where_five_parts_do_not_have_what_is_counted() -> None:
    b = np.full(20, 10.0)
    rare, nearly_all, enough = np.zeros(20), np.full(20, 10.0), np.zeros(20)
    rare[:4], nearly_all[:4], enough[:5] = 1, 9, 1
    assert np.isnan(interval(ratio_jackknife(rare, b, "logit")).low)
    assert np.isnan(interval(ratio_jackknife(nearly_all, b, "logit")).low)
    assert np.isfinite(interval(ratio_jackknife(enough, b, "logit")).low)
    assert np.isnan(interval(ratio_jackknife(rare, b, "logit")).documents)


def test_no_interval_rests_on_one_document() -> None:
    b = np.array([5000.0, *[10.0] * 9])
    assert np.isnan(interval(ratio_jackknife(b * 0.3 + 0.1, b, "logit")).low)


def test_p_values_agree_with_intervals() -> None:
    a, b = _sums()
    for of in (ratio_jackknife(a, b, "logit"), ratio_jackknife(9 * a, b, "positive")):
        bounds = interval(of)
        assert p_differs(of, bounds.low) == pytest.approx(0.05)
        assert p_differs(of, bounds.high) == pytest.approx(0.05)
        assert p_differs(of, of.value) == 1


def test_a_share_is_listed_with_care() -> None:
    """Student's t of the log odds by hand: a third of a skewness of −1/√n or less."""
    a, b = _sums(24, seed=2)
    for numerator, is_pulled_down in ((a, False), (b - a, True)):
        of = ratio_jackknife(numerator, b, "logit")
        assert (of.skewness < 0) == is_pulled_down
        tau = 0.85 * float(of.value)
        log_odds = np.log(of.value / (1 - of.value)) - np.log(tau / (1 - tau))
        t = log_odds * of.value * (1 - of.value) / np.sqrt(of.variance)
        df = degrees_of_freedom(b / b.sum(), 2.0)
        third = min(of.skewness, -1 / np.sqrt(df + 1)) / 3
        hall = t + third * t**2 / 3 + third**2 * t**3 / 27 + third / 6
        assert 0 < p_above(of, tau) == pytest.approx(float(stats.t.sf(hall, df)))


def test_what_is_the_same_in_every_part_is_sure() -> None:
    b = np.arange(20.0, 40.0)
    of = ratio_jackknife(4.0 * b, b, "positive")
    assert (p_above(of, 3.0), p_above(of, 5.0), p_differs(of, 3.0)) == (0, 1, 0)


def test_a_positive_number_is_listed_with_care() -> None:
    """Hall's transformation by hand: all of a skewness that endangers, half of one that favors."""
    a, b = _sums(24, seed=2)
    for numerator in (9 * a, 9 * (b - a)):
        of = ratio_jackknife(numerator, b, "positive")
        tau = 0.85 * float(of.value)
        t = (of.value - tau) / np.sqrt(of.variance)
        g = of.skewness if of.skewness < 0 else of.skewness / 2
        hall = t + g * t**2 / 3 + g**2 * t**3 / 27 + g / 6
        assert 0 < p_above(of, tau) == pytest.approx(float(stats.t.sf(hall, of.df)))


def test_the_mean_over_few_texts_is_students() -> None:
    values = np.array([1.0, -2.0, 4.0, 9.0])[:, None]
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    apart, ones = np.arange(4), np.ones((4, 1))
    found = over_texts(values, ones, apart)
    assert (found.low[0], found.high[0]) == pytest.approx([float(x[0]) for x in expected])
    assert found.p[0] == pytest.approx(stats.ttest_1samp(values, 0).pvalue[0])
    same = over_texts(values, ones, np.zeros(4, dtype=int))
    assert (same.low, same.high) == (found.low, found.high)
    assert np.isnan(over_texts(values[:2], ones[:2], apart[:2]).low)


def test_texts_within_few_clusters_deviate_from_their_clusters_means() -> None:
    """The pooled variance of an analysis of variance, by hand."""
    values = np.array([1.0, 2.0, 3.0, 11.0, 13.0, 12.0, -6.0, -7.0])[:, None]
    clusters = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    squares = 2.0 + 2.0 + 0.5
    found = over_texts(values, np.ones((8, 1)), clusters)
    half = np.sqrt(squares / 5 / 8) * stats.t.ppf(0.975, 5)
    assert found.documents[0] == pytest.approx(6)
    assert found.high[0] - found.low[0] == pytest.approx(2 * half, rel=0.05)  # but for skewness
    assert found.value[0] == pytest.approx(values.mean())


def test_the_interval_of_a_head_does_not_depend_on_other_heads() -> None:
    values = np.random.default_rng(0).gamma(2, size=(9, 2)) * np.array([1.0, -1.0])
    both = over_texts(values, np.ones_like(values), np.arange(9))
    alone = over_texts(values[:, :1], np.ones((9, 1)), np.arange(9))
    assert (alone.low[0], alone.high[0]) == pytest.approx((both.low[0], both.high[0]))


def test_five_clusters_are_the_units() -> None:
    generator = np.random.default_rng(0)
    clusters = np.repeat(np.arange(6), 4)
    values = (generator.normal(size=6)[clusters] + 0.01 * generator.normal(size=24))[:, None]
    ones = np.ones((24, 1))
    found = over_texts(values, ones, clusters)
    means = values.reshape(6, 4).mean(1)[:, None]
    expected = over_texts(means, ones[:6], np.arange(6))
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high])
    names_only = over_texts(values, ones, np.zeros(24, dtype=int))
    assert found.high - found.low > 1.5 * (names_only.high - names_only.low)


@pytest.mark.parametrize(("n_clusters", "size"), [(8, 4), (20, 2), (3, 8)])
def test_intervals_over_clusters_hold_planted_effects(n_clusters: int, size: int) -> None:
    """Effects of templates and of names are planted: from five templates on the mean of all
    templates is held; below, the mean over names in these templates.
    """
    generator = np.random.default_rng(n_clusters)
    n, repetitions = n_clusters * size, 2000
    clusters = np.repeat(np.arange(n_clusters), size)
    templates = generator.normal(size=(n_clusters, repetitions))
    values = templates[clusters] + generator.normal(size=(n, repetitions))
    found = over_texts(values, np.ones_like(values), clusters)
    truth = 0.0 if n_clusters >= 5 else templates.mean(0)
    holds = float(((found.low <= truth) & (truth <= found.high)).mean())
    assert 0.92 <= holds <= 0.97


def test_equal_parts_give_the_t_tests_of_the_textbook() -> None:
    """With equal denominators a ratio is a mean, and the jackknife's error is s/√n."""
    generator = np.random.default_rng(1)
    left, right = generator.random((2, 12))
    ones = np.ones(12)
    both = ratio_jackknife(left, ones), ratio_jackknife(right, ones)
    assert paired(*both).p == pytest.approx(stats.ttest_rel(left, right).pvalue)
    assert unpaired(*both).p == pytest.approx(stats.ttest_ind(left, right, equal_var=False).pvalue)
    assert paired(both[0], both[0]).p == 1


def test_a_skewed_difference_is_tested_by_the_more_careful_of_two() -> None:
    """H(t) where few documents pull it down, t where few pull it up; 0 where they disagree."""
    t, down = np.array([2.0, -2.0, 2.0, -2.0, 0.1]), np.array([-0.6, 0.6, 0.6, -0.6, -2.0])
    hall = 2 - 0.6 * 4 / 3 + 0.36 * 8 / 27 - 0.1
    np.testing.assert_allclose(conservative_t(t, down), [hall, -hall, 2, -2, 0])
    assert conservative_t(np.array(np.inf), np.array(0.0)) == np.inf


def test_differences_of_skewed_numbers() -> None:
    """Student's t by hand, with Hall's transformation and full agreement within documents."""
    a, b = _sums(24, seed=2)
    other = a * np.linspace(0.8, 1.3, 24) ** 2
    left, right = ratio_jackknife(9 * a, b, "positive"), ratio_jackknife(9 * other, b, "positive")
    of = left - right
    assert of.scale == "skewed"
    df = min(degrees_of_freedom(x / x.sum(), 2.0) for x in (a, b, other))
    t = of.value / np.sqrt(of.variance)
    hall = t + of.skewness * t**2 / 3 + of.skewness**2 * t**3 / 27 + of.skewness / 6
    tested = paired(left, right)
    assert tested.documents == pytest.approx(df + 1)
    assert tested.p == pytest.approx(2 * stats.t.sf(min(abs(t), -hall), df))
    assert p_above(right - left) == pytest.approx(float(tested.p) / 2)
    for bound, quantile in ((tested.low, 0.975), (tested.high, 0.025)):
        t = (of.value - bound) / np.sqrt(of.variance)
        hall = t + of.skewness * t**2 / 3 + of.skewness**2 * t**3 / 27 + of.skewness / 6
        assert hall == pytest.approx(stats.t.ppf(quantile, df))
    # Over different documents the third moments subtract: of two equally skewed, none is left.
    alike = ratio_jackknife(9 * a, b, "positive")
    apart = unpaired(left, alike)
    assert apart.high == pytest.approx(-float(apart.low))


def test_pairing_takes_out_what_documents_share() -> None:
    generator = np.random.default_rng(2)
    b = generator.lognormal(5, 0.5, 30)
    shared = generator.normal(0.5, 0.1, 30)
    left, right = (
        ratio_jackknife(b * (shared + 0.01 * generator.normal(size=30)), b) for _ in "ab"
    )
    widths = [float(d.high - d.low) for d in (paired(left, right), unpaired(left, right))]
    assert widths[0] < widths[1] / 5


def test_corrections_agree_with_scipy_and_by_hand() -> None:
    p = np.array([[0.01, np.nan, 0.04], [0.03, 0.5, 0.02]])
    known = p[np.isfinite(p)]
    expected = stats.false_discovery_control(known, method="bh")
    np.testing.assert_allclose(benjamini_hochberg(p)[np.isfinite(p)], expected)
    np.testing.assert_allclose(holm(p), [[0.05, np.nan, 0.09], [0.09, 0.5, 0.08]])
    assert np.isnan(benjamini_hochberg(np.array([np.nan]))).all()


def test_the_group_statistic_is_that_of_its_formula() -> None:
    a, b = _sums(18)
    of, groups = ratio_jackknife(a, b), np.repeat([0, 1, 2], 6)

    def f(labels: np.ndarray) -> float:
        u, w = (a - of.value * b) / b.sum(), b / b.sum()
        between = within = 0.0
        for k in range(3):
            mine = labels == k
            d = u[mine].sum() / w[mine].sum()
            between += w[mine].sum() * d**2
            within += float((((u - d * w) ** 2 / w)[mine]).sum())
        return between / (within / (18 - 3))

    generator = np.random.default_rng(5)
    shuffles = [f(groups), *(f(generator.permutation(groups)) for _ in range(199))]
    expected = np.mean(np.array(shuffles) >= shuffles[0])
    test = permutation_test(of, groups, n_permutations=199, seed=5)
    assert test.p == pytest.approx(expected)
    np.testing.assert_array_equal(test.pair_p, test.pair_p.T)


def test_groups_far_apart_are_told_apart_and_others_not() -> None:
    a, b = _sums(30, seed=4)
    groups = np.repeat([0, 1, 2], 10)
    a[groups == 2] = 0.9 * b[groups == 2]
    test = permutation_test(ratio_jackknife(a, b), groups)
    assert test.p < 0.01
    assert test.pair_p[0, 2] < 0.01
    assert test.pair_p[1, 2] < 0.01
    assert test.pair_p[0, 1] > 0.1
    assert test.deviations[2] > 0
    assert np.isnan(permutation_test(ratio_jackknife(a, b), np.zeros(30, dtype=int)).p)


def test_honest_scores_by_hand() -> None:
    """Even parts choose head 1, odd parts head 0: each is scored where it was not chosen."""
    right = np.array([[2, 5, 0], [6, 1, 0], [3, 4, 0], [7, 2, 0]])
    cases = np.full(4, 10)
    rivals = np.ones((4, 2))
    score = cross_fit_score(right, cases, rivals)
    assert score.chosen == (0, 1)
    assert score.score == pytest.approx((2 + 1 + 3 + 2) / 40)
    assert score.gain == pytest.approx((8 - 4) / 40)
    assert np.isnan(score.p)  # four parts are too few


def test_every_rival_must_be_beaten() -> None:
    generator = np.random.default_rng(0)
    cases = generator.integers(20, 60, 24)
    right = generator.binomial(cases[:, None], [0.8, 0.3])
    weak = generator.binomial(cases, 0.2)
    strong = generator.binomial(cases, 0.8)
    assert cross_fit_score(right, cases, weak[:, None]).p < 1e-4
    both = cross_fit_score(right, cases, np.stack((weak, strong), 1))
    assert both.p > 0.05
    assert both.p == pytest.approx(cross_fit_score(right, cases, strong[:, None]).p)
    assert both.gain_interval[0] < 0 < both.gain_interval[1]


def test_ties_are_the_heads_that_cannot_be_told_from_the_best() -> None:
    generator = np.random.default_rng(0)
    cases = np.full(30, 50)
    right = generator.binomial(50, [0.8, 0.8, 0.4, 0.1], (30, 4))
    tied = best_set(ratio_jackknife(right, cases[:, None]))
    assert tied is not None
    assert tied.tolist() == [True, True, False, False]
    least = best_set(ratio_jackknife(right, cases[:, None]), lowest=True)
    assert least is not None
    assert least.tolist() == [False, False, False, True]
    few = ratio_jackknife(right[:3], cases[:3, None])
    assert best_set(few) is None  # three documents test nothing


def test_the_interval_of_r_is_the_jackknife_on_fishers_z() -> None:
    a, b = _sums(10, (20,))
    c = a**2 / b + np.random.default_rng(3).random(a.shape)
    left, right = ratio_jackknife(a, b), ratio_jackknife(c, b)
    z = []
    for part in range(10):
        rest = [np.delete(x, part, 0).sum(0) for x in (a, b, c)]
        z.append(np.arctanh(np.corrcoef(rest[0] / rest[1], rest[2] / rest[1])[0, 1]))
    jackknife = np.mean(z) - z
    error = np.sqrt(0.9 * (jackknife**2).sum())
    skewness = (jackknife**3).sum() / (jackknife**2).sum() ** 1.5
    t = stats.t.ppf(0.975, degrees_of_freedom((b / b.sum(0)).mean(1)))
    center = np.arctanh(correlation(left.value, right.value))
    low, high = np.arctanh(correlation_interval(left, right))
    # At each end the farther of Student's bound and of Hall's, whose transformation gives t there.
    for sign, off in ((1, (center - low) / error), (-1, (center - high) / error)):
        assert sign * off >= t - 1e-9
        hall = off + skewness * off**2 / 3 + skewness**2 * off**3 / 27 + skewness / 6
        assert min(abs(sign * off - t), abs(sign * hall - t)) < 1e-6


def test_what_layers_do_is_taken_out_of_r_within_them() -> None:
    generator = np.random.default_rng(0)
    depth = np.arange(6)[:, None] * 3.0
    left, right = depth + generator.normal(size=(2, 6, 12))
    assert correlation(left.ravel(), right.ravel()) > 0.8
    r, p = within_layers(left, right)
    assert abs(r) < 0.3
    assert p > 0.05
    r, p = within_layers(left, 2 * left + 0.1 * right)
    assert r > 0.9
    assert p < 0.01


def test_the_scale_is_that_of_the_sums_but_for_rounding() -> None:
    a, b = _sums()
    assert scale_of("share of attention", a, b) == "logit"
    assert scale_of("nats", a, b) == scale_of("share of attention", 2 * b, b) == "positive"
    below = np.concatenate((a, [-3e-7])), np.concatenate((b, [1.0]))
    assert scale_of("nats", *below) == "positive"
    assert ratio_jackknife(*below, "positive").df == pytest.approx(
        float(ratio_jackknife(np.maximum(below[0], 0), below[1], "positive").df)
    )
    assert scale_of("nats", a - 0.1 * b.max(), b) == "identity"


def test_parts_of_one_unit_are_added_up() -> None:
    sums = np.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(
        pool(sums, np.array([0, 1, 2, 0, 1, 2]), axis=1), [[3, 15], [5, 17], [7, 19]]
    )


def test_ranks_and_spearmans_rho_are_scipys() -> None:
    values = np.random.default_rng(3).integers(0, 6, (4, 12, 2)).astype(float)  # many are equal
    np.testing.assert_array_equal(ranks(values, axis=1), stats.rankdata(values, axis=1))
    left, right = values[0, :, 0], values[1, :, 1]
    np.testing.assert_allclose(pearson(ranks(left), ranks(right)), stats.spearmanr(left, right))
    values[1, 3, 0] = np.nan
    np.testing.assert_array_equal(ranks(values, axis=1), stats.rankdata(values, axis=1))


def test_shares_are_above_none_and_below_all() -> None:
    of = ratio_jackknife(*_sums(), "logit")
    assert p_above(of, 0.0) == 0
    assert p_above(of, 1.0) == 1


def test_a_thousandth_of_attention_is_no_remainder() -> None:
    """Heads that rest in every document of a sample may not in those that it lacks."""
    b = np.full(20, 50.0)
    rest = b * (1 - np.linspace(1e-6, 9e-4, 20))
    of = ratio_jackknife(rest, b, "logit")
    assert np.isnan(interval(of).low)
    # With a share of 0.85, at most 0.85/0.999 of documents would be whole.
    assert p_above(of, 0.85) == pytest.approx((0.85 / 0.999) ** 20)
    assert p_above(of, 0.9992) == 1
    assert np.isfinite(
        interval(ratio_jackknife(b * (1 - np.linspace(2e-3, 9e-3, 20)), b, "logit")).low
    )


def test_small_whole_parts_say_nothing_against_large_ones() -> None:
    """Sixteen documents of one case, all right; four of a thousand, all but one wrong."""
    cases = np.array([1.0] * 16 + [1000.0] * 4)
    right = np.array([1.0] * 16 + [0.0] * 4)
    assert not p_above(ratio_jackknife(right, cases, "logit"), 0.5) < 0.5
    whole = np.full(20, 50.0)
    almost = whole - np.array([1.0] + [0.0] * 19)
    assert p_above(ratio_jackknife(almost, whole, "logit"), 0.9) < 0.5
    assert p_above(ratio_jackknife(almost, whole, "logit"), 0.5) < 0.001


@pytest.mark.parametrize("planted", [0.0, 0.5, 1.5])
def test_crossed_clusters_hold_planted_effects_of_occupations(planted: float) -> None:
    """Each case has two occupations, as in WinoBias: 40 of them, 196 pairs, two cases each.

    Before, pairs were taken as independent: with planted effects of occupations, intervals held
    the truth too rarely.
    """
    generator = np.random.default_rng(7)
    n_occupations, n_pairs, repetitions = 40, 196, 1500
    dyads = np.stack([np.sort(generator.choice(40, 2, replace=False)) for _ in range(n_pairs)])
    cases = np.repeat(np.arange(n_pairs), 2)
    buckets = generator.integers(0, 64, n_pairs)[cases]
    occupations = generator.normal(size=(n_occupations, repetitions)) * planted
    values = occupations[dyads[cases]].sum(1) + generator.normal(size=(len(cases), repetitions))
    ones = np.ones_like(values)
    by_occupation = [
        sum(pool(np.concatenate((side, np.zeros((1, repetitions)))), np.append(dyads[cases, i], 39))
            for i in (0, 1)) for side in (values, ones)
    ]  # fmt: skip
    buckets = np.unique(buckets, return_inverse=True)[1]
    alone = ratio_jackknife(pool(values, buckets), pool(ones, buckets))
    both = replace(alone, crossed=crossed_jackknife(*by_occupation))
    before, now = (
        float(((i.low <= 0) & (i.high >= 0)).mean()) for i in map(interval, (alone, both))
    )
    assert 0.92 <= now <= 0.97
    assert (before < 0.9) == (planted > 0)
    np.testing.assert_allclose(both.value, values.mean(0))


def test_copies_of_one_text_have_no_interval() -> None:
    values = np.array([[0.1 + 0.2, 0.0, -3.04], [0.3, 0.0, -3.04]] * 3)
    found = over_texts(values, np.ones_like(values), np.arange(6))
    assert np.isnan(found.p[[0, 2]]).all()
    assert np.isnan(found.low[[0, 2]]).all()
    assert found.p[1] == 1  # a head without effect in any text
    varied = over_texts(values * np.arange(1, 7)[:, None], np.ones_like(values), np.arange(6))
    assert np.isfinite(varied.low[[0, 2]]).all()


def test_an_effect_on_the_loss_needs_most_documents() -> None:
    """One odd document decides a total; the sign test has the exact binomial p."""
    odd, even = np.full(12, -0.01), np.full(12, 0.5) + np.arange(12) / 100
    odd[0], even[3] = 5.0, -0.01
    values = np.stack([odd, even], axis=1)
    total = over_texts(values, np.ones_like(values), np.arange(12))
    found = in_most(total, values)
    np.testing.assert_array_equal(found.low, total.low)
    assert found.p[0] == 1.0  # above 0 in total, in one of twelve documents
    eleven_of_twelve = 2 * 13 / 2**12
    assert found.p[1] == pytest.approx(max(eleven_of_twelve, total.p[1]))
