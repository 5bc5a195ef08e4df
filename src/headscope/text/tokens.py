"""Tokens of one sequence in readable form, with their positions in text, image or recording.

Tokens are aligned with words by character offsets alone, so any tokenizer that returns offsets
works.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from headscope.errors import InputError
from headscope.text.splitting import UNSPACED, split_words

if TYPE_CHECKING:
    import xarray as xr


NO_WORD = -1
"""Word number of a token outside all words (special tokens, bare spaces)."""

MAX_WORD_TOKENS = 40
"""Maximum tokens of a word that metrics count."""

Span = tuple[int, int]


def align_tokens(offsets: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """Return for each token the number of the word that shares most characters, or -1.

    Ties go to the first word: a token over several words (`.)`), words on the same characters (`du`
    as `de` + `le`). A token without characters, such as a special token at (0, 0), or of spaces
    only, gets -1. Byte pieces of one character share its offsets, hence its word. Raises InputError
    unless `spans` are in order.
    """
    return align_array(offsets, spans).tolist()


def overlong(text: str, offsets: Sequence[Span], max_tokens: int | None) -> np.ndarray:
    """Return, for each token, the number of its word of more than `max_tokens` tokens, or -1. A
    word is text without a space (a URL); the first token, a sink, is never left out.
    """
    none = np.full(len(offsets), NO_WORD, dtype=np.int32)
    if max_tokens is None or len(offsets) <= max_tokens:
        return none
    # A character has at most four bytes, and so at most four tokens.
    words = re.finditer(rf"\S{{{max_tokens // 4 + 1},}}", text)
    spans = [word.span() for word in words if not UNSPACED.search(word[0])]
    if not spans:
        return none
    owners = align_array(offsets, spans)
    counts = np.bincount(owners[owners >= 0], minlength=len(spans))
    owners = np.where((owners >= 0) & (counts[owners] > max_tokens), owners, NO_WORD)
    owners[0] = NO_WORD
    return owners


def align_array(
    offsets: Sequence[Span] | np.ndarray, spans: Sequence[Span] | np.ndarray
) -> np.ndarray:
    """Return `align_tokens` of `token 2` and `word 2` as an int32 array over tokens."""
    token_start, token_end = _columns(offsets, "Token")
    word_start, word_end = _columns(spans, "Word")
    for is_back in (np.diff(word_start) < 0, np.diff(word_end) < 0):
        if is_back.any():
            word = int(np.argmax(is_back)) + 1
            before, at = ((int(word_start[i]), int(word_end[i])) for i in (word - 1, word))
            raise InputError(
                f"Word {word} at {at} stands before word {word - 1} at {before}. Words must be "
                "given in the order of the text."
            )
    words = np.full(len(token_start), NO_WORD, dtype=np.int32)
    if not len(word_start):
        return words
    # Words first … last - 1 are those that end after the token starts and start before it ends.
    first = np.searchsorted(word_end, token_start, side="right")
    last = np.searchsorted(word_start, token_end, side="left")
    candidates = np.minimum(first, len(word_start) - 1)
    shared = np.minimum(word_end[candidates], token_end) - np.maximum(
        word_start[candidates], token_start
    )
    single = (last - first == 1) & (shared > 0)
    words[single] = first[single]
    for token in np.flatnonzero(last - first > 1):
        touched = slice(first[token], last[token])
        share = np.minimum(word_end[touched], token_end[token]) - np.maximum(
            word_start[touched], token_start[token]
        )
        if share.max() > 0:
            words[token] = first[token] + share.argmax()
    return words


def _columns(pairs: Sequence[Span] | np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    if (starts > ends).any():
        wrong = int(np.argmax(starts > ends))
        span = int(starts[wrong]), int(ends[wrong])
        raise InputError(f"{what} {wrong} ends before it starts: {span}.")
    return starts, ends


@dataclass(frozen=True, slots=True)
class Patch:
    """Rectangle of an image.

    `row` and `column` count the patches of the sequence; `top`, `left`, `bottom` and `right` are
    fractions of the image's height and width.
    """

    row: int
    column: int
    top: float
    left: float
    bottom: float
    right: float
    image: int = 0
    """Number of the image."""

    def __post_init__(self) -> None:
        is_inside = 0 <= self.top < self.bottom <= 1 and 0 <= self.left < self.right <= 1
        if not is_inside or min(self.row, self.column, self.image) < 0:
            raise InputError(f"A patch lies within its image: {self}.")

    @property
    def label(self) -> str:
        """Readable name: row and column from 0."""
        return f"{self.row},{self.column}"


@dataclass(frozen=True, slots=True)
class Frame:
    """Stretch of a recording, in seconds."""

    start: float
    end: float

    def __post_init__(self) -> None:
        if not (0 <= self.start < self.end and math.isfinite(self.end)):
            raise InputError(f"A frame starts before it ends: {self}.")

    @property
    def label(self) -> str:
        """Readable name: the start."""
        return f"{self.start:.2f} s"


MediaToken = Patch | Frame


def joined_piece(pieces: list[MediaToken | None]) -> MediaToken | None:
    """Return one frame for consecutive frames, from the first to the last; None for patches."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return first
    if isinstance(first, Frame) and isinstance(last, Frame):
        return Frame(first.start, last.end)
    return None


