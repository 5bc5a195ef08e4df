"""From text to model inputs, with what leads back to the text: the offsets, words and segments
of tokens, which of them are special, and how many were cut off.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from headscope.errors import InputError, TruncationWarning
from headscope.model.readable import Spelling, readable, spelling_of
from headscope.text.align import align_tokens
from headscope.text.tokens import NO_WORD, Tokens
from headscope.text.words import split_words

__all__ = ["Encoded", "decoded_tokens", "encode", "joins_pairs"]


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A text (or pair) ready for the model."""

    tokens: Tokens
    inputs: dict[str, Tensor]
    n_cut: int
    """Tokens that did not fit."""


def encode(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    pair: str | None = None,
    *,
    max_length: int | None,
    truncate: bool = True,
    as_target: bool = False,
) -> Encoded:
    """Tokenize a text, or a pair of texts.

    Args:
        tokenizer: of the model.
        text: the text.
        pair: a second text, put together with the first as the tokenizer does it.
        max_length: the most tokens the model takes; None where it has no limit.
        truncate: cut what is too long, with a warning; else it is an error.
        as_target: tokenize as the decoder side of a translation model.
    """
    _check_text(text, "text")
    if pair is not None:
        _check_text(pair, "pair")
        pair = _continued(tokenizer, pair)
    encoding = _tokenize(tokenizer, text, pair, as_target)
    n_all = len(encoding["input_ids"])
    if max_length is not None and n_all > max_length:
        if not truncate:
            raise InputError(
                f"The text has {n_all} tokens; the model takes {max_length}. "
                "Shorten it, or pass truncate=True to cut it."
            )
        encoding = _tokenize(tokenizer, text, pair, as_target, max_length)
        warnings.warn(
            f"The text has {n_all} tokens and the model takes {max_length}: the last "
            f"{n_all - len(encoding['input_ids'])} were cut.",
            TruncationWarning,
            stacklevel=5,
        )
    tokens = _tokens(tokenizer, encoding, text, pair)
    if all(tokens.special):
        raise InputError(
            f"The text {text!r} gives no token of its own (special tokens alone). "
            "Give a text with at least one word."
        )
    inputs = {
        name: torch.tensor([encoding[name]])
        for name in ("input_ids", "attention_mask", "token_type_ids")
        if name in encoding
    }
    return Encoded(tokens, inputs, n_all - len(tokens))


def decoded_tokens(
    tokenizer: PreTrainedTokenizerBase,
    ids: list[int],
    *,
    start: Tokens | None = None,
    is_generated: bool = False,
) -> Tokens:
    """Tokens for ids the model wrote, with the text they decode to.

    Args:
        tokenizer: of the model.
        ids: all of the sequence, `start` included.
        start: what the model was given (its offsets, words and flags are kept).
        is_generated: mark everything after `start` as written by the model.
    """
    n_start = 0 if start is None else len(start)
    new = ids[n_start:]
    special_ids = set(tokenizer.all_special_ids)
    shown = _shown(tokenizer, new)
    special = [token in special_ids for token in new]
    spans, text = [], ""
    pieces = _pieces(shown, special, spelling_of(tokenizer))
    for piece in pieces:
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    if start is None or not start.texts:
        base, words, word_texts, offsets = "", [], [], []
        segments: list[int] = []
    else:
        base = start.texts[-1]
        words, word_texts = list(start.words), list(start.word_texts)
        offsets, segments = list(start.offsets or ()), list(start.segments)
    segment = max(segments, default=0)
    spans = [(a + len(base), b + len(base)) for a, b in spans]
    new_words = [span for span in split_words(base + text) if span[1] > len(base)]
    aligned = align_tokens(spans, new_words)
    first = len(word_texts)
    continues = bool(new_words) and new_words[0][0] < len(base) and bool(words)
    if continues:  # the model goes on with the last word it was given
        first -= 1
        word_texts.pop()
    word_texts += [(base + text)[a:b] for a, b in new_words]
    words += [NO_WORD if word < 0 else first + word for word in aligned]
    texts = (*(() if start is None else start.texts[:-1]), base + text)
    return Tokens(
        texts=texts,
        tokens=(*(() if start is None else start.tokens), *shown),
        ids=tuple(ids),
        special=(*(() if start is None else start.special), *special),
        segments=(*segments, *([segment] * len(new))),
        generated=(*((False,) * n_start), *((is_generated,) * len(new))),
        offsets=None if start is not None and start.offsets is None else (*offsets, *spans),
        words=tuple(words),
        word_texts=tuple(word_texts),
    )


