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


def encode_chat(
    tokenizer: PreTrainedTokenizerBase, messages: Messages, *, max_length: int | None
) -> Encoded:
    """Tokenize a chat by the tokenizer's own template, up to where the assistant answers.

    Raises:
        InputError: the tokenizer has no template, the template refuses the messages, or they
            are too long: a chat is not cut.
    """
    if tokenizer.chat_template is None:
        raise InputError(
            "The tokenizer has no chat template, so it takes no messages: give a text, or set "
            "tokenizer.chat_template."
        )
    try:
        rendered = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # templates are programs, and raise what they like
        raise InputError(
            f"The chat template refused the messages: {error}. Expected dicts with role and "
            'content: [{"role": "user", "content": "…"}].'
        ) from error
    ids = [int(token) for token in tokenizer(str(rendered), add_special_tokens=False)["input_ids"]]
    if max_length is not None and len(ids) > max_length:
        raise InputError(f"The chat has {len(ids)} tokens; the model takes {max_length}.")
    return Encoded(decoded_tokens(tokenizer, ids), {"input_ids": ids}, 0)
