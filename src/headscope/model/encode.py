"""Encode texts, pairs and chats as model inputs, with offsets, words and readable tokens.

Traces and corpus runs both tokenize through `encode_texts`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from headscope.errors import InputError, TruncationWarning, warn
from headscope.text.splitting import split_words
from headscope.text.tokens import NO_WORD, Tokens, align_tokens

Spelling = Literal["bytes", "metaspace", "plain"]
"""Alphabet of a vocabulary: GPT-2's bytes, SentencePiece's ▁ and <0x0A>, or plain text
(WordPiece)."""

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def spelling_of(tokenizer: PreTrainedTokenizerBase) -> Spelling:
    """Return the spelling of a transformers tokenizer, from its decoder."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # The decoder's own state: the whole tokenizer has megabytes of vocabulary.
        parts = "" if backend.decoder is None else backend.decoder.__getstate__().decode()
        if "ByteLevel" in parts:
            return "bytes"
        if "Metaspace" in parts or "▁" in parts:
            return "metaspace"
        return "plain"
    if hasattr(tokenizer, "byte_decoder"):
        return "bytes"
    return "metaspace" if hasattr(tokenizer, "sp_model") else "plain"


class Speller:
    """Readable tokens of a tokenizer's ids, each looked up once; the vocabulary must not change."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str] = {}

    @functools.cached_property
    def spelling(self) -> Spelling:
        """Spelling of the vocabulary."""
        return spelling_of(self._tokenizer)

    def spell(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of ids. A model may have more ids than its tokenizer has names."""
        names = self._names
        unseen = [token for token in dict.fromkeys(ids) if token not in names]
        if unseen:
            tokens = self._tokenizer.convert_ids_to_tokens(unseen)
            named = [
                f"<{token}>" if name is None else name
                for token, name in zip(unseen, tokens, strict=True)
            ]
            special = self._tokenizer.all_special_tokens
            names.update(zip(unseen, readable(named, self.spelling, special), strict=True))
        return [names[token] for token in ids]


def readable(tokens: Sequence[str], spelling: Spelling, special: Collection[str]) -> list[str]:
    """Return vocabulary strings as text; special tokens stay the same."""
    if spelling == "plain":
        return list(tokens)
    return [token if token in special else _spelled(token, spelling) for token in tokens]


def _spelled(token: str, spelling: Spelling) -> str:
    """Decode a vocabulary string; show the bytes of an incomplete character as <0xE2>."""
    alphabet = byte_alphabet()
    if spelling == "metaspace":
        match = BYTE_TOKEN.fullmatch(token)
        if match is None:
            return token.replace("▁", " ")
        raw = bytes([int(match[1], 16)])
    elif all(character in alphabet for character in token):
        raw = bytes(alphabet[character] for character in token)
    else:
        return token  # an added token in plain text
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 0x80 else f"<0x{b:02X}>" for b in raw)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Return character → byte of GPT-2's alphabet: other bytes are characters from U+0100 on."""
    return {character: byte for byte, character in bytes_to_unicode().items()}


