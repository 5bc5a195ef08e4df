"""Tests behind findings, each named in its sentence.

Nothing is concluded from overlapping intervals. A claim has one p value, corrected within its
sentence; the report corrects the claims of all its sentences together (Holm). Lists of heads are
corrected by Benjamini & Hochberg, and explore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headscope.figures.chart_data import ModelResults, ValueText
from headscope.figures.chart_types import Phrase
from headscope.statistics.cross_fitting import best_set
from headscope.statistics.differences import p_above_both
from headscope.statistics.intervals import benjamini_hochberg, holm, interval, p_above, p_differs
from headscope.statistics.jackknife import MAX_VARIANCE_EXPONENT, Jackknife

ALPHA = 0.05
"""A corrected p value below it is significant."""
HeadValue = tuple[int, int, ValueText]


@dataclass(frozen=True)
class HeadList:
    """Heads that pass a test, the highest value first, and how many were tested."""

    passed: tuple[HeadValue, ...]
    n_tested: int
    n_best: int = 0
    """Number of heads that cannot be told from the first, itself included; 0 if that was not tested
    or if a head that does not pass is higher."""

    @property
    def correction(self) -> str:
        """`in total and in most documents, after correction over 72 heads`."""
        return f"in total and in most documents, after correction over {self.n_tested} heads"


def heads_beyond(
    subject: ModelResults, name: str, threshold: float | str | Jackknife, **labels: str | int
) -> HeadList:
    """Return heads above a threshold, or above another number of the same documents, which may
    be named: in total and in most documents (BH over heads).
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
    rival = threshold.at(None, None) if isinstance(threshold, Jackknife) else threshold
    p = p_above_both(jackknife, rival)
    bounds = interval(jackknife)
    layers, heads = data["layer"].values, data["head"].values
    with np.errstate(invalid="ignore"):
        places = np.argwhere(benjamini_hochberg(p) < ALPHA)
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
    best = best_set(jackknife.flat())
    is_highest = bool(passed) and not (jackknife.value > passed[0][2].value).any()
    n_best = int(best.sum()) if best is not None and is_highest else 0
    return HeadList(tuple(passed), int(np.isfinite(p).sum()), n_best)


def scaled(jackknife: Jackknife, factor: float) -> Jackknife:
    """A number times a constant, with its jackknife."""
    means = jackknife.means_of_buckets
    return replace(
        jackknife,
        value=jackknife.value * factor,
        deltas=jackknife.deltas * factor,
        means_of_buckets=None if means is None else means * factor,
    )


@dataclass(frozen=True)
class Extremes:
    """The lowest and the highest layers of a value: those that cannot be told from them."""

    lowest: list[int]
    """First the one with the lowest value."""
    highest: list[int]
    p: float
    """That the lowest and the highest differ; corrected over all pairs of layers."""


def layer_extremes(subject: ModelResults, name: str, **labels: str | int) -> Extremes | None:
    """Return the extreme layers; None unless they differ (paired, Bonferroni over all pairs)."""
    jackknife = subject.jackknife(f"{name}_by_layer", **labels)
    data = subject.data(name)
    if jackknife is None or data is None or np.ndim(jackknife.value) != 1:
        return None
    n = int(np.isfinite(jackknife.value).sum())
    sets = [best_set(jackknife, lowest=lowest) for lowest in (True, False)]
    if n < 2 or sets[0] is None or sets[1] is None:
        return None
    ends = [int(np.nanargmin(jackknife.value)), int(np.nanargmax(jackknife.value))]
    p = float(p_differs(jackknife.at(ends[1]) - jackknife.at(ends[0]))) * n * (n - 1) / 2
    if not p < ALPHA:
        return None
    layers = [int(layer) for layer in data["layer"].values]
    lowest, highest = (
        [layers[end], *(layers[i] for i in np.flatnonzero(tied) if i != end)]
        for end, tied in zip(ends, (sets[0], sets[1]), strict=True)
    )
    return Extremes(lowest, highest, p)


def layer_slope(subject: ModelResults, name: str) -> tuple[ValueText, float] | None:
    """Return by how much a value changes from layer to layer, and the p value of no change."""
    jackknife = subject.jackknife(f"{name}_by_layer")
    if jackknife is None or len(jackknife.value) < 3 or not np.isfinite(jackknife.value).all():
        return None
    slope = slope_of(jackknife)
    bounds = interval(slope)
    value = ValueText(float(slope.value), float(bounds.low), float(bounds.high))
    return value, float(p_differs(slope))


