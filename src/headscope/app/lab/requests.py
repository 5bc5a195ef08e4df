"""Parse the lab's trace requests from JSON, and check them before a model runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from headscope.errors import InputError, UnknownName
from headscope.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request and of the stored traces. Tokens include generated ones, seconds leave
    out waiting, and effects get `EFFECTS_TIMES` as many.
    """

    tokens: int = 512
    seconds: float = 60.0
    waiting: int = 32
    kept: int = 6
    bytes_kept: int = 1 << 30
    body: int = 1 << 18


MAX_GENERATED = 200
EFFECTS_TIMES = 5
"""Time limit of effects, as a multiple of `Limits.seconds`."""

MAX_INPUTS = 2
MIN_CHARACTERS = 20_000
"""Length of text that is always tokenized, so that a refusal can name its tokens."""
CHARACTERS_PER_TOKEN = 32
"""Longest text for each token that the lab accepts; most tokens have fewer than ten characters."""


@dataclass(frozen=True)
class Input:
    """Text, or sentence pair, with the options of its trace."""

    text: str
    pair: str | None = None
    target: str | None = None
    generate: int = 0


@dataclass(frozen=True)
class TraceRequest:
    """Model, and one input or two inputs to compare."""

    model: str
    inputs: tuple[Input, ...]


def read_json(body: bytes) -> Mapping[str, object]:
    """Parse the JSON object of a request. NaN and infinity are not valid JSON."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(name)

    try:
        request = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise InputError("The request is not JSON.") from None
    if not isinstance(request, dict):
        raise InputError("The request is not a JSON object.")
    return request


def read_trace_request(request: Mapping[str, object], models: Mapping[str, Model]) -> TraceRequest:
    """Parse a trace request; raise InputError for an unknown name or a wrong type."""
    model = request.get("model")
    if not isinstance(model, str) or model not in models:
        raise UnknownName.of("model", model, models)
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_INPUTS:
        raise InputError(f"inputs should be a list of 1 to {MAX_INPUTS} objects with a text.")
    return TraceRequest(model, tuple(_read_input(item) for item in inputs))


def check_length(request: TraceRequest, model: Model, limits: Limits) -> None:
    """Raise InputError if an input has more tokens than the lab or the model accepts."""
    most = limits.tokens
    if model.info.max_length is not None:
        most = min(most, model.info.max_length)
    tokenizer = model.require_tokenizer()
    longest = max(MIN_CHARACTERS, most * CHARACTERS_PER_TOKEN)
    for item in request.inputs:
        for text in (item.text, item.pair or "", item.target or ""):
            if len(text) > longest:  # before it is tokenized
                raise InputError(
                    f"The text has {len(text):,} characters; this lab shows up to {longest:,}. "
                    "Shorten it, start the lab with a larger --max-tokens, or use `headscope view`."
                )
        sides = [tokenizer(item.text, item.pair, add_special_tokens=True)["input_ids"]]
        if item.target is not None:
            sides.append(tokenizer(item.target)["input_ids"])
        count = max(len(side) for side in sides) + item.generate
        if count > most:
            added = f", {item.generate} of them written by the model" if item.generate else ""
            raise InputError(
                f"The text has {count:,} tokens{added}; this lab shows up to {most:,}. Shorten "
                "it, start the lab with a larger --max-tokens, or use `headscope view`."
            )


def _read_input(value: object) -> Input:
    if not isinstance(value, dict):
        raise InputError(f"An input should be an object with a text, not {value!r:.80}.")
    text = _text(value, "text")
    if not text.strip():
        raise InputError("The text is empty: type one.")
    generate = value.get("generate", 0)
    if isinstance(generate, bool) or not isinstance(generate, int | None):
        raise InputError(f"generate should be a whole number, not {generate!r:.80}.")
    if not 0 <= (generate or 0) <= MAX_GENERATED:
        raise InputError(f"generate should be from 0 to {MAX_GENERATED}, not {generate}.")
    return Input(text, _text(value, "pair") or None, _text(value, "target") or None, generate or 0)


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} should be a text, not {value!r:.80}.")
    if value and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} holds half of a character (a lone surrogate): type it again.")
    return value or ""
