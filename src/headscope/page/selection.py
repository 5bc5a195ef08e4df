"""Where the explorer opens: what Python was asked for, as the front end's URL fragment."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from headscope.errors import InputError, UnknownName
from headscope.results.trace import Trace

VIEWS = {"all": None, "model": "model", "head": "head", "neuron": "neurons"}
"""What Python calls a view → what the fragment does; all views together are its default."""
THEMES = ("auto", "light", "dark")


def make_selection(
    trace: Trace,
    *,
    view: str = "all",
    block: str | None = None,
    layer: int | None = None,
    heads: int | Sequence[int] | None = None,
    queries: int | Sequence[int] | None = None,
    theme: str = "auto",
) -> str:
    """The fragment for these options, after a check that the trace has what they name.

    Raises:
        UnknownName: no such view, theme or block.
        InputError: no such layer, head or token.
    """
    for what, name, known in (("view", view, VIEWS), ("theme", theme, THEMES)):
        if name not in known:
            raise UnknownName.of(what, name, known)
    if block is not None and block not in trace.blocks:
        raise UnknownName.of("block", block, trace.blocks)
    shown = trace.main if block is None else trace.blocks[block]
    layers = [int(number) for number in shown.data["layer"].values]
    if layer is not None and layer not in layers:
        raise InputError(f"There is no layer {layer}: the trace has {layers[0]} to {layers[-1]}.")
    parts = {"view": VIEWS[view], "block": block, "layer": layer}
    parts["heads"] = _numbers("head", heads, shown.attention.sizes["head"])
    parts["queries"] = _numbers("token", queries, shown.attention.sizes["query"])
    parts["theme"] = theme if theme != "auto" else None
    return "&".join(
        f"{name}={quote(str(value), safe=',')}"
        for name, value in parts.items()
        if value is not None
    )


def _numbers(what: str, given: int | Sequence[int] | None, count: int) -> str | None:
    if given is None:
        return None
    numbers = [given] if isinstance(given, int) else [int(number) for number in given]
    wrong = [number for number in numbers if not 0 <= number < count]
    if wrong:
        raise InputError(f"There is no {what} {wrong[0]}: they go from 0 to {count - 1}.")
    return ",".join(map(str, numbers))