INPUTS = ("input_ids", "token_type_ids")
NO_TOKENS = Tokens(("",), (), (), (), (), (), offsets=())


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Tokens and inputs of a text or pair."""

    tokens: Tokens
    inputs: dict[str, list[int]]
    """`input_ids`, and `token_type_ids` if the tokenizer has them."""
    n_cut: int

    def tensors(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Tensor]:
        """Return the inputs as a batch of one, with an attention mask if the tokenizer uses one."""
        inputs = {name: torch.tensor([values]) for name, values in self.inputs.items()}
        if "attention_mask" in tokenizer.model_input_names:
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        return inputs


def encode_texts(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    pairs: Sequence[str | None] | None = None,
    *,
    max_length: int | None,
    as_target: bool = False,
    speller: Speller | None = None,
) -> list[Encoded]:
    """Tokenize texts, or pairs joined by the tokenizer, and cut those over `max_length` tokens.
    `as_target` is for the decoder of a translation model. Frequent callers share a `speller`.
    """
    speller = Speller(tokenizer) if speller is None else speller
    pairs = [None] * len(texts) if pairs is None else pairs
    encoded: dict[int, Encoded] = {}

    def call(rows: Sequence[int], is_pair: bool, **options: object) -> Any:
        columns: list[Any] = [[texts[row] for row in rows]]
        if is_pair:
            columns.append([pairs[row] for row in rows])
        if not isinstance(getattr(tokenizer, "model_max_length", None), int | float):
            options = {"max_length": NO_LIMIT, **options}  # transformers would compare with None
        return tokenizer(
            *([] if as_target else columns),
            text_target=columns[0] if as_target else None,
            return_special_tokens_mask=True,
            return_offsets_mapping=tokenizer.is_fast,
            return_attention_mask=False,
            verbose=False,  # headscope warns about the length itself
            **options,
        )

    for is_pair in (False, True):
        rows = [row for row, pair in enumerate(pairs) if (pair is not None) == is_pair]
        shared: Any = call(rows, is_pair, truncation=False) if rows else None
        for index, row in enumerate(rows):
            encoding = shared
            n_all = len(encoding["input_ids"][index])
            if max_length is not None and n_all > max_length:
                encoding = call([row], is_pair, truncation=True, max_length=max_length)
                index = 0
            tokens = _tokens(encoding, index, texts[row], pairs[row], speller)
            inputs = {name: encoding[name][index] for name in INPUTS if name in encoding}
            encoded[row] = Encoded(tokens, inputs, n_all - len(tokens))
    return [encoded[row] for row in range(len(texts))]


NO_LIMIT = 10**9
MIN_UNKNOWN, MAX_UNKNOWN = 3, 1 / 3
"""Number and share of unknown tokens from which on there is a warning."""


def encode(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    pair: str | None = None,
    *,
    max_length: int | None,
    truncate: bool = True,
    as_target: bool = False,
) -> Encoded:
    """Tokenize one text or pair of a user, with errors and warnings: see `encode_texts`. A text
    over `max_length` tokens is cut with a warning, or an error unless `truncate`.
    """
    _check_text(text, "text")
    if pair is not None:
        _check_text(pair, "pair")
        if not joins_pairs(tokenizer) and not pair[0].isspace():
            pair = f" {pair}"
    (encoded,) = encode_texts(tokenizer, [text], [pair], max_length=max_length, as_target=as_target)
    if encoded.n_cut:
        n_all = len(encoded.tokens) + encoded.n_cut
        if not truncate:
            raise InputError(
                f"The text has {n_all} tokens; the model takes {max_length}. "
                "Shorten it, or pass truncate=True to cut it."
            )
        warn(
            f"The text has {n_all} tokens and the model takes {max_length}: the last "
            f"{encoded.n_cut} were cut.",
            TruncationWarning,
        )
    unknown, tokens = getattr(tokenizer, "unk_token_id", None), encoded.tokens
    own = [i for i, is_special in zip(tokens.ids, tokens.special, strict=True) if not is_special]
    n_unknown = own.count(unknown) if unknown is not None else 0
    if n_unknown >= MIN_UNKNOWN and n_unknown > MAX_UNKNOWN * len(own):
        warn(
            f"{n_unknown} of {len(tokens)} tokens are {tokenizer.unk_token}: the tokenizer "
            "does not know these words. Is it the tokenizer of this model, and of this language?"
        )
    if all(encoded.tokens.special):
        raise InputError(
            f"The text {text!r} gives no token of its own (special tokens alone). "
            "Give a text with at least one word."
        )
    return replace(encoded, tokens=encoded.tokens.with_words())


def shifted_target(target: Encoded, start: int, speller: Speller) -> Tokens:
    """Return the decoder's input for an encoded target: its start token, then all but the last."""
    tokens = target.tokens
    return Tokens(
        tokens.texts,
        (*speller.spell([start]), *tokens.tokens[:-1]),
        ids=(start, *tokens.ids[:-1]),
        special=(True, *tokens.special[:-1]),
        segments=tokens.segments or (0,),
        generated=tokens.generated or (False,),
        offsets=None if tokens.offsets is None else ((0, 0), *tokens.offsets[:-1]),
    )


def decoded_tokens(
    tokenizer: PreTrainedTokenizerBase,
    ids: list[int],
    *,
    start: Tokens | None = None,
    is_generated: bool = False,
) -> Tokens:
    """Make tokens for the ids of a whole sequence, with the text they decode to. Offsets, words and
    flags of the prompt `start` are kept; the rest may be marked as generated.
    """
    start = NO_TOKENS if start is None else start
    new = ids[len(start) :]
    special_ids = set(tokenizer.all_special_ids)
    speller = Speller(tokenizer)
    shown = speller.spell(new)
    special = [token in special_ids for token in new]
    spans, text = [], start.texts[-1]
    n_before = len(text)
    for token, is_special in zip(shown, special, strict=True):
        start_of_token = len(text)
        if speller.spelling == "plain" and not is_special:  # a new word piece starts a word
            token = token[2:] if token.startswith("##") else f" {token}"
        text += "" if is_special else token
        spans.append((start_of_token, len(text)))
    words, word_texts = list(start.words), list(start.word_texts)
    new_words = [span for span in split_words(text) if span[1] > n_before]
    if new_words and new_words[0][0] < n_before and words:
        word_texts.pop()  # the model continues the last word of the prompt
    first = len(word_texts)
    words += [NO_WORD if word < 0 else first + word for word in align_tokens(spans, new_words)]
    word_texts += [text[a:b] for a, b in new_words]
    segment = max(start.segments, default=0)
    return Tokens(
        texts=(*start.texts[:-1], text),
        tokens=(*start.tokens, *shown),
        ids=tuple(ids),
        special=(*start.special, *special),
        segments=(*start.segments, *[segment] * len(new)),
        generated=(*[False] * len(start), *[is_generated] * len(new)),
        offsets=None if start.offsets is None else (*start.offsets, *spans),
        words=tuple(words),
        word_texts=tuple(word_texts),
    )


