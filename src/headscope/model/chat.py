"""Chat messages as a model's tokenizer writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from transformers import PreTrainedTokenizerBase

from headscope.errors import InputError
from headscope.model.encode import Encoded, decoded_tokens

Messages = Sequence[Mapping[str, Any]]
"""A chat: dicts with `role` and `content`."""


def is_chat(text: object) -> TypeGuard[Messages]:
    """Is this a list of messages, each with a role?"""
    return (
        isinstance(text, Sequence)
        and not isinstance(text, str)
        and bool(text)
        and all(isinstance(message, Mapping) and "role" in message for message in text)
    )


def check_contents(messages: Messages) -> None:
    """Refuse messages whose content is neither a text nor a list of parts."""
    for number, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str) or (
            isinstance(content, list) and all(isinstance(part, Mapping) for part in content)
        ):
            continue
        raise InputError(
            f"Message {number} of the chat has the content {content!r:.60}. Expected a text, or a "
            'list of parts: [{"type": "image"}, {"type": "text", "text": "…"}].'
        )


def n_placed_images(messages: Messages) -> int:
    """How many images the messages name as parts of their content."""
    return sum(
        isinstance(part, Mapping) and part.get("type") == "image"
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )


def written_chat(writer: Any, messages: Messages, *, takes_parts: bool) -> str:
    """A chat as a template writes it, up to where the assistant answers.

    Args:
        writer: what has the template, a tokenizer or a processor.
        messages: the chat.
        takes_parts: it is a processor. Templates of processors may read contents that are lists of
            parts alone, and leave out those that are texts: these are then given as parts.

    Raises:
        InputError: the template refuses the messages.
    """
    given = [dict(message) for message in messages]
    forms = [given, [_in_parts(message) for message in given]] if takes_parts else [given]
    written: list[str] = []
    refusal: Exception | None = None
    for chat in forms:
        try:
            written.append(
                str(writer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
            )
        except Exception as error:  # templates are programs, and raise what they like
            refusal = refusal or error
    if not written:
        raise InputError(
            f"The chat template refused the messages: {refusal}. Expected dicts with role and "
            'content: [{"role": "user", "content": "…"}].'
        ) from refusal
    texts = [m["content"].strip() for m in given if isinstance(m.get("content"), str)]
    return max(written, key=lambda form: sum(text in form for text in texts))


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content is a list of parts."""
    content = message.get("content")
    if not isinstance(content, str):
        return dict(message)
    return {**message, "content": [{"type": "text", "text": content}]}


def encode_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Messages,
    *,
    max_length: int | None,
    processor: object | None = None,
) -> Encoded:
    """Tokenize a chat by the template of the tokenizer, or else of the model's processor.

    Raises:
        InputError: there is no template, the template refuses the messages, they place an image,
            or they are too long: a chat is not cut.
    """
    has_own = tokenizer.chat_template is not None
    writer = tokenizer if has_own else processor
    if getattr(writer, "chat_template", None) is None:
        raise InputError(
            "The tokenizer has no chat template, so it takes no messages: give a text, or set "
            "tokenizer.chat_template."
        )
    n_placed = n_placed_images(messages)
    if n_placed:
        raise InputError(f"The messages place {n_placed} images, but none is given: image=….")
    rendered = written_chat(writer, messages, takes_parts=not has_own)
    ids = [int(token) for token in tokenizer(rendered, add_special_tokens=False)["input_ids"]]
    if max_length is not None and len(ids) > max_length:
        raise InputError(f"The chat has {len(ids)} tokens; the model takes {max_length}.")
    return Encoded(decoded_tokens(tokenizer, ids), {"input_ids": ids}, 0)
