"""`Trace.explore`: the explorer in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headscope.errors import InputError, MissingExtra
from headscope.page.payload import make_payload
from headscope.page.selection import make_selection
from headscope.results.trace import Trace

if TYPE_CHECKING:
    from headscope.page.widget import Explorer

HEIGHT = 680


def explore(
    trace: Trace,
    other: Trace | None = None,
    *,
    view: str = "all",
    block: str | None = None,
    layer: int | None = None,
    heads: int | Sequence[int] | None = None,
    queries: int | Sequence[int] | None = None,
    neurons: bool | Sequence[int] = True,
    titles: Sequence[str] | None = None,
    theme: str = "auto",
    height: int = HEIGHT,
) -> Explorer:
    """The widget for one trace, or for two to compare; `Trace.explore` says more."""
    _check(trace, other)
    selection = make_selection(
        trace, view=view, block=block, layer=layer, heads=heads, queries=queries, theme=theme
    )
    traces = [trace] if other is None else [trace, other]
    payload = make_payload(traces, neurons=neurons, titles=titles, selection=selection)
    try:
        from headscope.page.widget import Explorer
    except ModuleNotFoundError as error:
        raise MissingExtra.of("anywidget", "widget", "The explorer in a notebook") from error
    return Explorer(traces, payload, height=height)


def _check(*traces: Trace | None) -> None:
    for trace in traces:
        if trace is not None and not isinstance(trace, Trace):
            raise InputError(
                f"A Trace is needed, not {type(trace).__name__}. Make one with model.trace(text), "
                "or from attention of your own with headscope.Trace.from_arrays(attention, tokens)."
            )
