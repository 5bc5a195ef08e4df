"""Tests behind findings, each named in its sentence.

Nothing is concluded from overlapping intervals. Lists of heads are corrected by Benjamini &
Hochberg, single statements by Holm (`headscope.statistics`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headscope.figures.chart_data import ModelResults, ValueText
from headscope.statistics.intervals import interval, p_above, p_differs
from headscope.statistics.jackknife import Jackknife, is_driven_by_one
from headscope.statistics.multiple_testing import benjamini_hochberg, holm

ALPHA = 0.05
"""A corrected p value below it is significant."""
ONE_DOCUMENT = "one document is more than half of what the number varies by"
"""Warning for a head whose value depends on one document."""
HeadValue = tuple[int, int, ValueText]
"""Layer, head and value."""


@dataclass(frozen=True)
class HeadList:
    """Heads that pass a test, the highest value first, and how many were tested."""

    passed: tuple[HeadValue, ...]
    n_tested: int
    n_driven_by_one: int = 0
    """Number of passed heads driven by one document (`jackknife.is_driven_by_one`)."""

    @property
    def correction(self) -> str:
        """`after correction over 72 heads`, and how many of those that passed hang on one
        document.
        """
        corrected = f"after correction over {self.n_tested} heads"
        if not self.n_driven_by_one:
            return corrected
        return f"{corrected}; in {self.n_driven_by_one} of these, {ONE_DOCUMENT}"


def heads_beyond(
    subject: ModelResults, name: str, threshold: float | str | Jackknife, **labels: str | int
) -> HeadList:
    """Return heads above a threshold, or above another number of the same documents, which may
    be named (BH over heads).
    """
    if isinstance(threshold, str):
        named = subject.jackknife(threshold)
        if named is None:
            return HeadList((), 0)
        threshold = named
    jackknife = subject.jackknife(name, **labels)
    data = subject.data(name)
    if jackknife is None or data is None or np.ndim(jackknife.value) != 2:
        return HeadList((), 0)
    if isinstance(threshold, Jackknife):
        compared = jackknife - threshold.at(None, None)
        p = p_above(compared)
    else:
        compared = jackknife
        p = p_above(jackknife, threshold)
    adjusted = benjamini_hochberg(p)
    bounds = interval(jackknife)
    layers, heads = data["layer"].values, data["head"].values
    with np.errstate(invalid="ignore"):
        places = np.argwhere(adjusted < ALPHA)
    passed = [
        (
            int(layers[i]),
            int(heads[j]),
            ValueText(
                float(jackknife.value[i, j]), float(bounds.low[i, j]), float(bounds.high[i, j])
            ),
        )
        for i, j in places
    ]
    passed.sort(key=lambda entry: -entry[2].value)
    n_driven_by_one = int(is_driven_by_one(compared)[tuple(places.T)].sum())
    return HeadList(tuple(passed), int(np.isfinite(p).sum()), n_driven_by_one)


def scaled(jackknife: Jackknife, factor: float) -> Jackknife:
    """A number times a constant, with its jackknife."""
    return replace(jackknife, value=jackknife.value * factor, deltas=jackknife.deltas * factor)


def are_layers_apart(subject: ModelResults, name: str) -> bool:
    """Do the lowest and the highest layer differ? Paired; Bonferroni over all pairs of layers."""
    jackknife = subject.jackknife(f"{name}_by_layer")
    if jackknife is None or np.ndim(jackknife.value) != 1 or np.isfinite(jackknife.value).sum() < 2:
        return False
    low, high = int(np.nanargmin(jackknife.value)), int(np.nanargmax(jackknife.value))
    n = int(np.isfinite(jackknife.value).sum())
    return bool(p_differs(jackknife.at(high) - jackknife.at(low)) * n * (n - 1) / 2 < ALPHA)


def layers_above(
    subject: ModelResults, name: str, rival: str, **labels: str | int
) -> list[int] | None:
    """Layers above another number of the same documents (Holm over layers); None if not tested."""
    jackknife, other = subject.jackknife(f"{name}_by_layer", **labels), subject.jackknife(rival)
    data = subject.data(name)
    if jackknife is None or other is None or data is None:
        return None
    p = holm(p_above(jackknife - other.at(None)))
    if not np.isfinite(p).any():
        return None
    with np.errstate(invalid="ignore"):
        return [int(layer) for layer in data["layer"].values[p < ALPHA]]


def is_least_below_mean(subject: ModelResults, name: str) -> bool:
    """Is the head with the lowest value below the mean over heads? Paired; Holm over heads."""
    jackknife = subject.jackknife(name)
    if jackknife is None or not np.isfinite(jackknife.value).any():
        return False
    p = holm(p_above(jackknife.mean((0, 1)).at(None, None) - jackknife))
    return bool(p.ravel()[int(np.nanargmin(jackknife.value))] < ALPHA)


def labels_above_twice_the_mean(subject: ModelResults, name: str) -> list[bool] | None:
    """`label`: is there a head above twice the mean over heads? Bonferroni over heads, Holm over
    labels.
    """
    jackknife = subject.jackknife(name)
    if jackknife is None:
        return None
    p = p_above(jackknife - scaled(jackknife.mean((0, 1)), 2).at(None, None))
    n = np.isfinite(p).sum((0, 1))
    lowest = np.where(n > 0, np.nan_to_num(p, nan=1.0).min((0, 1)), np.nan)
    corrected = holm(np.minimum(lowest * n, 1.0))
    with np.errstate(invalid="ignore"):
        return [bool(value) for value in corrected < ALPHA]


def differ_from(jackknife: Jackknife, other: Jackknife) -> np.ndarray:
    """Test which numbers differ from others of the same documents. Paired; Holm over them."""
    with np.errstate(invalid="ignore"):
        is_different: np.ndarray = holm(p_differs(jackknife - other)) < ALPHA
    return is_different
