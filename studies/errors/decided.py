"""Heads that one document decides, among all documents of a population: counted apart.

A sample without that document cannot know of it, whatever is made of the sample.
"""

from __future__ import annotations

import numpy as np

from headscope.statistics.jackknife import Jackknife, is_driven_by_one, largest_influence

__all__ = ["heaviest", "undecided"]


def heaviest(of: Jackknife) -> float:
    """The largest share of one document in what any head varies by."""
    return float(np.nanmax(largest_influence(of)))


def undecided(of: Jackknife) -> np.ndarray:
    """`head`: is no document more than half of what it varies by? As `caution` has it in results
    (`headscope.statistics.jackknife.is_driven_by_one`), with each document a part of its own.
    """
    free: np.ndarray = ~is_driven_by_one(of)
    return free
