"""`Result.table`: the table that a probe's result makes."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.errors import InputError
from headscope.heads.bias_table import BiasTable, bias_table
from headscope.heads.probe_table import ProbeTable, probe_table
from headscope.results.result import Result


def table_of(
    result: Result,
    heads: Result | Iterable[tuple[int, int]] | None = None,
    *,
    n: int = 5,
    block: str | None = None,
) -> ProbeTable | BiasTable:
    """The table of bias for a result of `probe_bias`, else that of the best heads."""
    if "bias_accuracy" in (result.dataset if block is None else result.block(block)):
        return bias_table(result, heads, n=n, block=block)
    if heads is not None:
        raise InputError(
            "heads are chosen in the table of headscope.probe_bias; other tables show the best "
            "head of each row."
        )
    return probe_table(result, block=block)
