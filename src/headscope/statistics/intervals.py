"""Intervals that hold what they promise, from five documents on.

An interval says in which range the number of the whole population of such documents lies; made
over and over from new documents, 95 of 100 hold it (`python -m studies.errors` counts). Where no
interval can keep that promise there is none.

Student's t: quantiles and tails, with degrees of freedom that need not be whole.

Few documents make a standard error uncertain itself. Student's distribution allows for that: with
4 degrees of freedom a 95 % interval is 2.8 standard errors wide on each side, with 100 it is 2.0.
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

LEVEL = 0.95
"""Of all intervals."""


def t_critical(df: np.ndarray | float, level: float = LEVEL) -> np.ndarray:
    """The half width of an interval in standard errors; NaN where there is no `df`."""
    values: np.ndarray = special.stdtrit(df, (1 + level) / 2)
    return values


def t_sf(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """The probability of a value above `t` by chance: p of a one-sided test."""
    values: np.ndarray = special.stdtr(df, -np.asarray(t, dtype=np.float64))
    return values


def t_two_sided(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """The probability of a value farther from 0 than `t`: p of a two-sided test."""
    return 2 * t_sf(np.abs(t), df)


BOUNDS = ("low", "high")
MIN_BUCKETS = 5
"""Fewer buckets with anything to count (or anything not to) give no interval."""
MIN_DF = 2.0
OF_SHARES, OF_POSITIVE = 1 / 3, 1 / 2
"""So much of the skewness counts in lists of heads against a number: of a share where it makes a
head less sure, of a positive number where it makes a head surer. Lists held their error rates with
these (`studies.errors`); more care would cost up to half of the power."""
OF_DOCUMENTS = 1.0
"""In lists of shares, documents are taken to be at least so skewed downward: the error of n of them
by 1/√n. Rare documents in which heads do not rest are mostly not in a sample of few."""
MAX_SKEWNESS_FACTOR, MAX_HIDDEN_SKEWNESS = 4.0, 2.5
"""At the upper end of an interval of a positive number, skewness may be so many times what it
seems, up to so much divided by the effective number of documents."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of numbers, and how many documents they rest on."""

    low: np.ndarray
    high: np.ndarray
    documents: np.ndarray
    """The effective number of documents, df + 1; NaN where there is no interval."""

    @property
    def bounds(self) -> np.ndarray:
        """`bound …`."""
        return np.stack((self.low, self.high))


def interval(of: Jackknife, level: float = LEVEL) -> Interval:
    """The interval of a number from the pulls of the buckets of its corpus.

    Shares: g(θ) ± t_df · SE · g′(θ) with g the log odds, brought back to the scale of θ: the
    delete-one jackknife's standard error (Efron & Stein 1981), Student's t with Bell & McCaffrey's
    (2002) degrees of freedom. What is positive without bound, and differences of such:
    θ − H⁻¹(±t_df) · SE, with Hall's (1992) transformation of a skewed statistic (`hall_transform`). The
    upper end of a positive number is the farther of that and the same with the skewness that few
    documents may hide (`skewness_bound`). NaN where df < 2 or fewer than five buckets have anything to
    count: too few documents.
    """
    df = np.where(is_enough(of), of.df, np.nan)
    error, t = np.sqrt(of.variance), t_critical(df, level)
    if of.scale in ("positive", "skewed"):
        skewness = of.skewness
        low, high = (of.value - hall_inverse(sign * t, skewness) * error for sign in (1, -1))
        if of.scale == "positive":
            farther = of.value - hall_inverse(-t, skewness_bound(skewness, df + 1)) * error
            low, high = np.maximum(low, 0.0), np.maximum(high, farther)
        return Interval(low, high, df + 1)
    center, slope = _transformed(of.value, of.scale)
    low, high = (_back(center + sign * t * error * slope, of.scale) for sign in (-1, 1))
    return Interval(low, high, df + 1)


