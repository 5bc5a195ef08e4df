"""Anything computed from a result with its interval, and what it says of a claim."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr

from headscope.metrics.core.finalize import block_jackknives, state_of
from headscope.results.result import Result
from headscope.run.merge import axes_of, metrics_of
from headscope.statistics.correlation import correlation
from headscope.statistics.intervals import interval, p_differs, t_critical, t_two_sided
from headscope.statistics.jackknife import Jackknife, jackknife_from_values

__all__ = ["Estimate", "Tested", "decide", "describe", "estimate", "over_heads", "rests_of"]

SIZE = "documents_of_part"
MANY = 1e6
"""Degrees of freedom where Student's distribution is the normal one."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval over documents (NaN where there is none)."""

    value: float
    low: float
    high: float
    jackknife: Jackknife | None = field(default=None, repr=False, compare=False)
    """What it was made of, where that is known."""

    def p_differs(self, threshold: float) -> float:
        """Two-sided p that the number is a threshold; NaN where it has no interval. Without its
        jackknife, from the bounds as if its errors were normal.
        """
        if not np.isfinite(self.low):
            return float("nan")
        if self.jackknife is not None:
            return float(p_differs(self.jackknife, threshold))
        error = (self.high - self.low) / 2 / float(t_critical(MANY))
        return float(t_two_sided((self.value - threshold) / error, MANY))

    def format(self, digits: int = 2) -> str:
        """`0.57 [0.56, 0.58]`."""
        shown = f"{self.value:.{digits}f}"
        if np.isfinite(self.low):
            shown += f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return shown.replace("-", "−")


def rests_of(result: Result, only: Collection[str] | None = None) -> xr.Dataset:
    """Every variable that has jackknife (`only` these metrics'), over `part` and its own axes: what
    it is without each part of the corpus.
    """
    block = next(iter(result.blocks))
    data = result.blocks[block]
    measured = {name: state_of(state) for name, state in result.states[block].items()}
    metrics = [metric for metric in metrics_of(result) if only is None or metric.name in only]
    jackknife = block_jackknives(measured, metrics, axes_of(result))
    sizes = block_jackknives(measured, metrics_of(result)[:1], axes_of(result))[
        "tokens_per_document"
    ]
    rests = {
        name: xr.DataArray(of.value - of.deltas, dims=("bucket", *data[name].dims))
        for name, of in jackknife.items()
        if name in data
    }
    coords = {name: data[name] for name in data.dims if name in data.coords}
    return xr.Dataset({**rests, SIZE: ("bucket", sizes.denominator_shares)}, coords=coords)


def estimate(
    data: xr.Dataset, rests: xr.Dataset, of: Callable[[xr.Dataset], xr.DataArray | float]
) -> Estimate:
    """A statistic of the variables, with the jackknife over parts of what it is without each.

    A statistic that no part changes (a count) has no interval: then the number decides.
    """
    value = np.float64(of(data))
    sizes = rests[SIZE].values
    without = np.array(
        [float(of(rests.isel(bucket=n))) if size > 0 else np.nan for n, size in enumerate(sizes)]
    )
    jackknife = jackknife_from_values(value, without, sizes)
    bounds = interval(jackknife)
    if not float(bounds.high) > float(bounds.low):
        return Estimate(float(value), float("nan"), float("nan"))
    return Estimate(float(value), float(bounds.low), float(bounds.high), jackknife)


@dataclass(frozen=True)
class Tested:
    """On which side of its threshold a number lies, and the test that it lies on neither."""

    is_so: bool
    """The number lies on the claimed side."""
    p: float
    """Two-sided; NaN where the number has no interval, and decides by itself."""


def decide(found: Estimate, *, above: float | None = None, below: float | None = None) -> Tested:
    """Hold a number against the threshold of a claim."""
    if above is not None:
        return Tested(found.value > above, found.p_differs(above))
    assert below is not None
    return Tested(found.value < below, found.p_differs(below))


def describe(
    found: Estimate, *, above: float | None = None, below: float | None = None
) -> tuple[Tested, Estimate]:
    """The same of a count, a rank or a median, without interval and test: leaving out one part
    after another says nothing of their errors.
    """
    return replace(decide(found, above=above, below=below), p=float("nan")), replace(
        found, low=float("nan"), high=float("nan")
    )


def over_heads(left: xr.DataArray, right: xr.DataArray) -> float:
    """Pearson's r of two numbers of each head."""
    a, b = (x.transpose("layer", "head").values.ravel() for x in (left, right))
    return float(correlation(a, b))