def slope_of(jackknife: Jackknife) -> Jackknife:
    """`layer`: return the slope over layers (least squares).

    It is a sum of the layers' values, and so are its leave-one-out changes: the interval and the
    test are over documents. Layers are not taken for independent.
    """
    off = np.arange(len(jackknife.value)) - (len(jackknife.value) - 1) / 2
    weights = off / (off**2).sum()
    return replace(
        jackknife.mean((0,)),
        value=jackknife.value @ weights,
        deltas=jackknife.deltas @ weights,
        scale="skewed",
        variance_exponent=MAX_VARIANCE_EXPONENT,
        means_of_buckets=None,
    )


def layers_above(
    subject: ModelResults, name: str, rival: str, **labels: str | int
) -> dict[int, float] | None:
    """Layers above another number of the same documents, with p (Holm over layers); None if not
    tested.
    """
    jackknife, other = subject.jackknife(f"{name}_by_layer", **labels), subject.jackknife(rival)
    data = subject.data(name)
    if jackknife is None or other is None or data is None:
        return None
    p = holm(p_above(jackknife - other.at(None)))
    if not np.isfinite(p).any():
        return None
    layers = data["layer"].values
    return {int(at): float(x) for at, x in zip(layers, p, strict=True) if x < ALPHA}


def least_below_mean(subject: ModelResults, name: str) -> tuple[float, int] | None:
    """Return p that the lowest head is below the mean over heads, in most documents too (paired,
    Holm over heads), and how many heads cannot be told from it; None if it is not clearly so.
    """
    jackknife = subject.jackknife(name)
    if jackknife is None or not np.isfinite(jackknife.value).any():
        return None
    p = holm(p_above_both(jackknife.mean((0, 1)).at(None, None), jackknife))
    least = float(p.ravel()[int(np.nanargmin(jackknife.value))])
    tied = best_set(jackknife.flat(), lowest=True)
    return (least, int(tied.sum()) - 1) if tied is not None and least < ALPHA else None


def labels_above_twice_the_mean(subject: ModelResults, name: str) -> np.ndarray | None:
    """`label`: return p that there is a head above twice the mean over heads, in most documents
    too; Bonferroni over heads, Holm over labels.
    """
    jackknife = subject.jackknife(name)
    if jackknife is None:
        return None
    p = p_above_both(jackknife, scaled(jackknife.mean((0, 1)), 2).at(None, None))
    n = np.isfinite(p).sum((0, 1))
    lowest = np.where(n > 0, np.nan_to_num(p, nan=1.0).min((0, 1)), np.nan)
    return holm(np.minimum(lowest * n, 1.0))


Written = tuple[int | None, str, list[tuple[str, list[Phrase]]]]
"""Number of a subject, a title, and sentences by topic."""


def settled(written: Sequence[Written]) -> list[Written]:
    """Correct the claims of all sentences together (Holm), and say which do not hold then.

    The claim of a sentence is as weak as the weakest of its tests. A last finding says how many
    claims there are, and what the chance of a false one is.
    """
    sentences = [text for _, _, topics in written for _, some in topics for text in some]
    p = [
        [part["p"] for part in text if isinstance(part, dict) and "p" in part] for text in sentences
    ]
    claims = [number for number, values in enumerate(p) if values]
    if not claims:
        return list(written)
    adjusted = holm(np.array([max(p[number]) for number in claims]))
    weak = [number for number, value in zip(claims, adjusted, strict=True) if not value < ALPHA]
    for number in weak:
        text = sentences[number]
        text.insert(_end_of(text), f"; {EXPLORATORY}")
    held = f"{len(claims) - len(weak)} of {len(claims)} claims"
    said = (
        f"{held} of this report hold after correction over all of them (Holm): the chance that "
        "any of these is false is at most 5\u00a0%. Lists of heads are found, not planned, and "
        "explore: on average at most one in twenty heads of a list is false. Other sentences "
        "describe."
    )
    return [*written, (None, "How sure", [("", [[said]])])]


EXPLORATORY = "found in exploring: it does not hold after correction over all claims of this report"


def _end_of(text: Phrase) -> int:
    """The place before the reference to a figure and the full stop that end a sentence."""
    end = len(text) - 1
    while end > 0 and isinstance(text[end - 1], dict) and "figure" in text[end - 1]:
        end -= 1
    return end
