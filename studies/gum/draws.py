"""Bootstrap draws of anything computed from a result, and what an interval says of a claim."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from headscope.measuring.assemble import block_draws, state_of
from headscope.results.result import Result
from headscope.run.merge import axes_of, metrics_of

__all__ = ["Estimate", "Verdict", "decide", "draws_of", "estimate"]

Verdict = Literal["holds", "fails", "open"]
N_DRAWS = 400


@dataclass(frozen=True)
class Estimate:
    """A number and the middle 95 % of its bootstrap draws (NaN where there are none)."""

    value: float
    low: float
    high: float

    def format(self, digits: int = 2) -> str:
        """`0.57 [0.56, 0.58]`."""
        shown = f"{self.value:.{digits}f}"
        if np.isfinite(self.low):
            shown += f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return shown.replace("-", "−")


def draws_of(result: Result, only: Collection[str] | None = None) -> xr.Dataset:
    """Every variable that has draws (`only` these metrics'), over `draw` and its own axes:
    whole documents are drawn with replacement, the same ones for all variables.
    """
    block = next(iter(result.blocks))
    data = result.blocks[block]
    measured = {name: state_of(state) for name, state in result.states[block].items()}
    metrics = [metric for metric in metrics_of(result) if only is None or metric.name in only]
    drawn = block_draws(measured, metrics, axes_of(result), n_draws=N_DRAWS)
    return xr.Dataset(
        {
            name: xr.DataArray(values, dims=("draw", *data[name].dims))
            for name, values in drawn.items()
            if name in data
        },
        coords={name: data[name] for name in data.dims if name in data.coords},
    )


def estimate(
    data: xr.Dataset, draws: xr.Dataset, of: Callable[[xr.Dataset], xr.DataArray | float]
) -> Estimate:
    """A statistic of the variables, and of each draw of them."""
    n = draws.sizes["draw"]
    values = np.array([float(of(draws.isel(draw=number))) for number in range(n)])
    low, high = np.nanpercentile(values, (2.5, 97.5))
    return Estimate(float(of(data)), float(low), float(high))


def decide(found: Estimate, *, above: float | None = None, below: float | None = None) -> Verdict:
    """Holds where the whole interval is on the claimed side, fails where none of it is."""
    low = found.low if np.isfinite(found.low) else found.value
    high = found.high if np.isfinite(found.high) else found.value
    if above is not None:
        return "holds" if low > above else "fails" if high <= above else "open"
    assert below is not None
    return "holds" if high < below else "fails" if low >= below else "open"
