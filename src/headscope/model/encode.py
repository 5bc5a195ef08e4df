"""From text to model inputs, with what leads back to the text: the offsets, words and segments
of tokens, which of them are special, and how many were cut off.

`encode_texts` is the one way from text to tokens; traces and runs over a corpus both take it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from headscope.errors import InputError, TruncationWarning
from headscope.model.readable import Speller, Spelling
from headscope.text.align import NO_WORD, align_tokens
from headscope.text.tokens import Tokens
from headscope.text.words import split_words

INPUTS = ("input_ids", "token_type_ids")
NO_TOKENS = Tokens(("",), (), (), (), (), (), offsets=())


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A text (or pair) as tokens."""

    tokens: Tokens
    inputs: dict[str, list[int]]
    """What the model reads: `input_ids`, and `token_type_ids` where the tokenizer has them."""
    n_cut: int
    """Tokens that did not fit."""

    def tensors(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Tensor]:
        """The inputs as a batch of one, with an attention mask where the model takes one."""
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
    """Tokenize texts, or pairs of texts, and cut those that are too long.

    Args:
        tokenizer: of the model.
        texts: the texts.
        pairs: for each text a second one, put together with it as the tokenizer does it; None
            where there is none.
        max_length: the most tokens the model takes; None where it has no limit.
        as_target: tokenize as the decoder side of a translation model. Targets have no pairs.
        speller: of the tokenizer; whoever encodes again and again keeps one.
    """
    speller = Speller(tokenizer) if speller is None else speller
    pairs = [None] * len(texts) if pairs is None else pairs
    encoded: dict[int, Encoded] = {}
    for is_pair in (False, True):
        rows = [row for row, pair in enumerate(pairs) if (pair is not None) == is_pair]
        if not rows:
            continue
        call = _Call(tokenizer, texts, pairs if is_pair else None, as_target)
        together = call(rows)
        for index, row in enumerate(rows):
            encoding = together
            n_all = len(encoding["input_ids"][index])
            if max_length is not None and n_all > max_length:
                encoding, index = call([row], max_length), 0
            tokens = _tokens(encoding, index, texts[row], pairs[row], speller)
            inputs = {name: encoding[name][index] for name in INPUTS if name in encoding}
            encoded[row] = Encoded(tokens, inputs, n_all - len(tokens))
    return [encoded[row] for row in range(len(texts))]


def encode(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    pair: str | None = None,
    *,
    max_length: int | None,
    truncate: bool = True,
    as_target: bool = False,
) -> Encoded:
    """Tokenize one text that a user gave, or a pair, with errors and warnings about it.

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
    (encoded,) = encode_texts(tokenizer, [text], [pair], max_length=max_length, as_target=as_target)
    if encoded.n_cut:
        n_all = len(encoded.tokens) + encoded.n_cut
        if not truncate:
            raise InputError(
                f"The text has {n_all} tokens; the model takes {max_length}. "
                "Shorten it, or pass truncate=True to cut it."
            )
        warnings.warn(
            f"The text has {n_all} tokens and the model takes {max_length}: the last "
            f"{encoded.n_cut} were cut.",
            TruncationWarning,
            stacklevel=caller_level(),
        )
    if all(encoded.tokens.special):
        raise InputError(
            f"The text {text!r} gives no token of its own (special tokens alone). "
            "Give a text with at least one word."
        )
    return replace(encoded, tokens=encoded.tokens.with_words())


def caller_level() -> int:
    """The `stacklevel` of a warning that names the first line outside headscope."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("headscope."):
        level, frame = level + 1, frame.f_back
    return level


def shifted_target(target: Encoded, start: int, speller: Speller) -> Tokens:
    """What a decoder reads to predict a target: its start token, then all but the last.

    Args:
        target: the target, encoded as such.
        start: the token the decoder starts with.
        speller: of the tokenizer.
    """
    tokens = target.tokens
    return Tokens(
        texts=tokens.texts,
        tokens=(*speller.spell([start]), *tokens.tokens[:-1]),
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
    """Tokens for ids the model wrote, with the text they decode to.

    Args:
        tokenizer: of the model.
        ids: all of the sequence, `start` included.
        start: what the model was given (its offsets, words and flags are kept).
        is_generated: mark everything after `start` as written by the model.
    """
    start = NO_TOKENS if start is None else start
    new = ids[len(start) :]
    special_ids = set(tokenizer.all_special_ids)
    speller = Speller(tokenizer)
    shown = speller.spell(new)
    special = [token in special_ids for token in new]
    spans, text = [], start.texts[-1]
    n_before = len(text)
    for piece in _pieces(shown, special, speller.spelling):
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    words, word_texts = list(start.words), list(start.word_texts)
    new_words = [span for span in split_words(text) if span[1] > n_before]
    if new_words and new_words[0][0] < n_before and words:
        word_texts.pop()  # the model goes on with the last word it was given
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
    """Does the tokenizer keep two texts apart by special tokens of its own?"""
    added = tokenizer.num_special_tokens_to_add
    return added(pair=True) > added(pair=False)


def _pieces(shown: list[str], special: list[bool], spelling: Spelling) -> list[str]:
    """What each token adds to the text. Word pieces carry no spaces: a new one starts a word."""
    if spelling == "plain":
        shown = [t[2:] if t.startswith("##") else f" {t}" for t in shown]
    return ["" if is_special else t for t, is_special in zip(shown, special, strict=True)]


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


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Calls the tokenizer for some of the texts."""

    tokenizer: PreTrainedTokenizerBase
    texts: Sequence[str]
    pairs: Sequence[str | None] | None
    as_target: bool

    def __call__(self, rows: Sequence[int], max_length: int | None = None) -> Any:
        options: dict[str, Any] = {
            "return_special_tokens_mask": True,
            "return_offsets_mapping": self.tokenizer.is_fast,
            "return_attention_mask": False,
            "verbose": False,  # its warning about length is ours to give
            "truncation": max_length is not None,
        }
        if max_length is not None:
            options["max_length"] = max_length
        texts = [self.texts[row] for row in rows]
        if self.as_target:
            return self.tokenizer(text_target=texts, **options)
        if self.pairs is None:
            return self.tokenizer(texts, **options)
        return self.tokenizer(texts, [self.pairs[row] for row in rows], **options)


def _tokens(encoding: Any, index: int, text: str, pair: str | None, speller: Speller) -> Tokens:
    """The tokens of one text of a batch."""
    ids = tuple(encoding["input_ids"][index])
    special = tuple(map(bool, encoding["special_tokens_mask"][index]))
    offsets = None
    if "offset_mapping" in encoding:
        offsets = tuple(
            (0, 0) if is_special else span
            for span, is_special in zip(encoding["offset_mapping"][index], special, strict=True)
        )
    return Tokens(
        texts=(text,) if pair is None else (text, pair),
        tokens=tuple(speller.spell(ids)),
        ids=ids,
        special=special,
        segments=(0,) * len(ids) if pair is None else _segments(encoding, index, len(ids)),
        generated=(False,) * len(ids),
        offsets=offsets,
    )


def _segments(encoding: Any, index: int, n: int) -> tuple[int, ...]:
    """0 or 1 for each token of a pair; a special token goes with the text before it."""
    try:
        numbers = encoding.sequence_ids(index)
    except (AttributeError, ValueError):  # a tokenizer written in Python does not know
        kinds = encoding["token_type_ids"][index] if "token_type_ids" in encoding else [0] * n
        return tuple(int(kind == 1) for kind in kinds)
    segments, current = [], 0
    for number in numbers:
        current = current if number is None else number
        segments.append(current)
    return tuple(segments)
