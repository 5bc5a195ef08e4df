"""How an input is traced, and the forms in which a text may be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

Messages = Sequence[Mapping[str, Any]]
"""A chat: dicts with `role` and `content`."""


@dataclass(frozen=True, slots=True)
class Options:
    """How an input is traced, and what the trace keeps; see `Model.trace`."""

    vectors: bool
    scores: bool | None
    layers: Sequence[int] | None
    norms: bool = False
    effects: bool = False
    generate: int = 0
    truncate: bool = True


def is_chat(text: object) -> TypeGuard[Messages]:
    """Is this a list of messages, each with a role?"""
    return (
        isinstance(text, Sequence)
        and not isinstance(text, str)
        and bool(text)
        and all(isinstance(message, Mapping) and "role" in message for message in text)
    )
