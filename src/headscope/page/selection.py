"""Where the page opens, and where a step of a story goes: what Python was asked for, as the front
end's URL fragment.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, quote

from headscope.errors import InputError, UnknownName
from headscope.page.first_look import first_look, widest_difference
from headscope.results.trace import Trace

VIEWS = {"all": None, "model": None, "head": "lines", "neuron": "neurons"}
"""What Python calls a view → the tab that shows it; the page chooses where there is none."""
THEMES = ("auto", "light", "dark")
TABS = ("lines", "matrix", "neurons", "evidence", "effect")
COLORS = ("role", "effect", "spread", "distance")
SOURCES = ("corpus", "text")
"""What roles are named from, where there is a corpus."""
CHOICES = {"tab": TABS, "color": COLORS, "named": SOURCES, "theme": THEMES}
EDITS = ("off", "cell", "neuron")
PLAIN = ("role", "against", "with", "sort", "minus", *EDITS, "filter", "pane", "embed")
"""What a story step may say in the fragment's own words."""
STEP = ("layer", "head", "block", "word", "key", "example", *CHOICES, *PLAIN)
HEAD = re.compile(r"L(\d+)H(\d+)")


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
    step = {
        "block": block,
        "layer": layer,
        "tab": VIEWS[view],
        "theme": theme if theme != "auto" else None,
    }
    several = (_several(heads), _several(queries))
    fragments = [
        make_step(
            [trace],
            {n: v for n, v in {**step, "head": head, "word": word}.items() if v is not None},
        )
        for head, word in itertools.product(*several)
    ]
    return fragments[0]


def make_step(traces: Sequence[Trace], step: Mapping[str, object] | str) -> str:
    """The fragment of a selection in words: `{"layer": 3, "head": 0, "word": 8}`.

    Args:
        traces: what the page shows there; the first is what numbers are checked against.
        step: names of `STEP` and their values; or a fragment, which stays as it is.
    """
    if isinstance(step, str):
        return step.removeprefix("#")
    for name in step:
        if name not in STEP:
            raise UnknownName.of("part of a selection", name, STEP)
    for name, known in CHOICES.items():
        if name in step and step[name] not in known:
            raise UnknownName.of(name, step[name], known)
    block = step.get("block")
    if block is not None and block not in traces[0].blocks:
        raise UnknownName.of("block", block, traces[0].blocks)
    shown = traces[0].main if block is None else traces[0].blocks[str(block)]
    layers = [int(number) for number in shown.attention["layer"].values]
    layer = None if step.get("layer") is None else _whole("layer", step["layer"])
    if layer is not None and layer not in layers:
        raise InputError(f"There is no layer {layer}: the trace has {layers[0]} to {layers[-1]}.")
    parts: dict[str, object] = {}
    head = _number("head", step.get("head"), shown.attention.sizes["head"])
    if layer is not None and head is not None:
        parts["head"] = f"L{layer}H{head}"
    elif layer is not None or head is not None:
        look = first_look(shown, layer, head)
        parts["head"] = f"L{look.layer}H{look.head}"
    parts["block"] = block
    parts["word"] = _number("token", step.get("word"), shown.attention.sizes["query"])
    parts["key"] = _number("token", step.get("key"), shown.attention.sizes["key"])
    parts |= {name: step[name] for name in ("example", *CHOICES, *PLAIN) if name in step}
    return _fragment(parts)


def opened_at(traces: Sequence[Trace], selection: str) -> str:
    """The fragment with a head and a word in it: those asked for, else the most telling ones; of
    two traces, those that differ most.
    """
    parts = read_fragment(selection)
    if "head" in parts:
        return selection
    block = traces[0].blocks.get(parts.get("block", ""), traces[0].main)
    look = None
    if len(traces) == 2 and block.name in traces[1].blocks:
        look = widest_difference(block, traces[1].blocks[block.name])
    look = look or first_look(block)
    opened: dict[str, object] = {"head": f"L{look.layer}H{look.head}"}
    if "word" not in parts and look.query is not None:
        opened["word"] = look.query
    return _fragment(opened | parts)


def shown_layers(selection: str) -> set[int]:
    """The layers that a fragment names: of its head and of its edits."""
    parts = read_fragment(selection)
    return {
        int(layer) for name in ("head", *EDITS) for layer, _ in HEAD.findall(parts.get(name, ""))
    }


def read_fragment(selection: str) -> dict[str, str]:
    """Names and values of a fragment."""
    return dict(parse_qsl(selection.removeprefix("#"), keep_blank_values=True))


def _fragment(parts: Mapping[str, object]) -> str:
    return "&".join(
        f"{name}={quote(str(value), safe=',')}"
        for name, value in parts.items()
        if value is not None
    )


def _several(given: int | Sequence[int] | None) -> Sequence[int | None]:
    return [given] if given is None or isinstance(given, int) else [*given] or [None]


def _whole(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"The {what} of a selection should be a whole number, not {value!r}.")
    return value


def _number(what: str, value: object, count: int) -> int | None:
    if value is None:
        return None
    number = _whole(what, value)
    if not 0 <= number < count:
        raise InputError(f"There is no {what} {number}: they go from 0 to {count - 1}.")
    return number
