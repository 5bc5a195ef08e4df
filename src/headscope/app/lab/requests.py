"""What a page asks the lab for, read from JSON and checked before anything is run.

What a lab lets a reader ask for, checked before any model runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from headscope.errors import InputError, UnknownName
from headscope.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request may ask for, and how much the lab keeps.

    Attributes:
        tokens: of one input, with what the model may add.
        seconds: that one request may take, waiting not counted; effects may take five times that.
        waiting: requests that may wait for the model at a time.
        kept: texts that are kept for each reader, so that the page can ask about them.
        bytes_kept: of all readers' traces.
        body: bytes of a request.
    """

    tokens: int = 512
    seconds: float = 60.0
    waiting: int = 32
    kept: int = 6
    bytes_kept: int = 1 << 30
    body: int = 1 << 18


MAX_GENERATED = 200
EFFECTS_TIMES = 5
"""Effects may take so many times as long as other requests."""

MAX_INPUTS = 2


@dataclass(frozen=True)
class Input:
    """One text, or two that a model takes together, and what to do with it."""

    text: str
    pair: str | None = None
    target: str | None = None
    generate: int = 0


@dataclass(frozen=True)
class TraceRequest:
    """A model, and one input or two to compare."""

    model: str
    inputs: tuple[Input, ...]


def read_json(body: bytes) -> Mapping[str, object]:
    """The JSON object of a request. NaN and infinities are no JSON.

    Raises:
        InputError: it is none.
    """

    def refuse(name: str) -> NoReturn:
        raise ValueError(name)

    try:
        request = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise InputError("The request is not JSON.") from None
    if not isinstance(request, dict):
        raise InputError("The request is not a JSON object.")
    return request


def read_wish(request: Mapping[str, object], models: Mapping[str, Model]) -> TraceRequest:
    """What to trace.

    Raises:
        InputError: the request names what does not exist, or a value is of the wrong kind.
    """
    model = request.get("model")
    if not isinstance(model, str) or model not in models:
        raise UnknownName.of("model", model, models)
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_INPUTS:
        raise InputError(f"inputs should be a list of 1 to {MAX_INPUTS} objects with a text.")
    return TraceRequest(model, tuple(_read_input(one) for one in inputs))


def check_length(wish: TraceRequest, model: Model, limits: Limits) -> None:
    """Refuse inputs that are too long, by counting their tokens.

    Raises:
        InputError: longer than the lab shows or the model takes.
    """
    most = limits.tokens
    if model.info.max_length is not None:
        most = min(most, model.info.max_length)
    tokenizer = model.require_tokenizer()
    for one in wish.inputs:
        sides = [tokenizer(one.text, one.pair, add_special_tokens=True)["input_ids"]]
        if one.target is not None:
            sides.append(tokenizer(one.target)["input_ids"])
        count = max(len(side) for side in sides) + one.generate
        if count > most:
            added = f", {one.generate} of them written by the model" if one.generate else ""
            raise InputError(
                f"The text has {count:,} tokens{added}; this lab shows up to {most:,}. Shorten "
                "it, start the lab with a larger --max-tokens, or use `headscope view`."
            )


def _read_input(given: object) -> Input:
    if not isinstance(given, dict):
        raise InputError(f"An input should be an object with a text, not {given!r:.80}.")
    text = _text(given, "text")
    if not text.strip():
        raise InputError("The text is empty: type one.")
    generate = given.get("generate", 0)
    if isinstance(generate, bool) or not isinstance(generate, int | None):
        raise InputError(f"generate should be a whole number, not {generate!r:.80}.")
    if not 0 <= (generate or 0) <= MAX_GENERATED:
        raise InputError(f"generate should be from 0 to {MAX_GENERATED}, not {generate}.")
    return Input(text, _text(given, "pair") or None, _text(given, "target") or None, generate or 0)


def _text(given: Mapping[str, object], name: str) -> str:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} should be a text, not {value!r:.80}.")
    if value and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} holds half of a character (a lone surrogate): type it again.")
    return value or ""