_PER_TOKEN = ("ids", "special", "segments", "generated")


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token sequence. All per-token fields have the same length.

    `texts` holds the one or two texts of the sequence; `segments` numbers the text of each token,
    and `offsets` are characters of that text. Runs over a corpus use the words of documents;
    `with_words` finds words in the texts.
    """

    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    """Readable tokens: a leading space for Ġ or ▁, bytes decoded."""
    ids: tuple[int, ...]
    special: tuple[bool, ...]
    """True for tokens that the tokenizer added ([CLS], <s>)."""
    segments: tuple[int, ...]
    generated: tuple[bool, ...]
    """True for tokens that the model generated."""
    offsets: tuple[tuple[int, int], ...] | None
    """Character offsets; None if the tokenizer lacks them."""
    words: tuple[int, ...] = ()
    """Number of the token's word in `word_texts`, or -1."""
    word_texts: tuple[str, ...] = ()
    media_tokens: tuple[MediaToken | None, ...] = ()
    """`Patch` or `Frame` of each token, None for text; empty if all tokens are text."""

    def __post_init__(self) -> None:
        n = len(self.tokens)
        has_words = bool(self.words or self.word_texts)
        if not has_words:
            object.__setattr__(self, "words", (NO_WORD,) * n)
        lengths = {name: len(getattr(self, name)) for name in (*_PER_TOKEN, "words")}
        lengths["offsets"] = n if self.offsets is None else len(self.offsets)
        lengths["media_tokens"] = len(self.media_tokens) or n
        wrong = {name: length for name, length in lengths.items() if length != n}
        if wrong:
            raise InputError(f"{n} tokens, but {wrong}: every field needs one entry per token.")
        if not has_words:
            return
        _check_words(self.words)
        highest = max(self.words, default=NO_WORD)
        if highest >= len(self.word_texts):
            raise InputError(f"A token belongs to word {highest} of {len(self.word_texts)}.")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(
        cls,
        tokens: Sequence[str],
        *,
        special: Sequence[bool] | None = None,
        segments: Sequence[int] | None = None,
        words: Sequence[int] | None = None,
    ) -> Tokens:
        """Return tokens from bare strings, each its own word unless `words` is passed."""
        listed = list(tokens) if isinstance(tokens, Iterable) else [tokens]
        for position, token in enumerate(listed):
            if not isinstance(token, str):
                raise InputError(
                    f"Token {position} is {token!r}: expected a list of strings, one for each "
                    "position."
                )
        n = len(listed)
        special = tuple(map(bool, special)) if special is not None else (False,) * n
        if words is None:
            plain = [i for i in range(n) if i < len(special) and not special[i]]
            number = {token: word for word, token in enumerate(plain)}
            words = [number.get(i, NO_WORD) for i in range(n)]
            word_texts = [tokens[i].strip() for i in plain]
        else:
            _check_words(words)
            word_texts = [
                "".join(t for t, w in zip(tokens, words, strict=False) if w == word).strip()
                for word in range(max(words, default=NO_WORD) + 1)
            ]
        return cls(
            texts=("".join(tokens),),
            tokens=tuple(tokens),
            ids=(-1,) * n,
            special=special,
            segments=tuple(segments) if segments is not None else (0,) * n,
            generated=(False,) * n,
            offsets=None,
            words=tuple(words),
            word_texts=tuple(word_texts),
        )

    def with_words(self) -> Tokens:
        """Return the tokens with words from `split_words`; unchanged without offsets."""
        words = [NO_WORD] * len(self)
        word_texts: list[str] = []
        if self.offsets is None:
            plain = Tokens.of(self.tokens, special=self.special)
            return replace(self, words=plain.words, word_texts=plain.word_texts)
        for number, text in enumerate(self.texts):
            spans = split_words(text)
            owners = enumerate(zip(self.segments, self.special, strict=True))
            inside = [i for i, owner in owners if owner == (number, False)]
            aligned = align_tokens([self.offsets[i] for i in inside], spans)
            for i, word in zip(inside, aligned, strict=True):
                words[i] = NO_WORD if word < 0 else len(word_texts) + word
            word_texts += [text[start:end] for start, end in spans]
        return replace(self, words=tuple(words), word_texts=tuple(word_texts))

    def joined(self, text: str, second: int) -> Tokens:
        """Return tokens of a pair as tokens of the one text that contains both; the second starts
        at character `second`.
        """
        offsets = self.offsets
        if offsets is not None:
            columns = zip(offsets, self.segments, self.special, strict=True)
            offsets = tuple(
                (start + second, end + second) if segment and not is_special else (start, end)
                for (start, end), segment, is_special in columns
            )
        kept = {name: getattr(self, name) for name in _PER_TOKEN}
        kept["segments"] = (0,) * len(self)
        return Tokens((text,), self.tokens, offsets=offsets, **kept)

    def by_word(self) -> Tokens:
        """Return the sequence with one entry per word; tokens outside words stay single."""
        groups = self.word_groups()
        firsts = [group[0] for group in groups]
        offsets = None
        if self.offsets is not None:
            offsets = tuple((self.offsets[g[0]][0], self.offsets[g[-1]][1]) for g in groups)
        texts = tuple(
            self.tokens[i] if self.words[i] == NO_WORD else self.word_texts[self.words[i]]
            for i in firsts
        )
        has_word = [self.words[i] != NO_WORD for i in firsts]
        count = itertools.count()
        return replace(
            self,
            tokens=texts,
            offsets=offsets,
            words=tuple(next(count) if is_word else NO_WORD for is_word in has_word),
            word_texts=tuple(itertools.compress(texts, has_word)),
            media_tokens=tuple(
                joined_piece([self.media_tokens[i] for i in group])
                for group in (groups if self.media_tokens else ())
            ),
            **{name: tuple(getattr(self, name)[i] for i in firsts) for name in _PER_TOKEN},
        )

    def word_groups(self) -> list[list[int]]:
        """Return token positions of each word, in order; a token outside words is its own group."""
        groups: dict[int, list[int]] = {}
        for i, word in enumerate(self.words):
            groups.setdefault(word if word != NO_WORD else -2 - i, []).append(i)
        return list(groups.values())


