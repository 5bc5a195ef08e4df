"""How far each bucket of a corpus pulls a number: all that intervals and tests are made of.

A hash of its content deals each document into one of 64 buckets. Sentences of one document share a
bucket, because they are not independent draws. The *pull* of a bucket is how much lower the number
would be without it, θ − θ₍₋g₎: the delete-one jackknife (Efron & Stein 1981). For a ratio of sums
it needs no second computation (`ratio_jackknife`).

Sums that one document dominates: no interval can speak for documents that are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Scale = Literal["logit", "positive", "skewed", "identity"]
"""`logit` for shares, on whose log odds errors are about symmetric; `positive` for what has no
upper bound (distances), whose errors are skewed by a few long documents; `skewed` for differences
of such, which are skewed either way."""

EPSILON = 1e-12
VARIANCE_EXPONENT = 1.5
"""Words of a document agree in part: between 1, not at all, and 2, all of them."""
MAX_VARIANCE_EXPONENT = 2.0
"""For differences: they are read in lists of many heads or relations, far out in the tail of
Student's t, where degrees of freedom count most. These are as if all words of a document agreed."""
ROUNDING = 1e-6
"""Attention sums to 1 up to rounding."""
WHOLE = 1e-3
"""A share nearer to 1 than this counts as whole. Heads that rest on one token in nearly every
document look elsewhere in a few; a sample without those seems sure of a share that is too high."""


