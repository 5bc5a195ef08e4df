"""Sums that one document dominates: no interval can speak for documents that are not there."""

from __future__ import annotations

import numpy as np

from headscope.statistics.pulls import Pulls

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