def _check_words(words: Sequence[object]) -> None:
    for token, word in enumerate(words):
        if not isinstance(word, Integral) or word < NO_WORD:
            raise InputError(
                f"Token {token} belongs to word {word!r}: expected a number from 0 on, or "
                f"{NO_WORD} for no word."
            )


FIRST = "first"
PERIOD_OR_COMMA = ". or ,"
PUNCTUATION = "punctuation"
REST = "rest"
"""Class of tokens that are neither special nor punctuation."""


def class_names(special: Iterable[str]) -> tuple[str, ...]:
    """Return the classes of a model whose tokenizer adds these special tokens."""
    return (FIRST, *dict.fromkeys(special), PERIOD_OR_COMMA, PUNCTUATION, REST)


def class_members(tokens: Sequence[str], special: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """`token class`: return the membership of each token in the classes of `class_names`. Tokens
    are readable or as in the vocabulary; `special` ones by name.
    """
    members = np.zeros((len(tokens), len(names)), dtype=bool)
    if not len(tokens) or not names:
        return members
    columns = {name: number for number, name in enumerate(names)}
    rows, classes = [0], [columns[FIRST]]
    for row, (token, is_special) in enumerate(zip(tokens, special.tolist(), strict=True)):
        for name in (token,) if is_special else _classes_of(token):
            if name in columns:
                rows.append(row)
                classes.append(columns[name])
    members[rows, classes] = True
    return members


def is_repeated(shares: xr.DataArray) -> bool:
    """Return whether the first token's values equal another class, as [CLS] may."""
    (dim,) = (dim for dim in shares.dims if str(dim).endswith("class"))
    first_shares = shares.sel({dim: FIRST})
    classes = [other for other in shares[dim].values if other not in (FIRST, "all")]
    return any(np.array_equal(first_shares, shares.sel({dim: o}), equal_nan=True) for o in classes)


@functools.lru_cache(maxsize=1 << 16)
def _classes_of(token: str) -> tuple[str, ...]:
    if not is_punctuation(token):
        return (REST,)
    return (PUNCTUATION, PERIOD_OR_COMMA) if _bare(token) in (".", ",") else (PUNCTUATION,)


@functools.lru_cache(maxsize=1 << 16)
def is_punctuation(token: str) -> bool:
    """Return whether a token is only punctuation, by Unicode or ASCII."""
    bare = _bare(token)
    return bool(bare) and all(
        c in string.punctuation or unicodedata.category(c).startswith("P") for c in bare
    )


def _bare(token: str) -> str:
    """Return the token without the vocabulary's marks of word starts."""
    token = token.strip().lstrip("Ġ▁").strip()
    return token[2:] if token.startswith("##") and len(token) > 2 else token
