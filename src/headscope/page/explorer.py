"""The explorer in a notebook: `explore`, and the same opened at one of its views."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headscope.errors import InputError, MissingExtra
from headscope.page.payload import make_payload
from headscope.page.selection import make_selection
from headscope.results.trace import Trace

if TYPE_CHECKING:
    from headscope.page.widget import Explorer

__all__ = ["explore", "head_view", "model_view", "neuron_view"]

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
    """Every head of the trace to look at: model, head and neuron view of one selection.

    The widget's `selection` says where the reader is, and can be set; `.save("page.html")`
    writes the same as one file that opens without a network.

    Args:
        trace: what `model.trace(…)` or `Trace.from_arrays(…)` gave.
        other: a second trace to compare it with, side by side and as a difference.
        view: `all`, `model`, `head` or `neurons`.
        block: `self`, or `encoder`, `decoder`, `cross` of an encoder-decoder.
        layer: the layer to open.
        heads: the head or heads to open.
        queries: positions of tokens to pin.
        neurons: whether queries, keys and values go along (two bytes a number), or the
            layers whose do.
        titles: what to call each trace; its text by default.
        theme: `auto` (as the notebook), `light` or `dark`.
        height: in pixels.

    Raises:
        MissingExtra: anywidget is not installed.
        InputError: the trace does not have what is named, or its weights are not attention.
    """
    _check(trace, other)
    selection = make_selection(
        trace, view=view, block=block, layer=layer, heads=heads, queries=queries, theme=theme
    )
    traces = [trace] if other is None else [trace, other]
    payload = make_payload(traces, neurons=neurons, titles=titles, selection=selection)
    try:
        widget = importlib.import_module("headscope.page.widget")
    except ModuleNotFoundError as error:
        raise MissingExtra.of("anywidget", "widget", "The explorer in a notebook") from error
    explorer: Explorer = widget.Explorer(traces, payload, height=height)
    return explorer


def head_view(
    trace: Trace,
    other: Trace | None = None,
    *,
    layer: int | None = None,
    heads: int | Sequence[int] | None = None,
    queries: int | Sequence[int] | None = None,
    height: int = HEIGHT,
) -> Explorer:
    """The explorer opened at the heads of one layer: lines from queries to keys."""
    return explore(
        trace, other, view="head", layer=layer, heads=heads, queries=queries, height=height
    )


def model_view(trace: Trace, other: Trace | None = None, *, height: int = HEIGHT) -> Explorer:
    """The explorer opened at the thumbnails of all heads."""
    return explore(trace, other, view="model", height=height)


def neuron_view(
    trace: Trace,
    *,
    layer: int | None = None,
    head: int | None = None,
    query: int | None = None,
    height: int = HEIGHT,
) -> Explorer:
    """The explorer opened at the neurons by which one query finds its keys."""
    return explore(trace, view="neurons", layer=layer, heads=head, queries=query, height=height)


def _check(*traces: Trace | None) -> None:
    for trace in traces:
        if trace is not None and not isinstance(trace, Trace):
            raise InputError(
                f"A Trace is needed, not {type(trace).__name__}. Make one with model.trace(text), "
                "or from attention of your own with headscope.Trace.from_arrays(attention, tokens)."
            )
