from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from headscope.errors import InputError
from headscope.text.splitting import split_words
from headscope.text.tokens import align_array, align_tokens

#        0123456789
TEXT = "don't stop"
WORDS = [(0, 2), (2, 5), (6, 10)]


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([(0, 2), (2, 5), (6, 10)], [0, 1, 2]),
        ([(0, 0), (0, 5), (5, 10), (0, 0)], [-1, 1, 2, -1]),  # n't is longer than do
        ([(1, 3)], [0]),  # one character of each: the first
        ([(5, 6), (5, 5), (10, 10), (11, 14)], [-1, -1, -1, -1]),
        ([(4, 7)], [1]),  # t, space, s
        ([(3, 3)], [-1]),  # inside a word, but without characters
        ([(6, 7), (6, 7), (6, 7)], [2, 2, 2]),  # byte pieces of one character
        ([], []),
    ],
)
def test_token_goes_to_the_word_it_shares_most_with(
    offsets: list[tuple[int, int]], expected: list[int]
) -> None:
    assert align_tokens(offsets, WORDS) == expected
    array = align_array(offsets, WORDS)
    assert array.dtype == np.int32
    assert array.tolist() == expected


def test_no_words() -> None:
    assert align_tokens([(0, 1), (0, 0)], []) == [-1, -1]


def test_words_on_the_same_characters_leave_the_tokens_to_the_first() -> None:
    # French: vais | du (de + le) | Nord
    assert align_tokens([(0, 4), (5, 7), (8, 12)], [(0, 4), (5, 7), (5, 7), (8, 12)]) == [0, 1, 3]


def test_wrong_spans_are_refused_by_number() -> None:
    with pytest.raises(InputError, match=r"Word 1 at \(0, 2\) stands before word 0 at \(3, 5\)"):
        align_tokens([(0, 1)], [(3, 5), (0, 2)])
    with pytest.raises(InputError, match=r"Token 1 ends before it starts: \(4, 2\)"):
        align_tokens([(0, 1), (4, 2)], WORDS)


def slow(offsets: list[tuple[int, int]], spans: list[tuple[int, int]]) -> list[int]:
    found = []
    for start, end in offsets:
        shares = [len(set(range(start, end)) & set(range(a, b))) for a, b in spans]
        best = max(shares, default=0)
        found.append(shares.index(best) if best else -1)
    return found


edges = st.lists(st.integers(0, 30), min_size=2, max_size=12).map(sorted)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))), edges, edges)
def test_agrees_with_counting_characters(
    tokens: list[tuple[int, int]], starts: list[int], lengths: list[int]
) -> None:
    offsets = [(start, start + length) for start, length in tokens]
    ends = [max(0, length) for length in lengths]
    spans = [(a, max(a, b)) for a, b in zip(starts, ends, strict=False)]
    assert align_tokens(offsets, spans) == slow(offsets, spans)


def byte_level() -> Tokenizer:
    """Every byte a token, spaces glued to what follows, as in GPT-2."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(alphabet))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def stripped() -> Tokenizer:
    """Lower-case without accents, as in BERT."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "cafe": 1, "##s": 2}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def test_byte_pieces_of_a_real_tokenizer() -> None:
    encoding = byte_level().encode("aé 🦊")
    # a | two bytes of é | the space | four bytes of the fox
    assert align_tokens(encoding.offsets, split_words("aé 🦊")) == [0, 0, 0, -1, 1, 1, 1, 1]


def test_a_normalizer_that_changes_the_text() -> None:
    text = "Cafe\u0301s CAFÉ"
    encoding = stripped().encode(text)
    assert encoding.tokens == ["cafe", "##s", "cafe"]
    assert align_tokens(encoding.offsets, split_words(text)) == [0, 0, 1]


@settings(deadline=None)
@given(st.text(max_size=30))
def test_every_word_has_tokens_in_a_byte_level_tokenizer(text: str) -> None:
    spans = split_words(text)
    words = align_tokens(byte_level().encode(text).offsets, spans)
    assert set(words) - {-1} == set(range(len(spans)))
