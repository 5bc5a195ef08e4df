"""How far each part of a corpus pulls a number: all that intervals and tests are made of.

A hash of its content deals each document into one of 64 parts. Sentences of one document share a
part, because they are not independent draws. The *pull* of a part is how much lower the number
would be without it, θ − θ₍₋g₎: the delete-one jackknife (Efron & Stein 1981). For a ratio of sums
it needs no second computation (`ratio_pulls`).

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
AGREEMENT = 1.5
"""Words of a document agree in part: between 1, not at all, and 2, all of them."""
FULL = 2.0
"""For differences: they are read in lists of many heads or relations, far out in the tail of
Student's t, where degrees of freedom count most. These are as if all words of a document agreed."""
ROUNDING = 1e-6
"""Attention sums to 1 up to rounding."""
WHOLE = 1e-3
"""A share nearer to 1 than this counts as whole. Heads that rest on one token in nearly every
document look elsewhere in a few; a sample without those seems sure of a share that is too high."""


@dataclass(frozen=True, slots=True)
class Pulls:
    """A number (or an array of them) with the pull of each part on it.

    Parts without documents have a share of 0 and pull nothing.
    """

    value: np.ndarray
    """`…`"""
    pulls: np.ndarray
    """`part …`: θ − θ₍₋g₎; 0 for parts without documents."""
    shares: np.ndarray
    """`part …`: each part's share of what the number is a mean over (its denominator)."""
    is_hit: np.ndarray
    """`part …`: does the part have anything of what is counted (a numerator that is not 0)?"""
    is_missed: np.ndarray
    """`part …`: does it have anything else? For shares: a numerator below the denominator."""
    scale: Scale = "identity"
    weights: np.ndarray | None = None
    """`part …`: each part's share of the numerator, where that is of another kind than the
    denominator (distances of tokens over tokens). The less even of both sums decides `df`."""
    agreement: float = AGREEMENT
    """How much the words of a part agree, for `df`: their sum's variance grows with b to this."""

    @property
    def n_parts(self) -> np.ndarray:
        """`…`: how many parts hold documents."""
        count: np.ndarray = (self.shares > 0).sum(0)
        return count

    @property
    def variance(self) -> np.ndarray:
        """`…`: SE² = (G − 1)/G · Σ u_g², over the G parts that hold documents."""
        n = self.n_parts
        with np.errstate(divide="ignore", invalid="ignore"):
            variance: np.ndarray = np.where(n > 1, (n - 1) / n, np.nan) * (self.pulls**2).sum(0)
        return variance

    @property
    def skewness(self) -> np.ndarray:
        """`…`: of the number's error; above 0 where few parts pull it up."""
        return skewness_of(self.pulls)

    @property
    def df(self) -> np.ndarray:
        """`…`: degrees of freedom of the variance (`degrees_of_freedom`)."""
        df = degrees_of_freedom(self.shares, self.agreement)
        if self.weights is None:
            return df
        least: np.ndarray = np.fmin(df, degrees_of_freedom(self.weights, self.agreement))
        return least

    def changed(self, value: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> Pulls:
        """Other numbers, whose arrays by part come of these by one and the same change."""
        return Pulls(
            value,
            change(self.pulls),
            change(self.shares),
            change(self.is_hit),
            change(self.is_missed),
            self.scale,
            None if self.weights is None else change(self.weights),
            self.agreement,
        )

    def at(self, *place: int | slice | None) -> Pulls:
        """The numbers at an index of the axes after `part`, as NumPy indexes."""
        chosen = (slice(None), *place)
        return self.changed(np.asarray(self.value)[place], lambda array: array[chosen])

    def flat(self) -> Pulls:
        """The same numbers along one axis."""
        value = np.asarray(self.value).reshape(-1)
        return self.changed(value, lambda array: array.reshape(len(array), -1))

    def mean(self, axes: tuple[int, ...]) -> Pulls:
        """The mean over axes of the numbers (heads): pulls are averaged first.

        Heads read the same documents, so their errors do not cancel as those of independent
        numbers would. Numbers that were never measured (NaN) are left out.
        """
        value = np.asarray(self.value)
        axes = tuple(axis % value.ndim for axis in axes)
        is_known = np.isfinite(value)
        n = is_known.sum(axes)
        by_part = tuple(axis + 1 for axis in axes)

        def averaged(array: np.ndarray) -> np.ndarray:
            with np.errstate(divide="ignore", invalid="ignore"):
                mean: np.ndarray = np.where(is_known, array, 0.0).sum(by_part) / n
            return mean

        with np.errstate(divide="ignore", invalid="ignore"):
            of_values = np.where(is_known, value, 0.0).sum(axes) / n
        return Pulls(
            of_values,
            averaged(self.pulls),
            averaged(self.shares),
            (self.is_hit & is_known).any(by_part),
            (self.is_missed & is_known).any(by_part),
            self.scale,
            None if self.weights is None else averaged(self.weights),
            self.agreement,
        )

    def __sub__(self, other: Pulls) -> Pulls:
        """The difference of two numbers over the same parts: pulls subtract.

        What a document does to both cancels, which is why a paired difference is known better
        than either number. The degrees of freedom are those of the more uneven side, by its
        shares, as if all words of a document agreed (`FULL`).
        """
        sums = (self.shares, self.weights, other.shares, other.weights)
        is_skewed = {self.scale, other.scale} & {"positive", "skewed"}
        pulls = self.pulls - other.pulls
        shares = _least_even([shares for shares in sums if shares is not None])
        return Pulls(
            subtracted(self.value, other.value),
            pulls,
            np.broadcast_to(shares, pulls.shape),
            self.is_hit | other.is_hit,
            self.is_missed | other.is_missed,
            "skewed" if is_skewed else "identity",
            agreement=FULL,
        )


def skewness_of(pulls: np.ndarray) -> np.ndarray:
    """`…`: γ = Σ u_g³ / (Σ u_g²)^1.5 of pulls, `part …`; 0 where no part pulls."""
    squared = pulls * pulls
    squares, cubes = squared.sum(0), (squared * pulls).sum(0)  # NumPy's pulls**3 is slow
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness: np.ndarray = np.where(squares > 0, cubes / squares**1.5, 0.0)
    return skewness


def _least_even(of: Sequence[np.ndarray]) -> np.ndarray:
    """`part …`: of several shares, those with the fewest degrees of freedom, number by number."""
    least, fewest = of[0], degrees_of_freedom(of[0])
    for shares in of[1:]:
        df = degrees_of_freedom(shares)
        is_less = df < fewest
        least, fewest = np.where(is_less, shares, least), np.where(is_less, df, fewest)
    return least


def subtracted(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The difference of two numbers, 0 where they are equal up to rounding."""
    difference = np.asarray(left - right)
    size = np.abs(left) + np.abs(right)
    is_rounding = np.isfinite(size) & (np.abs(difference) <= EPSILON * size)
    return np.where(is_rounding, 0.0, difference)


def ratio_pulls(numerator: np.ndarray, denominator: np.ndarray, scale: Scale = "identity") -> Pulls:
    """The pulls on a ratio of sums, in closed form.

    θ = Σa/Σb; without part g it is (Σa − a_g)/(Σb − b_g), so that

        u_g = θ − θ₍₋g₎ = (a_g − θ b_g) / (Σb − b_g).

    Args:
        numerator: `part …`, the sums a_g.
        denominator: `part …`, the sums b_g; any shape that broadcasts.
        scale: of its interval.
    """
    numerator = np.asarray(numerator, dtype=np.float64)
    denominator = np.asarray(denominator, dtype=np.float64)
    total = denominator.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(total > 0, numerator.sum(0) / total, np.nan)
        pulls = (numerator - value * denominator) / (total - denominator)
        shares = np.where(total > 0, denominator / total, 0.0)
    is_there = denominator > 0
    return Pulls(
        value,
        np.where(is_there & np.isfinite(pulls), pulls, 0.0),
        np.broadcast_to(shares, pulls.shape),
        is_there & (numerator != 0),
        is_there & (np.abs(denominator - numerator) > WHOLE * denominator),
        scale,
        _shares_of(numerator) if scale == "positive" else None,
    )


def _shares_of(sums: np.ndarray) -> np.ndarray:
    """`part …`: each part's share of a sum of what is not negative but for rounding."""
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


def recomputed_pulls(
    value: np.ndarray, without: np.ndarray, sizes: np.ndarray, scale: Scale = "identity"
) -> Pulls:
    """The pulls on a number that is no ratio of sums: it is computed again without each part.

    Args:
        value: `…`.
        without: `part …`, the number computed without each part.
        sizes: `part`, how much each part holds, such as its documents; 0 for none.
        scale: of its interval.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    by_part = sizes.reshape(-1, *(1,) * np.ndim(value))
    is_there = np.broadcast_to(by_part > 0, without.shape)
    total = sizes.sum()
    shares = by_part / total if total > 0 else by_part
    pulls = np.where(is_there & np.isfinite(without), value - without, 0.0)
    shares = np.broadcast_to(shares, without.shape)
    return Pulls(np.asarray(value), pulls, shares, is_there, is_there, scale)


def degrees_of_freedom(shares: np.ndarray, agreement: float = AGREEMENT) -> np.ndarray:
    """`…`: how many independent deviations a variance of pulls is worth.

    Satterthwaite's approximation after Bell & McCaffrey (2002): with residuals e_g of variance
    ω_g = b_g^1.5 (between b, words that know nothing of one another, and b², words of a part that
    all agree: `agreement`), the pulls are M e with M = diag(1/(1 − p_g)) (I − p 1ᵀ), p = b/Σb, and

        df = tr(M Ω Mᵀ)² / tr((M Ω Mᵀ)²).

    G equal parts have G − 1. One part with most of the words brings it down to 1: then the
    variance rests on one document. df + 1 is what a result shows as the effective number of
    documents.

    Args:
        shares: `part …`, each part's share of the denominator.
        agreement: the power of b in the variance of a part.
    """
    p = np.asarray(shares, dtype=np.float64)
    omega = p * np.sqrt(p) if agreement == AGREEMENT else p**agreement  # p**1.5 is slow
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
    """`unit …`: sums of the parts that belong to the same unit; the axis of parts comes first.

    Args:
        sums: with an axis of parts.
        units: `part`, the unit that each belongs to.
        axis: the parts.
    """
    by_part = np.moveaxis(sums, axis, 0)
    n = int(units.max()) + 1 if len(units) else 0
    if n == len(units) and (units == np.arange(n)).all():
        return by_part
    pooled = np.zeros((n, *by_part.shape[1:]))
    for part, unit in enumerate(units.tolist()):
        pooled[unit] += by_part[part]
    return pooled


DOMINANT = 0.25
"""A part that holds more than this share of a denominator dominates it."""
FAIR = 4.0
"""… if that is also more than so many times its fair share."""


def largest_share(of: Pulls) -> tuple[float, int]:
    """The largest share that one part has of what a number is a mean over, and which part.

    Averaged over heads. With one document of 9,000 words among twenty of 300, a mean over words
    is mostly that document's: cut long documents (`max_tokens`), or, where a corpus is read by
    sentences, take as many of each document. Sentences of one document stay in one part.
    """
    heads = tuple(range(1, of.shares.ndim))
    shares = of.shares.mean(heads) if heads else of.shares
    at = int(shares.argmax())
    return float(shares[at]), at


def is_dominated(of: Pulls) -> bool:
    """Does one part hold more than a quarter of the sum, and over four times its fair share?"""
    share, _ = largest_share(of)
    n = int((np.asarray(of.shares) > 0).any(tuple(range(1, of.shares.ndim))).sum())
    return n > 1 and share > DOMINANT and share * n > FAIR


DECISIVE = 0.5
"""A part with more than this share of the squared pulls on a number decides its error …"""
OFTEN = 10.0
"""… if that is also more than so many times its fair share: of few parts, one always has much."""


def largest_pulls(of: Pulls) -> np.ndarray:
    """`…`: the largest share that one part has of what each number varies by, u_g²/Σu².

    A document can be short and still decide a number, where a head does in it what it does in no
    other. The standard error then rests on that document, and a sample without it would not know:
    such shares are Efron & Stein's (1981) sum, taken apart. NaN where no part pulls.
    """
    squares = of.pulls * of.pulls
    total = squares.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest: np.ndarray = np.where(total > 0, squares.max(0) / total, np.nan)
    return largest


def is_decided(of: Pulls) -> np.ndarray:
    """`…`: does one part make up more than half of what a number varies by, and over ten times
    its fair share? With ten parts or fewer nothing is said.
    """
    largest = largest_pulls(of)
    with np.errstate(invalid="ignore"):
        decided: np.ndarray = (largest > DECISIVE) & (largest * of.n_parts > OFTEN)
    return decided
