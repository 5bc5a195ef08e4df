"""Token sequences: words that are found in the texts, pairs that are one text."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from headscope.errors import InputError
from headscope.text.tokens import Tokens

PAIR = ("Don't go", "a b")


def pair() -> Tokens:
    """[CLS] Don 't go [SEP] a b [SEP]"""
    return Tokens(
        texts=PAIR,
        tokens=("[CLS]", "Don", "'t", " go", "[SEP]", "a", "b", "[SEP]"),
        ids=(1, 5, 6, 7, 2, 8, 9, 2),
        special=(True, False, False, False, True, False, False, True),
        segments=(0, 0, 0, 0, 0, 1, 1, 1),
        generated=(False,) * 8,
        offsets=((0, 0), (0, 3), (3, 5), (5, 8), (0, 0), (0, 1), (2, 3), (0, 0)),
    )


def test_words_are_found_in_the_texts() -> None:
    assert set(pair().words) == {-1}
    tokens = pair().with_words()
    assert tokens.words == (-1, 0, 0, 1, -1, 2, 3, -1)
    assert tokens.word_texts == ("Don't", "go", "a", "b")
    assert [len(group) for group in tokens.word_groups()] == [1, 2, 1, 1, 1, 1, 1]


def test_without_offsets_every_token_is_a_word() -> None:
    bare = Tokens(**{f: getattr(pair(), f) for f in FIELDS}, offsets=None).with_words()
    assert bare.words == (-1, 0, 1, 2, -1, 3, 4, -1)
    assert bare.word_texts == ("Don", "'t", "go", "a", "b")


FIELDS = ("texts", "tokens", "ids", "special", "segments", "generated")


def test_copies_are_equal() -> None:
    assert pair() == pair()
    assert hash(pair()) == hash(pair())
    assert pickle.loads(pickle.dumps(pair())) == pair()
    found = pair().with_words()
    assert replace(found, ids=(0,) * 8).word_texts == found.word_texts


def test_a_pair_as_one_text() -> None:
    text = "Don't go  a b"
    whole = pair().joined(text, 10)
    assert whole.offsets is not None
    assert whole.offsets[1:4] == ((0, 3), (3, 5), (5, 8))
    assert whole.offsets[5:7] == ((10, 11), (12, 13))
    assert whole.offsets[0] == whole.offsets[4] == whole.offsets[7] == (0, 0)
    assert set(whole.segments) == {0}
    assert (whole.tokens, whole.ids, whole.special) == (pair().tokens, pair().ids, pair().special)
    assert whole.with_words().word_texts == ("Don't", "go", "a", "b")
    assert whole.with_words().words == pair().with_words().words


def test_fields_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match=r"8 tokens, but \{'ids': 1\}"):
        Tokens(**{f: getattr(pair(), f) for f in FIELDS if f != "ids"}, ids=(1,), offsets=None)
    with pytest.raises(InputError, match=r"8 tokens, but \{'offsets': 1\}"):
        Tokens(**{f: getattr(pair(), f) for f in FIELDS}, offsets=((0, 0),))
    with pytest.raises(InputError, match="A token belongs to word 0 of 0"):
        Tokens(**{f: getattr(pair(), f) for f in FIELDS}, offsets=None, words=(0,) * 8)
