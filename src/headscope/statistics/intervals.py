"""Confidence intervals and tests of jackknife estimates, by Student's t; corrections of p values.

The coverage of 95 % is counted by `python -m studies.errors`. With too few documents, intervals are
NaN. Degrees of freedom need not be whole: with 4, an interval is 2.8 standard errors wide on each
side, with 100 it is 2.0. Of 270 heads without an effect, 13 have p < 0.05: lists and claims are
corrected. NaN (no test was possible) stays NaN and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.lazy import special
from headscope.statistics.jackknife import (
    EPSILON,
    MAX_VARIANCE_EXPONENT,
    VARIANCE_EXPONENT,
    WHOLE,
    Jackknife,
    Scale,
    subtracted,
)

CONFIDENCE = 0.95
ALPHA = 0.05


def t_critical(df: np.ndarray | float, confidence: float = CONFIDENCE) -> np.ndarray:
    """Return the half width of an interval in standard errors; NaN if `df` is NaN."""
    return special.stdtrit(df, (1 + confidence) / 2)


def t_sf(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """Return P(T > t), the p value of a one-sided test."""
    return special.stdtr(df, -np.asarray(t, dtype=np.float64))


def t_two_sided(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """Return P(|T| > |t|), the p value of a two-sided test."""
    return 2 * t_sf(np.abs(t), df)


BOUNDS = ("low", "high")
MIN_BUCKETS = 5
"""Minimum number of buckets with events, and for shares with non-events, for an interval."""
MIN_DF = 2.0
SHARE_SKEWNESS_FRACTION, POSITIVE_SKEWNESS_FRACTION = 1 / 3, 1 / 2
"""Fractions of the skewness used in tests of lists of heads. For shares they apply if skewness
lowers t, for positive values if it raises t. Error rates hold with these (`studies.errors`); larger
fractions would cost up to half of the power."""
MIN_DOWNWARD_SKEWNESS = 1.0
"""Minimum downward skewness in tests of shares: 1/√n for n documents. A small sample mostly lacks
the rare documents without an attention sink."""
MAX_SKEWNESS_FACTOR, MAX_HIDDEN_SKEWNESS = 4.0, 2.5
"""Bounds of the skewness at the upper end of positive values: a factor, and a maximum to be divided
by the effective number of documents."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of values, and the effective number of documents behind them."""

    low: np.ndarray
    high: np.ndarray
    documents: np.ndarray
    """Effective number of documents, df + 1; NaN without an interval."""

    @property
    def bounds(self) -> np.ndarray:
        """`bound …`."""
        return np.stack((self.low, self.high))


def interval(estimate: Jackknife, confidence: float = CONFIDENCE) -> Interval:
    """Return the Student-t interval of a jackknife estimate.

    Shares: g(θ) ± t_df · SE · g′(θ) on log odds g, transformed back. SE is the jackknife's (Efron &
    Stein 1981), df are Bell & McCaffrey's (2002).

    Positive values and their differences: θ − H⁻¹(±t_df) · SE with Hall's (1992) transformation of
    a skewed statistic (`hall_transform`). The upper end of a positive value is the farther of that
    and the same with `skewness_bound`.

    NaN if df < 2 or fewer than five buckets have events.
    """
    df = np.where(is_enough(estimate), estimate.df, np.nan)
    error, t = np.sqrt(estimate.variance), t_critical(df, confidence)
    if estimate.scale in ("positive", "skewed"):
        skewness = estimate.skewness
        low, high = (estimate.value - hall_inverse(sign * t, skewness) * error for sign in (1, -1))
        if estimate.scale == "positive":
            farther = estimate.value - hall_inverse(-t, skewness_bound(skewness, df + 1)) * error
            low, high = np.maximum(low, 0.0), np.maximum(high, farther)
        return Interval(low, high, df + 1)
    center, slope = _transformed(estimate.value, estimate.scale)
    low, high = (center + sign * t * error * slope for sign in (-1, 1))
    if estimate.scale == "logit":
        with np.errstate(over="ignore"):
            low, high = (1 / (1 + np.exp(-end)) for end in (low, high))
    return Interval(low, high, df + 1)