def joins_pairs(tokenizer: PreTrainedTokenizerBase) -> bool:
    """True if the tokenizer separates two texts by special tokens."""
    added = tokenizer.num_special_tokens_to_add
    return added(pair=True) > added(pair=False)


def _check_text(text: object, name: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"{name} should be a string, not {type(text).__name__}: {text!r:.80}.")
    if not text.strip():
        raise InputError(f"{name} is empty ({text!r}). Give at least one word.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} holds a lone surrogate ({text[error.start]!r} at character "
            f"{error.start}), which is not text. Decode it properly first."
        ) from None


def _tokens(encoding: Any, index: int, text: str, pair: str | None, speller: Speller) -> Tokens:
    ids = tuple(encoding["input_ids"][index])
    special = tuple(map(bool, encoding["special_tokens_mask"][index]))
    offsets = None
    if "offset_mapping" in encoding:
        offsets = tuple(
            (0, 0) if is_special else span
            for span, is_special in zip(encoding["offset_mapping"][index], special, strict=True)
        )
    segments = [0] * len(ids)
    if pair is not None:
        try:
            numbers = encoding.sequence_ids(index)
        except (AttributeError, ValueError):  # a tokenizer written in Python
            kinds = encoding["token_type_ids"][index] if "token_type_ids" in encoding else segments
            numbers = [int(kind == 1) for kind in kinds]
        for position, number in enumerate(numbers):  # a special token is of the text before it
            segments[position] = segments[position - 1] if number is None else number
    return Tokens(
        texts=(text,) if pair is None else (text, pair),
        tokens=tuple(speller.spell(ids)),
        ids=ids,
        special=special,
        segments=tuple(segments),
        generated=(False,) * len(ids),
        offsets=offsets,
    )


Messages = Sequence[Mapping[str, Any]]
"""A chat: dicts with `role` and `content`."""


def is_chat(text: object) -> TypeGuard[Messages]:
    """True for a non-empty list of messages, each with a role."""
    return (
        isinstance(text, Sequence)
        and not isinstance(text, str)
        and bool(text)
        and all(isinstance(message, Mapping) and "role" in message for message in text)
    )


def n_placed_images(messages: Messages) -> int:
    """Return the number of images in the messages' contents."""
    return sum(
        isinstance(part, Mapping) and part.get("type") == "image"
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )


def written_chat(writer: Any, messages: Messages, *, takes_parts: bool) -> str:
    """Apply the chat template of a tokenizer or processor, up to the assistant's reply.

    A processor's template may ignore contents that are texts, so with `takes_parts` lists of parts
    are tried too. Raises InputError if the template rejects the messages.
    """
    plain = [dict(message) for message in messages]
    in_parts = [dict(message) for message in messages]
    for message in in_parts:
        if isinstance(message.get("content"), str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    written: list[str] = []
    refusals: list[Exception] = []
    for chat in [plain, in_parts] if takes_parts else [plain]:
        try:
            form = writer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            written.append(str(form))
        except Exception as error:  # templates are programs and may raise anything
            refusals.append(error)
    if not written:
        raise InputError(
            f"The chat template refused the messages: {refusals[0]}. Expected dicts with role and "
            'content: [{"role": "user", "content": "…"}].'
        ) from refusals[0]
    texts = [m["content"].strip() for m in plain if isinstance(m.get("content"), str)]
    return max(written, key=lambda form: sum(text in form for text in texts))


def encode_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Messages,
    *,
    max_length: int | None,
    processor: object | None = None,
) -> Encoded:
    """Tokenize a chat by the template of the tokenizer, or else of the model's processor. Raises
    InputError without a template, and for images or too many tokens: chats are not cut.
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