@dataclass(frozen=True, slots=True)
class Jackknife:
    """A number (or an array of them) with the pull of each bucket on it.

    Parts without documents have a share of 0 and pull nothing.
    """

    value: np.ndarray
    """`…`"""
    deltas: np.ndarray
    """`bucket …`: θ − θ₍₋g₎; 0 for buckets without documents."""
    denominator_shares: np.ndarray
    """`bucket …`: each bucket's share of what the number is a mean over (its denominator)."""
    has_events: np.ndarray
    """`bucket …`: does the bucket have anything of what is counted (a numerator that is not 0)?"""
    has_non_events: np.ndarray
    """`bucket …`: does it have anything else? For shares: a numerator below the denominator."""
    scale: Scale = "identity"
    numerator_shares: np.ndarray | None = None
    """`bucket …`: each bucket's share of the numerator, where that is of another kind than the
    denominator (distances of tokens over tokens). The less even of both sums decides `df`."""
    variance_exponent: float = VARIANCE_EXPONENT
    """How much the words of a bucket agree, for `df`: their sum's variance grows with b to this."""

    @property
    def n_buckets(self) -> np.ndarray:
        """`…`: how many buckets hold documents."""
        count: np.ndarray = (self.denominator_shares > 0).sum(0)
        return count

    @property
    def variance(self) -> np.ndarray:
        """`…`: SE² = (G − 1)/G · Σ u_g², over the G buckets that hold documents."""
        n = self.n_buckets
        with np.errstate(divide="ignore", invalid="ignore"):
            variance: np.ndarray = np.where(n > 1, (n - 1) / n, np.nan) * (self.deltas**2).sum(0)
        return variance

    @property
    def skewness(self) -> np.ndarray:
        """`…`: of the number's error; above 0 where few buckets pull it up."""
        return skewness_of(self.deltas)

    @property
    def df(self) -> np.ndarray:
        """`…`: degrees of freedom of the variance (`degrees_of_freedom`)."""
        df = degrees_of_freedom(self.denominator_shares, self.variance_exponent)
        if self.numerator_shares is None:
            return df
        least: np.ndarray = np.fmin(
            df, degrees_of_freedom(self.numerator_shares, self.variance_exponent)
        )
        return least

    def changed(self, value: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> Jackknife:
        """Other numbers, whose arrays by bucket come of these by one and the same change."""
        return Jackknife(
            value,
            change(self.deltas),
            change(self.denominator_shares),
            change(self.has_events),
            change(self.has_non_events),
            self.scale,
            None if self.numerator_shares is None else change(self.numerator_shares),
            self.variance_exponent,
        )

    def at(self, *place: int | slice | None) -> Jackknife:
        """The numbers at an index of the axes after `bucket`, as NumPy indexes."""
        chosen = (slice(None), *place)
        return self.changed(np.asarray(self.value)[place], lambda array: array[chosen])

    def flat(self) -> Jackknife:
        """The same numbers along one axis."""
        value = np.asarray(self.value).reshape(-1)
        return self.changed(value, lambda array: array.reshape(len(array), -1))

    def mean(self, axes: tuple[int, ...]) -> Jackknife:
        """The mean over axes of the numbers (heads): pulls are averaged first.

        Heads read the same documents, so their errors do not cancel as those of independent
        numbers would. Numbers that were never measured (NaN) are left out.
        """
        value = np.asarray(self.value)
        axes = tuple(axis % value.ndim for axis in axes)
        is_known = np.isfinite(value)
        n = is_known.sum(axes)
        by_bucket = tuple(axis + 1 for axis in axes)

        def averaged(array: np.ndarray) -> np.ndarray:
            with np.errstate(divide="ignore", invalid="ignore"):
                mean: np.ndarray = np.where(is_known, array, 0.0).sum(by_bucket) / n
            return mean

        with np.errstate(divide="ignore", invalid="ignore"):
            of_values = np.where(is_known, value, 0.0).sum(axes) / n
        return Jackknife(
            of_values,
            averaged(self.deltas),
            averaged(self.denominator_shares),
            (self.has_events & is_known).any(by_bucket),
            (self.has_non_events & is_known).any(by_bucket),
            self.scale,
            None if self.numerator_shares is None else averaged(self.numerator_shares),
            self.variance_exponent,
        )

    def __sub__(self, other: Jackknife) -> Jackknife:
        """The difference of two numbers over the same buckets: pulls subtract.

        What a document does to both cancels, which is why a paired difference is known better
        than either number. The degrees of freedom are those of the more uneven side, by its
        shares, as if all words of a document agreed (`MAX_VARIANCE_EXPONENT`).
        """
        sums = (
            self.denominator_shares,
            self.numerator_shares,
            other.denominator_shares,
            other.numerator_shares,
        )
        is_skewed = {self.scale, other.scale} & {"positive", "skewed"}
        deltas = self.deltas - other.deltas
        denominator_shares = _least_even(
            [denominator_shares for denominator_shares in sums if denominator_shares is not None]
        )
        return Jackknife(
            subtracted(self.value, other.value),
            deltas,
            np.broadcast_to(denominator_shares, deltas.shape),
            self.has_events | other.has_events,
            self.has_non_events | other.has_non_events,
            "skewed" if is_skewed else "identity",
            variance_exponent=MAX_VARIANCE_EXPONENT,
        )


def skewness_of(deltas: np.ndarray) -> np.ndarray:
    """`…`: γ = Σ u_g³ / (Σ u_g²)^1.5 of pulls, `bucket …`; 0 where no bucket pulls."""
    squared = deltas * deltas
    squares, cubes = squared.sum(0), (squared * deltas).sum(0)  # NumPy's pulls**3 is slow
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness: np.ndarray = np.where(squares > 0, cubes / squares**1.5, 0.0)
    return skewness


def _least_even(of: Sequence[np.ndarray]) -> np.ndarray:
    """`bucket …`: of several shares, those with the fewest degrees of freedom, number by number."""
    least, fewest = of[0], degrees_of_freedom(of[0])
    for denominator_shares in of[1:]:
        df = degrees_of_freedom(denominator_shares)
        is_less = df < fewest
        least, fewest = np.where(is_less, denominator_shares, least), np.where(is_less, df, fewest)
    return least


def subtracted(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The difference of two numbers, 0 where they are equal up to rounding."""
    difference = np.asarray(left - right)
    size = np.abs(left) + np.abs(right)
    is_rounding = np.isfinite(size) & (np.abs(difference) <= EPSILON * size)
    return np.where(is_rounding, 0.0, difference)


def ratio_jackknife(
    numerator: np.ndarray, denominator: np.ndarray, scale: Scale = "identity"
) -> Jackknife:
    """The pulls on a ratio of sums, in closed form.

    θ = Σa/Σb; without bucket g it is (Σa − a_g)/(Σb − b_g), so that

        u_g = θ − θ₍₋g₎ = (a_g − θ b_g) / (Σb − b_g).

    Args:
        numerator: `bucket …`, the sums a_g.
        denominator: `bucket …`, the sums b_g; any shape that broadcasts.
        scale: of its interval.
    """
    numerator = np.asarray(numerator, dtype=np.float64)
    denominator = np.asarray(denominator, dtype=np.float64)
    total = denominator.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(total > 0, numerator.sum(0) / total, np.nan)
        deltas = (numerator - value * denominator) / (total - denominator)
        denominator_shares = np.where(total > 0, denominator / total, 0.0)
    is_there = denominator > 0
    return Jackknife(
        value,
        np.where(is_there & np.isfinite(deltas), deltas, 0.0),
        np.broadcast_to(denominator_shares, deltas.shape),
        is_there & (numerator != 0),
        is_there & (np.abs(denominator - numerator) > WHOLE * denominator),
        scale,
        _shares_of(numerator) if scale == "positive" else None,
    )


def _shares_of(sums: np.ndarray) -> np.ndarray:
    """`bucket …`: each bucket's share of a sum of what is not negative but for rounding."""
    sums = np.maximum(sums, 0.0)
    total = sums.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, sums / total, 0.0)


def scale_of(units: str, numerator: np.ndarray, denominator: np.ndarray) -> Scale:
    """The scale of a ratio's interval: by its units, as far as the sums bear it out.

    What is below 0 by rounding alone (the entropy of a head that looks at one token) is positive.
    """
    if (numerator < -ROUNDING * denominator).any():
        return "identity"
    is_share = units.startswith("share") and bool((numerator <= (1 + ROUNDING) * denominator).all())
    return "logit" if is_share else "positive"


def jackknife_from_values(
    value: np.ndarray, without: np.ndarray, sizes: np.ndarray, scale: Scale = "identity"
) -> Jackknife:
    """The pulls on a number that is no ratio of sums: it is computed again without each bucket.

    Args:
        value: `…`.
        without: `bucket …`, the number computed without each bucket.
        sizes: `bucket`, how much each bucket holds, such as its documents; 0 for none.
        scale: of its interval.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    by_bucket = sizes.reshape(-1, *(1,) * np.ndim(value))
    is_there = np.broadcast_to(by_bucket > 0, without.shape)
    total = sizes.sum()
    denominator_shares = by_bucket / total if total > 0 else by_bucket
    deltas = np.where(is_there & np.isfinite(without), value - without, 0.0)
    denominator_shares = np.broadcast_to(denominator_shares, without.shape)
    return Jackknife(np.asarray(value), deltas, denominator_shares, is_there, is_there, scale)


def degrees_of_freedom(
    denominator_shares: np.ndarray, variance_exponent: float = VARIANCE_EXPONENT
) -> np.ndarray:
    """`…`: how many independent deviations a variance of pulls is worth.

    Satterthwaite's approximation after Bell & McCaffrey (2002): with residuals e_g of variance
    ω_g = b_g^1.5 (between b, words that know nothing of one another, and b², words of a bucket that
    all agree: `variance_exponent`), the pulls are M e with M = diag(1/(1 − p_g)) (I − p 1ᵀ), p = b/Σb, and

        df = tr(M Ω Mᵀ)² / tr((M Ω Mᵀ)²).

    G equal buckets have G − 1. One bucket with most of the words brings it down to 1: then the
    variance rests on one document. df + 1 is what a result shows as the effective number of
    documents.

    Args:
        shares: `bucket …`, each bucket's share of the denominator.
        agreement: the power of b in the variance of a bucket.
    """
    p = np.asarray(denominator_shares, dtype=np.float64)
    omega = (
        p * np.sqrt(p) if variance_exponent == VARIANCE_EXPONENT else p**variance_exponent
    )  # p**1.5 is slow
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
    """`unit …`: sums of the buckets that belong to the same unit; the axis of buckets comes first.

    Args:
        sums: with an axis of buckets.
        units: `bucket`, the unit that each belongs to.
        axis: the buckets.
    """
    by_bucket = np.moveaxis(sums, axis, 0)
    n = int(units.max()) + 1 if len(units) else 0
    if n == len(units) and (units == np.arange(n)).all():
        return by_bucket
    pooled = np.zeros((n, *by_bucket.shape[1:]))
    for bucket, unit in enumerate(units.tolist()):
        pooled[unit] += by_bucket[bucket]
    return pooled


DOMINANT = 0.25
"""A bucket that holds more than this share of a denominator dominates it."""
FAIR = 4.0
"""… if that is also more than so many times its fair share."""


def largest_share(of: Jackknife) -> tuple[float, int]:
    """The largest share that one bucket has of what a number is a mean over, and which bucket.

    Averaged over heads. With one document of 9,000 words among twenty of 300, a mean over words
    is mostly that document's: cut long documents (`max_tokens`), or, where a corpus is read by
    sentences, take as many of each document. Sentences of one document stay in one bucket.
    """
    heads = tuple(range(1, of.denominator_shares.ndim))
    denominator_shares = of.denominator_shares.mean(heads) if heads else of.denominator_shares
    at = int(denominator_shares.argmax())
    return float(denominator_shares[at]), at


def is_dominated(of: Jackknife) -> bool:
    """Does one bucket hold more than a quarter of the sum, and over four times its fair share?"""
    share, _ = largest_share(of)
    n = int(
        (np.asarray(of.denominator_shares) > 0)
        .any(tuple(range(1, of.denominator_shares.ndim)))
        .sum()
    )
    return n > 1 and share > DOMINANT and share * n > FAIR


DECISIVE = 0.5
"""A bucket with more than this share of the squared pulls on a number decides its error …"""
OFTEN = 10.0
"""… if that is also more than so many times its fair share: of few buckets, one always has much."""


def largest_influence(of: Jackknife) -> np.ndarray:
    """`…`: the largest share that one bucket has of what each number varies by, u_g²/Σu².

    A document can be short and still decide a number, where a head does in it what it does in no
    other. The standard error then rests on that document, and a sample without it would not know:
    such shares are Efron & Stein's (1981) sum, taken apart. NaN where no bucket pulls.
    """
    squares = of.deltas * of.deltas
    total = squares.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest: np.ndarray = np.where(total > 0, squares.max(0) / total, np.nan)
    return largest


def is_driven_by_one(of: Jackknife) -> np.ndarray:
    """`…`: does one bucket make up more than half of what a number varies by, and over ten times
    its fair share? With ten buckets or fewer nothing is said.
    """
    largest = largest_influence(of)
    with np.errstate(invalid="ignore"):
        decided: np.ndarray = (largest > DECISIVE) & (largest * of.n_buckets > OFTEN)
    return decided