def hall_transform(t: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """A studentized number as it would be if its errors were not skewed (Hall 1992, eq. 2).

    H(t) = t + γ t²/3 + γ² t³/27 + γ/6. A sample without its rare long documents has too small a
    mean and too small an error at once; the skewness γ of those it has tells how much.
    """
    with np.errstate(invalid="ignore"):
        transformed = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
    return np.where(np.isinf(t), t, transformed)  # where no bucket pulls at all


def hall_inverse(t: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """The inverse of `hall_transform`: (3/γ)·((1 + γ (t − γ/6))^⅓ − 1), which is t where γ is 0."""
    is_skewed = np.abs(skewness) > EPSILON
    gamma = np.where(is_skewed, skewness, 1.0)
    inverse = 3 / gamma * (np.cbrt(1 + gamma * (t - gamma / 6)) - 1)
    return np.where(is_skewed, inverse, t)


def skewness_bound(skewness: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """The skewness that few documents may hide: max(γ, min(4 γ, 2.5/n)).

    The rare long document that makes a mean skewed is mostly not in a sample of few: γ is then too
    small, and so are the mean and its error. With n effective documents it is taken to be up to
    four times what it seems. Where γ is not above 0, or n is large, nothing changes.
    """
    with np.errstate(invalid="ignore"):
        most: np.ndarray = np.fmax(
            skewness, np.minimum(MAX_SKEWNESS_FACTOR * skewness, MAX_HIDDEN_SKEWNESS / documents)
        )
    return most


def conservative_t(t: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """The nearer to 0 of a studentized difference and the same unskewed; 0 if they disagree.

    Where few buckets pull a difference down, a sample without them has it too high with too small an
    error, and `hall_transform` takes that back; where few pull it up, the plain statistic is the careful
    one, because a skewness estimated from few documents must not make a head stand out.
    """
    with np.errstate(invalid="ignore"):
        transformed = np.sign(t) * hall_transform(t, skewness)
        nearer = np.sign(t) * np.clip(transformed, 0.0, np.abs(t))
    return np.where((skewness == 0) | np.isinf(t), t, nearer)


def p_above(of: Jackknife, threshold: np.ndarray | float = 0.0) -> np.ndarray:
    """`…`: p of the one-sided test that a number is at most a threshold, on its interval's scale.

    Small where the data would be rare if the head were not above the threshold. It is read in
    lists of heads, far out in the tail, and more careful there than an interval. Log odds can
    still be skewed: rare documents that pull all heads down make a sample without them look surer
    than it is. So t of a share has the degrees of freedom of differences (`MAX_VARIANCE_EXPONENT`) and is `conservative_t`
    about a third of the skewness (Hall 1992), which is taken to be −1/√n or less of n effective
    documents; t of a positive number is `hall_transform`, by half where
    that would raise it: estimated from few documents, skewness must not make a head stand out.
    A share that is 1 in nearly every bucket has no interval, and is tested by its whole buckets: if
    the share were τ, at most τ of equal buckets would be whole, so p is the binomial probability of
    so many.
    """
    if of.scale == "logit":
        t, df = _student(replace(of, variance_exponent=MAX_VARIANCE_EXPONENT), threshold)
        with np.errstate(invalid="ignore"):
            skewness = np.fmin(of.skewness, -OF_DOCUMENTS / np.sqrt(df + 1))
        p = t_sf(conservative_t(t, OF_SHARES * skewness), df)
        return np.where(np.isfinite(p), p, _p_of_whole_buckets(of, threshold))
    if of.scale == "positive":
        t, df = _student(of, threshold)
        skewness = of.skewness
        skewness = np.where(skewness > 0, OF_POSITIVE * skewness, skewness)
        return t_sf(hall_transform(t, skewness), df)
    return t_sf(*_statistic(of, threshold))


def p_differs(of: Jackknife, threshold: np.ndarray | float = 0.0) -> np.ndarray:
    """`…`: p of the two-sided test that a number is a threshold; 1 where it is exactly that."""
    t, df = _statistic(of, threshold)
    return t_two_sided(t, df)


def mean_interval(values: np.ndarray, level: float = LEVEL) -> Interval:
    """The interval of a mean over independent texts: the mean ± t · s/√n, n − 1 degrees.

    For numbers measured once on each text, such as what removing a head does to a prediction.
    Student (1908); it needs no more than three texts, but at five and below it leans on the
    values being about normal, which differences mostly are.

    Args:
        values: `text …`; NaN are left out.
        level: of the interval.
    """
    values = np.asarray(values, dtype=np.float64)
    mean, error, df = mean_and_error(values)
    half = t_critical(df, level) * error
    return Interval(mean - half, mean + half, df + 1)


def mean_p(values: np.ndarray, threshold: float = 0.0) -> np.ndarray:
    """`…`: p of the two-sided t test that the mean over texts is a threshold."""
    mean, error, df = mean_and_error(np.asarray(values, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = t_two_sided((mean - threshold) / error, df)
    return np.where((mean == threshold) & np.isfinite(df), 1.0, p)


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis, its standard error and degrees of freedom; NaN below 3 values."""
    is_known = np.isfinite(values)
    n = is_known.sum(0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(is_known, values, 0.0).sum(0) / n
        off = np.where(is_known, values - mean, 0.0)
        error = np.sqrt((off**2).sum(0) / (n - 1) / n)
    df = np.where(n - 1 >= MIN_DF, n - 1, np.nan)
    return mean, error, df


def is_enough(of: Jackknife) -> np.ndarray:
    """`…`: are there documents enough for an interval? One rule for numbers and differences, which
    have fewer degrees of freedom (`MAX_VARIANCE_EXPONENT`) but no fewer documents.
    """
    hits = of.has_events.sum(0)
    if of.scale == "logit":
        hits = np.minimum(hits, of.has_non_events.sum(0))
    df = replace(of, variance_exponent=VARIANCE_EXPONENT).df
    with np.errstate(invalid="ignore"):
        enough: np.ndarray = (hits >= MIN_BUCKETS) & (df >= MIN_DF)
    return enough


def _p_of_whole_buckets(of: Jackknife, threshold: np.ndarray | float) -> np.ndarray:
    """P(at least so many of n documents are whole | τ) = I_τ(k, n − k + 1), where fewer than five
    buckets are not whole; else NaN. n is the effective number of documents, and k the part of it
    that whole buckets hold: many small whole buckets say nothing against few large ones. Whole buckets
    have a share of at least 1 − `WHOLE`, so that at most τ/(1 − `WHOLE`) of buckets can be.
    """
    missed = of.has_non_events.sum(0)
    n = of.df + 1
    k = n * (of.denominator_shares * ~of.has_non_events).sum(0)
    with np.errstate(invalid="ignore"):
        is_asked = (missed < MIN_BUCKETS) & (of.n_buckets >= MIN_BUCKETS) & (of.df >= MIN_DF)
        most = np.minimum(np.asarray(threshold) / (1 - WHOLE), 1.0)
        p = special.betainc(k, n - k + 1, most)
    tested: np.ndarray = np.where(is_asked & (k > 0), p, np.nan)
    return tested


def _statistic(of: Jackknife, threshold: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The statistic that agrees with the interval, and its degrees of freedom."""
    t, df = _student(of, threshold)
    if of.scale == "positive":
        skewness = of.skewness
        plain, farther = (
            hall_transform(t, skewness),
            hall_transform(t, skewness_bound(skewness, df + 1)),
        )
        t = np.where(t == 0, 0.0, np.where(t < 0, np.fmax(plain, farther), plain))
    elif of.scale == "skewed":
        t = conservative_t(t, of.skewness)
    return t, df


def _student(of: Jackknife, threshold: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Student's t on the scale of a number, as if its errors were not skewed."""
    df = np.where(is_enough(of), of.df, np.nan)
    center, slope = _transformed(of.value, of.scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        against, _ = _transformed(np.asarray(threshold, dtype=np.float64), of.scale)
        off = subtracted(center, against)
        t = off / (np.sqrt(of.variance) * slope)
    return np.where(off == 0, 0.0, t), df


def _transformed(value: np.ndarray, scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    """g(θ) and g′(θ)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if scale == "logit":
            return np.log(value / (1 - value)), 1 / (value * (1 - value))
    return value, np.ones_like(value)


def _back(center: np.ndarray, scale: Scale) -> np.ndarray:
    if scale == "logit":
        with np.errstate(over="ignore"):
            share: np.ndarray = 1 / (1 + np.exp(-center))
            return share
    return center
