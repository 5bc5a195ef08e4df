"""Anything computed from a result with its interval, and what the interval says of a claim."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from headscope.measuring.assemble import block_pulls, state_of
from headscope.results.result import Result
from headscope.run.merge import axes_of, metrics_of
from headscope.statistics.intervals import interval
from headscope.statistics.pulls import recomputed_pulls

__all__ = ["Estimate", "Verdict", "decide", "estimate", "rests_of"]

Verdict = Literal["holds", "fails", "open"]
SIZE = "documents_of_part"


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval over documents (NaN where there is none)."""

    value: float
    low: float
    high: float

    def format(self, digits: int = 2) -> str:
        """`0.57 [0.56, 0.58]`."""
        shown = f"{self.value:.{digits}f}"
        if np.isfinite(self.low):
            shown += f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return shown.replace("-", "−")


def rests_of(result: Result, only: Collection[str] | None = None) -> xr.Dataset:
    """Every variable that has pulls (`only` these metrics'), over `part` and its own axes: what
    it is without each part of the corpus.
    """
    block = next(iter(result.blocks))
    data = result.blocks[block]
    measured = {name: state_of(state) for name, state in result.states[block].items()}
    metrics = [metric for metric in metrics_of(result) if only is None or metric.name in only]
    pulls = block_pulls(measured, metrics, axes_of(result))
    sizes = block_pulls(measured, metrics_of(result)[:1], axes_of(result))["tokens_per_document"]
    rests = {
        name: xr.DataArray(of.value - of.pulls, dims=("part", *data[name].dims))
        for name, of in pulls.items()
        if name in data
    }
    coords = {name: data[name] for name in data.dims if name in data.coords}
    return xr.Dataset({**rests, SIZE: ("part", sizes.shares)}, coords=coords)


def estimate(
    data: xr.Dataset, rests: xr.Dataset, of: Callable[[xr.Dataset], xr.DataArray | float]
) -> Estimate:
    """A statistic of the variables, with the jackknife over parts of what it is without each.

    A statistic that no part changes (a count) has no interval: then the number decides.
    """
    value = np.float64(of(data))
    sizes = rests[SIZE].values
    without = np.array(
        [float(of(rests.isel(part=n))) if size > 0 else np.nan for n, size in enumerate(sizes)]
    )
    bounds = interval(recomputed_pulls(value, without, sizes))
    if not float(bounds.high) > float(bounds.low):
        return Estimate(float(value), float("nan"), float("nan"))
    return Estimate(float(value), float(bounds.low), float(bounds.high))


def decide(found: Estimate, *, above: float | None = None, below: float | None = None) -> Verdict:
    """Holds where the whole interval is on the claimed side, fails where none of it is."""
    low = found.low if np.isfinite(found.low) else found.value
    high = found.high if np.isfinite(found.high) else found.value
    if above is not None:
        return "holds" if low > above else "fails" if high <= above else "open"
    assert below is not None
    return "holds" if high < below else "fails" if low >= below else "open"