def hall_transform(t: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Remove the skewness from a studentized value (Hall 1992, eq. 2).

    H(t) = t + γ t²/3 + γ² t³/27 + γ/6. A sample without its rare long documents underestimates both
    the mean and the error; γ says by how much.
    """
    with np.errstate(invalid="ignore"):
        transformed = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
    return np.where(np.isinf(t), t, transformed)  # all changes are 0


def hall_inverse(t: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Invert `hall_transform`: (3/γ)·((1 + γ (t − γ/6))^⅓ − 1), which is t if γ is 0."""
    is_skewed = np.abs(skewness) > EPSILON
    gamma = np.where(is_skewed, skewness, 1.0)
    inverse = 3 / gamma * (np.cbrt(1 + gamma * (t - gamma / 6)) - 1)
    return np.where(is_skewed, inverse, t)


def skewness_bound(skewness: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Return an upper bound of the skewness: max(γ, min(4 γ, 2.5/n)).

    A small sample mostly lacks the rare long document that skews a mean, so γ is underestimated.
    Nothing changes if γ ≤ 0 or the effective number of documents n is large.
    """
    with np.errstate(invalid="ignore"):
        return np.fmax(
            skewness, np.minimum(MAX_SKEWNESS_FACTOR * skewness, MAX_HIDDEN_SKEWNESS / documents)
        )


def conservative_t(t: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Return the nearer to 0 of t and `hall_transform(t)`; 0 if their signs differ.

    If few buckets lower a difference, a sample without them overestimates t, and the transformation
    corrects that. If few buckets raise it, plain t is conservative: skewness estimated from few
    documents must not make a head significant.
    """
    with np.errstate(invalid="ignore"):
        transformed = np.sign(t) * hall_transform(t, skewness)
        nearer = np.sign(t) * np.clip(transformed, 0.0, np.abs(t))
    return np.where((skewness == 0) | np.isinf(t), t, nearer)


def p_above(estimate: Jackknife, threshold: np.ndarray | float = 0.0) -> np.ndarray:
    """`…`: return p of the one-sided test H0: value ≤ threshold, on the scale of its interval.

    The test is read in lists of heads, far in the tail, and is more conservative than an interval.

    Shares use the degrees of freedom of differences (`MAX_VARIANCE_EXPONENT`) and `conservative_t`
    with a third of the skewness (Hall 1992), at most −1/√n for n effective documents. Positive
    values use `hall_transform`, with half of a positive skewness.

    A share near 1 in nearly every bucket is tested by a binomial test: for a share of τ, at most a
    fraction τ of equal buckets is whole.
    """
    if estimate.scale == "logit":
        t, df = _student(replace(estimate, variance_exponent=MAX_VARIANCE_EXPONENT), threshold)
        with np.errstate(invalid="ignore"):
            skewness = np.fmin(estimate.skewness, -MIN_DOWNWARD_SKEWNESS / np.sqrt(df + 1))
        p = t_sf(conservative_t(t, SHARE_SKEWNESS_FRACTION * skewness), df)
        return np.where(np.isfinite(p), p, _p_of_whole_buckets(estimate, threshold))
    if estimate.scale == "positive":
        t, df = _student(estimate, threshold)
        skewness = estimate.skewness
        skewness = np.where(skewness > 0, POSITIVE_SKEWNESS_FRACTION * skewness, skewness)
        return t_sf(hall_transform(t, skewness), df)
    return t_sf(*_statistic(estimate, threshold))


def p_differs(estimate: Jackknife, threshold: np.ndarray | float = 0.0) -> np.ndarray:
    """`…`: return p of the two-sided test H0: value = threshold; 1 if they are equal."""
    t, df = _statistic(estimate, threshold)
    return t_two_sided(t, df)


def is_enough(estimate: Jackknife) -> np.ndarray:
    """`…`: return whether an interval of the value, or of its difference, has enough documents."""
    hits = estimate.has_events.sum(0)
    if estimate.scale == "logit":
        hits = np.minimum(hits, estimate.has_non_events.sum(0))
    df = replace(estimate, variance_exponent=VARIANCE_EXPONENT).df
    with np.errstate(invalid="ignore"):
        return (hits >= MIN_BUCKETS) & (df >= MIN_DF)


def _p_of_whole_buckets(estimate: Jackknife, threshold: np.ndarray | float) -> np.ndarray:
    """Return the binomial p value of a share near 1; NaN if five buckets or more are not whole.

    P(k of n documents are whole | τ) = I_τ(k, n − k + 1), with n the effective number of documents
    and k the share of it in whole buckets. Whole buckets have a share of at least 1 − `WHOLE`, so
    at most τ/(1 − `WHOLE`) of buckets are whole.
    """
    missed = estimate.has_non_events.sum(0)
    n = estimate.df + 1
    k = n * (estimate.denominator_shares * ~estimate.has_non_events).sum(0)
    with np.errstate(invalid="ignore"):
        is_testable = (
            (missed < MIN_BUCKETS) & (estimate.n_buckets >= MIN_BUCKETS) & (estimate.df >= MIN_DF)
        )
        most = np.minimum(np.asarray(threshold) / (1 - WHOLE), 1.0)
        p = special.betainc(k, n - k + 1, most)
    return np.where(is_testable & (k > 0), p, np.nan)


def _statistic(estimate: Jackknife, threshold: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Return the statistic that agrees with the interval, and its degrees of freedom."""
    t, df = _student(estimate, threshold)
    if estimate.scale == "positive":
        bounds = (estimate.skewness, skewness_bound(estimate.skewness, df + 1))
        plain, farther = (hall_transform(t, skewness) for skewness in bounds)
        t = np.where(t == 0, 0.0, np.where(t < 0, np.fmax(plain, farther), plain))
    elif estimate.scale == "skewed":
        t = conservative_t(t, estimate.skewness)
    return t, df


def _student(estimate: Jackknife, threshold: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Return Student's t on the scale of the estimate, without a correction for skewness."""
    df = np.where(is_enough(estimate), estimate.df, np.nan)
    center, slope = _transformed(estimate.value, estimate.scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        against, _ = _transformed(np.asarray(threshold, dtype=np.float64), estimate.scale)
        off = subtracted(center, against)
        t = off / (np.sqrt(estimate.variance) * slope)
    return np.where(off == 0, 0.0, t), df


def _transformed(value: np.ndarray, scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        if scale == "logit":
            return np.log(value / (1 - value)), 1 / (value * (1 - value))
    return value, np.ones_like(value)


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Control the false discovery rate: of the heads below 0.05, on average at most 5 % are false.

    With p₍₁₎ ≤ … ≤ p₍ₙ₎: min over k ≥ i of n·p₍ₖ₎/k (Benjamini & Hochberg 1995). Use it for lists
    to explore. It holds for positively correlated tests (Benjamini & Yekutieli 2001), as heads over
    one corpus are.
    """
    order, p_sorted = _tested(p)
    n = len(order)
    scaled = p_sorted * n / np.arange(1, n + 1)
    return _restored(p, order, np.minimum.accumulate(scaled[::-1])[::-1])


def holm(p: np.ndarray) -> np.ndarray:
    """Control the family-wise error: below 0.05, the chance of any false claim is at most 5 %.

    max over k ≤ i of (n − k + 1)·p₍ₖ₎ (Holm 1979). Use it for claims in a report. It holds for any
    dependence between the tests.
    """
    order, p_sorted = _tested(p)
    n = len(order)
    return _restored(p, order, np.maximum.accumulate(p_sorted * (n - np.arange(n))))


def _tested(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of finite p values, lowest first, and these values."""
    flat = np.asarray(p, dtype=np.float64).ravel()
    tested = np.flatnonzero(np.isfinite(flat))
    order = tested[np.argsort(flat[tested], kind="stable")]
    return order, flat[order]


def _restored(p: np.ndarray, order: np.ndarray, adjusted: np.ndarray) -> np.ndarray:
    corrected = np.full(np.size(p), np.nan)
    corrected[order] = np.minimum(adjusted, 1.0)
    return corrected.reshape(np.shape(p))
