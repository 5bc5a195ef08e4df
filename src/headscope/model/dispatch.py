"""Which kind of trace is asked for: of a text or several, of a chat, of an image or a recording,
of prepared inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from headscope.errors import InputError
from headscope.model.chat import Messages, is_chat
from headscope.model.trace_media import trace_media
from headscope.model.trace_options import TraceOptions
from headscope.model.tracing import trace_inputs, trace_text
from headscope.results.trace import Trace

if TYPE_CHECKING:
    from headscope.model.model import Model


def trace_any(
    model: Model,
    text: str | Sequence[str] | Mapping[str, object] | Messages | None,
    pair: str | Sequence[str] | None,
    target: str | Sequence[str] | None,
    media: tuple[object | None, object | None],
    options: TraceOptions,
) -> Trace | list[Trace]:
    """See `Model.trace`; `media` are the image and the recording."""
    has_media = any(one is not None for one in media)
    if isinstance(text, Mapping):
        if pair is not None or target is not None or has_media or options.generate:
            raise InputError("Prepared inputs take no pair, image, audio, target or generate.")
        return trace_inputs(model, text, options)
    if has_media:
        if pair is not None or not (text is None or isinstance(text, str) or is_chat(text)):
            raise InputError("Beside an image or a recording goes one text, or one chat.")
        return trace_media(model, text, *media, _as_one(target, "target"), options)
    if text is None:
        raise InputError("There is nothing to trace: give a text, an image or a recording.")
    if is_chat(text) or isinstance(text, str | bytes) or not isinstance(text, Sequence):
        second, aim = _as_one(pair, "pair"), _as_one(target, "target")
        if second is not None and is_chat(text):
            raise InputError("A chat takes no pair: its messages are its parts.")
        return trace_text(model, text, second, aim, options)
    texts = cast("Sequence[str]", text)
    pairs, targets = (_as_many(texts, x, n) for x, n in ((pair, "pair"), (target, "target")))
    return [
        trace_text(model, one, second, aim, options)
        for one, second, aim in zip(texts, pairs, targets, strict=True)
    ]


def _as_one(other: str | Sequence[str] | None, name: str) -> str | None:
    if other is None or isinstance(other, str):
        return other
    raise InputError(f"{name} should be a string, not {type(other).__name__}: {other!r:.80}.")


def _as_many(
    texts: Sequence[str], others: str | Sequence[str] | None, name: str
) -> Sequence[str | None]:
    if others is None:
        return [None] * len(texts)
    if isinstance(others, str) or len(others) != len(texts):
        raise InputError(f"{len(texts)} texts need a list of {len(texts)} for {name}.")
    return list(others)