def joins_pairs(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does the tokenizer keep two texts apart by special tokens of its own?"""
    added = tokenizer.num_special_tokens_to_add
    return added(pair=True) > added(pair=False)


def _pieces(shown: list[str], special: list[bool], spelling: Spelling) -> list[str]:
    """What each token adds to the text. Word pieces carry no spaces: a new one starts a word."""
    if spelling == "plain":
        shown = [t[2:] if t.startswith("##") else f" {t}" for t in shown]
    return ["" if is_special else t for t, is_special in zip(shown, special, strict=True)]


def _shown(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    """Ids as readable tokens. A model may have more ids than its tokenizer has names."""
    names = tokenizer.convert_ids_to_tokens(ids)
    tokens = [f"<{i}>" if name is None else name for i, name in zip(ids, names, strict=True)]
    return readable(tokens, spelling_of(tokenizer), tokenizer.all_special_tokens)


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


def _continued(tokenizer: PreTrainedTokenizerBase, pair: str) -> str:
    """The second text as it follows the first: after a space, where the tokenizer puts no
    separator between them.
    """
    return pair if joins_pairs(tokenizer) or pair[0].isspace() else " " + pair


def _tokenize(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    pair: str | None,
    as_target: bool,
    max_length: int | None = None,
) -> BatchEncoding:
    options: dict[str, Any] = {
        "return_special_tokens_mask": True,
        "return_offsets_mapping": tokenizer.is_fast,
        "verbose": False,  # of texts that are too long, `encode` warns
        "truncation": max_length is not None,
    }
    if max_length is not None:
        options["max_length"] = max_length
    encoding: BatchEncoding = (
        tokenizer(text_target=text, **options) if as_target else tokenizer(text, pair, **options)
    )
    return encoding


def _tokens(
    tokenizer: PreTrainedTokenizerBase, encoding: BatchEncoding, text: str, pair: str | None
) -> Tokens:
    ids = list(encoding["input_ids"])
    special = [bool(flag) for flag in encoding["special_tokens_mask"]]
    shown = _shown(tokenizer, ids)
    texts = (text,) if pair is None else (text, pair)
    segments = _segments(encoding, len(ids), is_pair=pair is not None)
    offsets = encoding.get("offset_mapping")
    if offsets is not None:
        offsets = tuple(
            (0, 0) if is_special else (int(a), int(b))
            for (a, b), is_special in zip(offsets, special, strict=True)
        )
    words = [NO_WORD] * len(ids)
    word_texts: list[str] = []
    for number, part in enumerate(texts):
        if offsets is None:
            break
        spans = split_words(part)
        inside = [i for i in range(len(ids)) if segments[i] == number and not special[i]]
        for i, word in zip(inside, align_tokens([offsets[i] for i in inside], spans), strict=True):
            words[i] = NO_WORD if word < 0 else len(word_texts) + word
        word_texts += [part[a:b] for a, b in spans]
    if offsets is None:  # a tokenizer written in Python: every token is its own word
        kept = [i for i in range(len(ids)) if not special[i]]
        for word, i in enumerate(kept):
            words[i] = word
        word_texts = [shown[i].strip() for i in kept]
    return Tokens(
        texts=texts,
        tokens=tuple(shown),
        ids=tuple(ids),
        special=tuple(special),
        segments=tuple(segments),
        generated=(False,) * len(ids),
        offsets=offsets,
        words=tuple(words),
        word_texts=tuple(word_texts),
    )


def _segments(encoding: BatchEncoding, n: int, *, is_pair: bool) -> list[int]:
    """0 or 1 for each token; a special token goes with the text before it."""
    if not is_pair:
        return [0] * n
    try:
        numbers = encoding.sequence_ids(0)
    except (AttributeError, ValueError):  # a tokenizer written in Python does not know
        return [int(kind == 1) for kind in encoding.get("token_type_ids", [0] * n)]
    segments, current = [], 0
    for number in numbers:
        current = current if number is None else number
        segments.append(current)
    return segments
