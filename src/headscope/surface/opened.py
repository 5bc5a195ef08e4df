"""What opening a file needs of rooms above `results`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscope.results.result import Result


def with_renewed_intervals(result: Result) -> Result:
    """A result of an earlier version, with intervals made from its sums as today's are."""
    from headscope.run.renewal import renew_intervals

    return renew_intervals(result)
