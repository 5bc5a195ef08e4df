"""Which word a token belongs to, from character offsets alone.

Works for any tokenizer that tells where its tokens stand in the original text, whatever
it did to the text on the way (lower-casing, stripping accents, byte-level pieces). It
neither tokenizes nor splits words: both kinds of spans are given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headscope.errors import InputError

NO_WORD = -1
"""Word number of a token that belongs to no word (special tokens, bare spaces)."""

Span = tuple[int, int]


def align_tokens(offsets: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """For each token, the number of the word with which it shares most characters, or -1.

    - A token over several words (`.)`, a token that holds a space) goes to the word it
      shares most characters with; of equals, to the first.
    - A token without characters, such as a special token at (0, 0), or one that covers
      only spaces goes to none.
    - Byte pieces of one character share its offsets, hence its word.
    - Words that stand on the same characters (`du` as `de` + `le`) are equals: the first
      gets the tokens, the others have none.

    Args:
        offsets: Start and end of each token in the text, end exclusive.
        spans: Start and end of each word in the same text, in order.

    Raises:
        InputError: The words are not in order, or a span ends before it starts.
    """
    words: list[int] = align_array(offsets, spans).tolist()
    return words


def align_array(
    offsets: Sequence[Span] | np.ndarray, spans: Sequence[Span] | np.ndarray
) -> np.ndarray:
    """The same as `align_tokens`, as an int32 array over tokens.

    Args:
        offsets: `token 2`, start and end of each token.
        spans: `word 2`, start and end of each word, both in ascending order.
    """
    token_start, token_end = _columns(offsets, "Token")
    word_start, word_end = _columns(spans, "Word")
    for edge in (word_start, word_end):
        if (np.diff(edge) < 0).any():
            word = int(np.flatnonzero(np.diff(edge) < 0)[0]) + 1
            raise InputError(
                f"Word {word} at {(int(word_start[word]), int(word_end[word]))} stands before "
                f"word {word - 1} at {(int(word_start[word - 1]), int(word_end[word - 1]))}. "
                "Words must be given in the order of the text."
            )
    words = np.full(len(token_start), NO_WORD, dtype=np.int32)
    if not len(word_start):
        return words
    # Words first … last - 1 are those that end after the token starts and start before it ends.
    first = np.searchsorted(word_end, token_start, side="right")
    last = np.searchsorted(word_start, token_end, side="left")
    near = np.minimum(first, len(word_start) - 1)
    shared = np.minimum(word_end[near], token_end) - np.maximum(word_start[near], token_start)
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
    array = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    wrong = np.flatnonzero(array[:, 0] > array[:, 1])
    if len(wrong):
        raise InputError(
            f"{what} {int(wrong[0])} ends before it starts: {tuple(array[wrong[0]].tolist())}."
        )
    return array[:, 0], array[:, 1]
