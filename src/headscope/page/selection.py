"""Opening selection of a page and of story steps, as the front end's URL fragment.

A language model opens on its last word, which its prediction is about. Other models open on the
head with the strongest role, at the query that shows it most.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

import numpy as np

from headscope.errors import InputError, UnknownName
from headscope.heads.roles import TOKEN_ROLES, known_weights, role_places, role_shares
from headscope.results.trace import Block, Trace

POSITIONS = ("previous_token", "next_token")
PREFERENCE: tuple[tuple[str, ...], ...] = (TOKEN_ROLES, POSITIONS, ("current_token",))
"""A head that reads by content before one that reads by position, and both before one that stays
where it is. Attention sinks and broad heads never open a page."""


MIN_READ = 0.2
"""Minimum weight on the predicted word for a head to count as its reader."""


class Look(NamedTuple):
    """A head, and the query to pin; None for none."""

    layer: int
    head: int
    query: int | None


def first_look(block: Block, layer: int | None = None, head: int | None = None) -> Look:
    """Return the head with the strongest role that is not a sink, and the query that shows it most.

    Only heads of this layer, or of this number, where they are given.
    """
    if block.n_top is not None:  # roles need whole rows
        layer = _layer(block, 0) if layer is None else layer
        present = ~np.isnan(block.data["rest"].sel(layer=layer).values).all(-1)
        head = int(present.argmax()) if head is None else head
        return Look(layer, head, block.sizes["query"] - 1)
    shares_of_roles = role_shares(block)
    allowed: np.ndarray = known_weights(block).sum((2, 3)) > 0
    if layer is not None:
        allowed &= (block.data["layer"].values == layer)[:, None]
    if head is not None:
        allowed &= (np.arange(allowed.shape[1]) == head)[None]
    if not allowed.any():  # every one of them is switched off
        return Look(_layer(block, 0) if layer is None else layer, head or 0, None)
    for names in PREFERENCE:
        shares = np.stack(
            [np.where(shares_of_roles.has(n) & allowed, shares_of_roles.share(n), 0) for n in names]
        )
        if shares.max() > 0:
            role, row, number = np.unravel_index(shares.argmax(), shares.shape)
            return _look(block, int(row), int(number), names[role])
    # No head has a role: the one that comes nearest to one.
    names = tuple(itertools.chain(*PREFERENCE))
    shares = np.stack(
        [np.where(allowed, np.nan_to_num(shares_of_roles.share(n)), -1.0) for n in names]
    )
    role, row, number = np.unravel_index(shares.argmax(), shares.shape)
    return _look(block, int(row), int(number), names[role])


def deciding_look(trace: Trace) -> Look | None:
    """Return the head with the largest effect on the next word, at the last query.

    The effect is on the log-odds of the prediction over its foil; on its log-probability without
    a foil. None if effects were not measured there.
    """
    block, effects = trace.main, trace.effects
    last = block.sizes["query"] - 1
    is_measured = effects is not None and effects.kind == "prediction" and effects.position == last
    if effects is None or not is_measured or not is_writer(trace):
        return None
    after = effects.data["after"].transpose("layer", "head", "candidate").values
    change = after - effects.data["before"].values
    names = [str(name) for name in effects.data["candidate"].values]
    foil = foil_of(trace)
    rival = change[..., names.index(foil)] if foil in names else 0.0
    return _largest(block, np.nan_to_num(np.abs(change[..., 0] - rival)), last)


def reading_look(trace: Trace) -> Look | None:
    """Return the head whose last query reads the predicted word most, else one word most.

    The first word, the word itself and the word before it do not count. None for other models.
    """
    if trace.predictions is None or not is_writer(trace):
        return None
    block, last = trace.main, trace.main.sizes["query"] - 1
    n_layers, n_heads, here = block.sizes["layer"], block.sizes["head"], slice(last, last + 1)
    rows = np.nan_to_num(
        [[block.head_weights(i, j, here)[0] for j in range(n_heads)] for i in range(n_layers)]
    )
    rows[..., np.asarray(block.key_tokens.special, dtype=bool)] = 0
    rows[..., [0, *range(max(0, last - 1), last + 1)]] = 0
    answer = trace.predictions.top(last)[0][0].strip()
    is_answer = np.array([token.strip() == answer for token in block.key_tokens.tokens])
    of_answer = (rows * is_answer).max(-1)
    sizes = of_answer if of_answer.max(initial=0.0) >= MIN_READ else rows.max(-1)
    return _largest(block, sizes, last)


def _largest(block: Block, sizes: np.ndarray, query: int) -> Look | None:
    if not sizes.max(initial=0.0) > 0:
        return None
    row, head = np.unravel_index(sizes.argmax(), sizes.shape)
    return Look(_layer(block, int(row)), int(head), query)


def is_writer(trace: Trace) -> bool:
    """Return True if the trace has a prediction of the word after its last one."""
    given = trace.predictions
    last = trace.main.sizes["query"] - 1
    return given is not None and given.kind == "next" and last in given.positions


def foil_of(trace: Trace) -> str:
    """Return the answer to contrast the prediction with; empty for all others.

    Likeliest other answer that the text contains, if the text contains the predicted word too.
    Both begin with a capital letter, or neither.
    """
    if trace.predictions is None:
        return ""
    texts = {token.strip() for token in trace.tokens}
    names = [text for text, _ in trace.predictions.top()]
    if names[0].strip() not in texts:
        return ""
    kind = names[0].strip()[:1].isupper()
    alike = (name for name in names[1:] if name.strip()[:1].isupper() == kind)
    return next((name for name in alike if name.strip() in texts), "")


def widest_difference(one: Block, other: Block, query: int | None = None) -> Look | None:
    """Return the head and query whose row differs most between two traces.

    Heads that are off in one of the two are left out. `query` limits it to rows of this query.
    Special tokens count only where no other differs. None for different shapes, or if equal.
    """
    if one.n_top is not None or other.n_top is not None:
        return None
    first, second = known_weights(one), known_weights(other)
    if first.shape != second.shape:
        return None
    apart = np.abs(first - second).sum(-1)
    if query is not None:
        apart = np.where(np.arange(apart.shape[-1]) == query, apart, 0.0)
    of_words = np.where(np.asarray(one.query_tokens.special, dtype=bool), 0.0, apart)
    apart = of_words if of_words.max(initial=0.0) > 0 else apart
    is_on = (first.sum((2, 3)) > 0) & (second.sum((2, 3)) > 0)
    apart = np.where(is_on[..., None], apart, 0.0)
    if not apart.max(initial=0.0) > 0:
        return None
    row, head, place = np.unravel_index(apart.argmax(), apart.shape)
    return Look(_layer(one, int(row)), int(head), int(place))


def _look(block: Block, row: int, head: int, role: str) -> Look:
    place = role_places(block).get(role)
    query = None
    if place is not None and place.any():
        paid = (known_weights(block)[row, head] * place).sum(-1)
        query = int(paid.argmax())
    return Look(_layer(block, row), head, query)


def _layer(block: Block, row: int) -> int:
    return int(block.data["layer"].values[row])


VIEWS = {"all": None, "model": None, "head": "lines", "neuron": "neurons"}
"""Tab of each view; the page chooses for other views."""
THEMES = ("auto", "light", "dark")
TABS = ("lines", "matrix", "wires", "neurons", "evidence", "effect")
COLORS = ("role", "effect", "difference", "spread", "distance")
SOURCES = ("corpus", "text")
"""Sources of roles if there is a corpus."""
CHOICES = {"tab": TABS, "color": COLORS, "named": SOURCES, "theme": THEMES}
EDITS = ("off", "cell", "neuron")
PLAIN = (
    "role",
    "against",
    "with",
    "mean",
    "sort",
    "minus",
    "answers",
    "wire",
    *EDITS,
    "filter",
    "pane",
    "embed",
)
"""Keys of a fragment that a story step may set."""
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
    """The fragment for these options; raise UnknownName or InputError if the trace lacks a part."""
    for what, name, known in (("view", view, VIEWS), ("theme", theme, THEMES)):
        UnknownName.check(what, name, known)
    step = {"block": block, "layer": layer, "tab": VIEWS[view]}
    step["theme"] = None if theme == "auto" else theme
    fragments = []
    for head, word in itertools.product(_several(heads), _several(queries)):
        chosen = {**step, "head": head, "word": word}
        fragments.append(make_step([trace], {n: v for n, v in chosen.items() if v is not None}))
    return fragments[0]


def make_step(traces: Sequence[Trace], step: Mapping[str, object] | str) -> str:
    """The fragment of a selection in words: `{"layer": 3, "head": 0, "word": 8}`, names of `STEP`.

    A fragment stays as it is. Numbers are checked against the first trace.
    """
    if isinstance(step, str):
        return step.removeprefix("#")
    for name in step:
        UnknownName.check("part of a selection", name, STEP)
    for name, known in CHOICES.items():
        if name in step and step[name] not in known:
            raise UnknownName.of(name, step[name], known)
    block = step.get("block")
    if block is not None and block not in traces[0].blocks:
        raise UnknownName.of("block", block, traces[0].blocks)
    shown = traces[0].main if block is None else traces[0].blocks[str(block)]
    layers = [int(number) for number in shown.data["layer"].values]
    layer = None if step.get("layer") is None else _whole("layer", step["layer"])
    if layer is not None and layer not in layers:
        raise InputError(f"There is no layer {layer}: the trace has {layers[0]} to {layers[-1]}.")
    parts: dict[str, object] = {}
    head = _number("head", step.get("head"), shown.sizes["head"])
    if layer is not None and head is not None:
        parts["head"] = f"L{layer}H{head}"
    elif layer is not None or head is not None:
        look = first_look(shown, layer, head)
        parts["head"] = f"L{look.layer}H{look.head}"
    parts["block"] = block
    parts["word"] = _number("token", step.get("word"), shown.sizes["query"])
    parts["key"] = _number("token", step.get("key"), shown.sizes["key"])
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
    is_last = block is traces[0].main and is_writer(traces[0]) and "word" not in parts
    look = None
    if len(traces) == 2 and block.name in traces[1].blocks:
        word = parts.get("word", str(block.sizes["query"] - 1) if is_last else "")
        query = int(word) if word.isdecimal() else None
        look = widest_difference(block, traces[1].blocks[block.name], query)
    if look is None and is_last:
        look = deciding_look(traces[0]) or reading_look(traces[0])
    look = look or first_look(block)
    opened: dict[str, object] = {"head": f"L{look.layer}H{look.head}"}
    if "word" not in parts and look.query is not None:
        opened["word"] = look.query
    if is_last and foil_of(traces[0]):
        opened["against"] = foil_of(traces[0]).strip()
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
