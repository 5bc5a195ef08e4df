"""Jackknife estimates of corpus statistics. Intervals and tests are in `intervals`.

Documents are hashed into 64 buckets. Sentences of one document share a bucket, because they are not
independent. The leave-one-out change of bucket g is θ − θ₍₋g₎ (Efron & Stein 1981).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

Scale = Literal["logit", "positive", "skewed", "identity"]
"""Scale on which errors are about symmetric.

`logit`: log odds of shares. `positive`: numbers without an upper bound (distances), skewed by long
documents. `skewed`: differences of such numbers, skewed in either direction.
"""

EPSILON = 1e-12
VARIANCE_EXPONENT = 1.5
"""Exponent for partly correlated words: 1 is independent words, 2 is identical words."""
MAX_VARIANCE_EXPONENT = 2.0
"""Exponent for differences, which are read in lists of many heads, far in the tail of Student's t.
"""
ROUNDING = 1e-6
"""Tolerance for attention rows that sum to 1."""
WHOLE = 1e-3
"""Shares nearer to 1 than this count as 1. A sample may lack the few documents in which an
attention sink is not used; its share is then too high and its error too small."""


@dataclass(frozen=True, slots=True)
class Jackknife:
    """Values with the leave-one-out change of each bucket; 0 for buckets without documents."""

    value: np.ndarray
    """`…`"""
    deltas: np.ndarray
    """`bucket …`: leave-one-out changes θ − θ₍₋g₎; 0 for buckets without documents."""
    denominator_shares: np.ndarray
    """`bucket …`: share of each bucket in the denominator."""
    has_events: np.ndarray
    """`bucket …`: true if the bucket's numerator is not 0."""
    has_non_events: np.ndarray
    """`bucket …`: true if the bucket's numerator is below its denominator."""
    scale: Scale = "identity"
    numerator_shares: np.ndarray | None = None
    """`bucket …`: share of each bucket in a numerator of another kind (distances over tokens). The
    less even of both sums determines `df`."""
    variance_exponent: float = VARIANCE_EXPONENT
    """Exponent of b in the variance of a bucket's sum, for `df`."""
    crossed: Jackknife | None = None
    """The same values by clusters that cross buckets, two to a case (`crossed_jackknife`)."""
    means_of_buckets: np.ndarray | None = None
    """`bucket …`: of a mean over heads, the mean of their `bucket_values`."""

    @property
    def bucket_values(self) -> np.ndarray:
        """`bucket …`: value of each bucket, θ + u_g (1 − p_g)/p_g; NaN without documents.

        For a ratio of sums that is a_g/b_g, for other statistics Tukey's pseudo-value.
        """
        if self.means_of_buckets is not None:
            return self.means_of_buckets
        p = self.denominator_shares
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(p > 0, self.value + self.deltas * (1 - p) / p, np.nan)

    @property
    def n_buckets(self) -> np.ndarray:
        """`…`: number of buckets with documents."""
        return (self.denominator_shares > 0).sum(0)

    @property
    def variance(self) -> np.ndarray:
        """`…`: SE² = (G − 1)/G · Σ u_g², over the G buckets with documents.

        With crossed clusters, their variance minus this one, which they count twice, if larger
        (Cameron, Gelbach & Miller 2011; Aronow, Samii & Assenova 2015).
        """
        n = self.n_buckets
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(n > 1, (n - 1) / n, np.nan) * (self.deltas**2).sum(0)
            if self.crossed is None:
                return variance
            return np.fmax(self.crossed.variance - variance, variance)

    @property
    def skewness(self) -> np.ndarray:
        """`…`: skewness of the error, positive if few buckets raise the value."""
        return skewness_of(self.deltas)

    @property
    def df(self) -> np.ndarray:
        """`…`: degrees of freedom of the variance (`degrees_of_freedom`)."""
        df = degrees_of_freedom(self.denominator_shares, self.variance_exponent)
        if self.crossed is not None:
            df = np.fmin(df, self.crossed.df)
        if self.numerator_shares is None:
            return df
        return np.fmin(df, degrees_of_freedom(self.numerator_shares, self.variance_exponent))

    def changed(self, value: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> Jackknife:
        """Return other values whose arrays by bucket are one function of these."""
        names = ["deltas", "denominator_shares", "has_events", "has_non_events"]
        names += ["numerator_shares", "means_of_buckets"]
        arrays = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {n: change(a) for n, a in arrays.items() if a is not None}
        if self.crossed is not None:
            changed["crossed"] = self.crossed.changed(value, change)
        return replace(self, value=value, **changed)

    def at(self, *index: int | slice | None) -> Jackknife:
        """Return the values at an index of the axes after `bucket`, as NumPy indexes."""
        full_index = (slice(None), *index)
        return self.changed(np.asarray(self.value)[index], lambda array: array[full_index])

    def flat(self) -> Jackknife:
        """Return the same values along one axis."""
        value = np.asarray(self.value).reshape(-1)
        return self.changed(value, lambda array: array.reshape(len(array), -1))

    def mean(self, axes: tuple[int, ...]) -> Jackknife:
        """Return the mean over axes (heads): the leave-one-out changes are averaged first.

        Heads read the same documents, so their errors do not cancel as independent errors would.
        NaN values are left out.
        """
        value = np.asarray(self.value)
        axes = tuple(axis % value.ndim for axis in axes)
        is_known = np.isfinite(value)
        by_bucket = tuple(axis + 1 for axis in axes)

        def averaged(array: np.ndarray, over: tuple[int, ...] = by_bucket) -> np.ndarray:
            if array.dtype == bool:
                return (array & is_known).any(over)
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(is_known, array, 0.0).sum(over) / is_known.sum(axes)

        buckets = self.bucket_values
        means = ratio(np.nansum(buckets, by_bucket), np.isfinite(buckets).sum(by_bucket))
        averages = replace(self, means_of_buckets=None).changed(averaged(value, axes), averaged)
        return replace(averages, means_of_buckets=means)

    def __sub__(self, other: Jackknife) -> Jackknife:
        """Return the difference of two values over the same buckets.

        The effect of a document on both cancels, so a paired difference is more precise than either
        value. The degrees of freedom are those of the less even side, with `MAX_VARIANCE_EXPONENT`.
        """
        is_skewed = {self.scale, other.scale} & {"positive", "skewed"}
        deltas = self.deltas - other.deltas
        least, fewest = self.denominator_shares, degrees_of_freedom(self.denominator_shares)
        for shares in (self.numerator_shares, other.denominator_shares, other.numerator_shares):
            if shares is not None:
                df = degrees_of_freedom(shares)
                is_less = df < fewest
                least, fewest = np.where(is_less, shares, least), np.where(is_less, df, fewest)
        return Jackknife(
            subtracted(self.value, other.value),
            deltas,
            np.broadcast_to(least, deltas.shape),
            self.has_events | other.has_events,
            self.has_non_events | other.has_non_events,
            "skewed" if is_skewed else "identity",
            variance_exponent=MAX_VARIANCE_EXPONENT,
            crossed=self.crossed - other.crossed if self.crossed and other.crossed else None,
        )


def skewness_of(deltas: np.ndarray) -> np.ndarray:
    """`…`: return γ = Σ u_g³ / (Σ u_g²)^1.5 of leave-one-out changes, 0 if all are 0."""
    squared = deltas * deltas
    squares, cubes = squared.sum(0), (squared * deltas).sum(0)  # deltas**3 is slow in NumPy
    return ratio(cubes, squares**1.5, 0.0)


def ratio(numerator: np.ndarray, denominator: np.ndarray, empty: float = np.nan) -> np.ndarray:
    """Return numerator over denominator, `empty` unless the denominator is positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / denominator, empty)


def subtracted(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the difference of two arrays, 0 where they are equal up to rounding."""
    difference = np.asarray(left - right)
    size = np.abs(left) + np.abs(right)
    is_rounding = np.isfinite(size) & (np.abs(difference) <= EPSILON * size)
    return np.where(is_rounding, 0.0, difference)


def ratio_jackknife(
    numerator: np.ndarray, denominator: np.ndarray, scale: Scale = "identity"
) -> Jackknife:
    """Return the jackknife of a ratio of sums, in closed form.

    With sums a_g and b_g by bucket (`bucket …`), θ = Σa/Σb; without bucket g it is (Σa − a_g)/(Σb −
    b_g). Therefore u_g = θ − θ₍₋g₎ = (a_g − θ b_g) / (Σb − b_g).
    """
    numerator = np.asarray(numerator, dtype=np.float64)
    denominator = np.asarray(denominator, dtype=np.float64)
    total, has_documents = denominator.sum(0), denominator > 0
    value = ratio(numerator.sum(0), total)
    with np.errstate(divide="ignore", invalid="ignore"):
        deltas = (numerator - value * denominator) / (total - denominator)
    positive = np.maximum(numerator, 0.0)  # non-negative up to rounding
    return Jackknife(
        value,
        np.where(has_documents & np.isfinite(deltas), deltas, 0.0),
        np.broadcast_to(ratio(denominator, total, 0.0), deltas.shape),
        has_documents & (numerator != 0),
        has_documents & (np.abs(denominator - numerator) > WHOLE * denominator),
        scale,
        ratio(positive, positive.sum(0), 0.0) if scale == "positive" else None,
    )


def crossed_jackknife(
    numerator: np.ndarray, denominator: np.ndarray, scale: Scale = "identity"
) -> Jackknife:
    """Return the jackknife over clusters, with each case in the sums of two of them."""
    estimate = ratio_jackknife(numerator, denominator, scale)
    return replace(estimate, deltas=2 * estimate.deltas)


def scale_of(units: str, numerator: np.ndarray, denominator: np.ndarray) -> Scale:
    """Return the scale of a ratio's interval, from its units and the signs of its sums. Values
    below 0 by rounding alone count as positive.
    """
    if (numerator < -ROUNDING * denominator).any():
        return "identity"
    is_share = units.startswith("share") and bool((numerator <= (1 + ROUNDING) * denominator).all())
    return "logit" if is_share else "positive"


def jackknife_from_values(
    value: np.ndarray, without: np.ndarray, sizes: np.ndarray, scale: Scale = "identity"
) -> Jackknife:
    """Return the jackknife of a statistic that was recomputed without each bucket.

    `without` (`bucket …`) is the statistic without each bucket, `sizes` (`bucket`) the size of each
    bucket, such as its documents; 0 if empty.
    """
    by_bucket = np.asarray(sizes, dtype=np.float64).reshape(-1, *(1,) * np.ndim(value))
    has_documents = np.broadcast_to(by_bucket > 0, without.shape)
    deltas = np.where(has_documents & np.isfinite(without), value - without, 0.0)
    shares = np.broadcast_to(ratio(by_bucket, by_bucket.sum(), 0.0), without.shape)
    return Jackknife(np.asarray(value), deltas, shares, has_documents, has_documents, scale)


def degrees_of_freedom(
    denominator_shares: np.ndarray, variance_exponent: float = VARIANCE_EXPONENT
) -> np.ndarray:
    """`…`: return the degrees of freedom of a jackknife variance.

    Satterthwaite's approximation after Bell & McCaffrey (2002). Residuals e_g have the variance ω_g
    = b_g^`variance_exponent`. The leave-one-out changes are M e with M = diag(1/(1 − p_g)) (I − p
    1ᵀ) and p = b/Σb, so that

        df = tr(M Ω Mᵀ)² / tr((M Ω Mᵀ)²).

    G equal buckets have df = G − 1. One bucket with most of the words lowers df to 1. Results show
    df + 1 as the effective number of documents.
    """
    p = np.asarray(denominator_shares, dtype=np.float64)
    is_usual = variance_exponent == VARIANCE_EXPONENT
    omega = p * np.sqrt(p) if is_usual else p**variance_exponent  # p**1.5 is slow
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / (1 - p)
        s, q, r = scale**2 * omega, scale * p, scale * omega
        total = omega.sum(0)
        v = total / 2 * q - r
        # M Ω Mᵀ = diag(s) + q vᵀ + v qᵀ: its traces need no matrix.
        trace = (s + 2 * q * v).sum(0)
        squares = (
            (s**2).sum(0)
            + 4 * (s * q * v).sum(0)
            + 2 * (q * v).sum(0) ** 2
            + 2 * (q**2).sum(0) * (v**2).sum(0)
        )
        df: np.ndarray = trace**2 / squares
    return np.where(np.isfinite(df) & ((p > 0).sum(0) > 1), df, np.nan)


def pool(sums: np.ndarray, units: np.ndarray, axis: int = 0) -> np.ndarray:
    """`unit …`: return sums over the buckets of each unit, with the axis of units first. `units`
    (`bucket`) numbers the unit of each bucket; `axis` is that of the buckets in `sums`.
    """
    by_bucket = np.moveaxis(sums, axis, 0)
    n = int(units.max()) + 1 if len(units) else 0
    if n == len(units) and (units == np.arange(n)).all():
        return by_bucket
    pooled = np.zeros((n, *by_bucket.shape[1:]))
    np.add.at(pooled, units, by_bucket)
    return pooled


MAX_DENOMINATOR_SHARE = 0.25
"""Share of a denominator above which one bucket dominates it."""
MAX_SHARE_RATIO = 4.0
"""Multiple of the mean share that a dominating bucket also exceeds."""


def largest_share(estimate: Jackknife) -> tuple[float, int]:
    """Return the largest share of one bucket in the denominator, and the number of that bucket.

    Shares are averaged over heads. One document of 9,000 words among twenty of 300 dominates a mean
    over words. Cut long documents (`max_tokens`), or draw as many sentences of each document.
    """
    shares = estimate.denominator_shares
    shares = shares.mean(tuple(range(1, shares.ndim))) if shares.ndim > 1 else shares
    return float(shares.max()), int(shares.argmax())


def is_dominated(estimate: Jackknife) -> bool:
    """Return whether one bucket has over a quarter of the sum and four times the mean share."""
    share, _ = largest_share(estimate)
    heads = tuple(range(1, estimate.denominator_shares.ndim))
    n = int((estimate.denominator_shares > 0).any(heads).sum())
    return n > 1 and share > MAX_DENOMINATOR_SHARE and share * n > MAX_SHARE_RATIO


MAX_INFLUENCE = 0.5
"""Share of the squared leave-one-out changes above which one bucket drives a value."""
MAX_INFLUENCE_RATIO = 10.0
"""Multiple of the mean share that a driving bucket also exceeds: with few buckets, one is always
large."""


def largest_influence(estimate: Jackknife) -> np.ndarray:
    """`…`: return the largest share of one bucket in the jackknife variance, u_g²/Σu².

    A short document can drive a value, if a head behaves differently there. A sample without it
    would underestimate the error. NaN if all changes are 0.
    """
    squares = estimate.deltas * estimate.deltas
    return ratio(squares.max(0), squares.sum(0))


def is_driven_by_one(estimate: Jackknife) -> np.ndarray:
    """`…`: return whether one bucket has over half of the variance and ten times the mean share."""
    largest = largest_influence(estimate)
    with np.errstate(invalid="ignore"):
        return (largest > MAX_INFLUENCE) & (largest * estimate.n_buckets > MAX_INFLUENCE_RATIO)
