"""Student's t: quantiles and tails, with degrees of freedom that need not be whole.

Few documents make a standard error uncertain itself. Student's distribution allows for that: with
4 degrees of freedom a 95 % interval is 2.8 standard errors wide on each side, with 100 it is 2.0.
"""

from __future__ import annotations

import numpy as np

from headscope.deferred import special

LEVEL = 0.95
"""Of all intervals."""


def critical(df: np.ndarray | float, level: float = LEVEL) -> np.ndarray:
    """The half width of an interval in standard errors; NaN where there is no `df`."""
    values: np.ndarray = special.stdtrit(df, (1 + level) / 2)
    return values


def upper_tail(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """The probability of a value above `t` by chance: p of a one-sided test."""
    values: np.ndarray = special.stdtr(df, -np.asarray(t, dtype=np.float64))
    return values


def both_tails(t: np.ndarray | float, df: np.ndarray | float) -> np.ndarray:
    """The probability of a value farther from 0 than `t`: p of a two-sided test."""
    return 2 * upper_tail(np.abs(t), df)
