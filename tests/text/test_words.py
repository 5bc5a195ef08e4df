from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.text.splitting import split_words


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\n", []),
        ("The cat sat.", ["The", "cat", "sat", "."]),
        ("Don't pay $3.50.", ["Don't", "pay", "$", "3.50", "."]),
        ("a well-known co-op's aim", ["a", "well-known", "co-op's", "aim"]),
        ("1,000.5, then 3-4", ["1,000.5", ",", "then", "3-4"]),
        ("'tis -- a--b", ["'", "tis", "-", "-", "a", "-", "-", "b"]),
        ("(so-called) “what’s”", ["(", "so-called", ")", "“", "what’s", "”"]),
        ("2023年に東京へ。", ["2023", "年", "に", "東", "京", "へ", "。"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("हिन्दी می\u200cخواهم", ["हिन्दी", "می\u200cخواهم"]),
        ("👩\u200d👧🇩🇪🇫🇷 👍🏽!", ["👩\u200d👧", "🇩🇪", "🇫🇷", "👍🏽", "!"]),
        ("\ufeffx\u200by", ["x", "y"]),
        ("a_b", ["a", "_", "b"]),
    ],
)
def test_words_are_what_a_reader_would_point_at(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@settings(deadline=None)
@given(st.text())
def test_every_visible_character_is_in_exactly_one_word(text: str) -> None:
    covered = [0] * len(text)
    previous = 0
    for start, end in split_words(text):
        assert previous <= start < end <= len(text)
        previous = end
        for i in range(start, end):
            covered[i] += 1
    for character, count in zip(text, covered, strict=True):
        if character.isspace():
            assert count == 0
        elif unicodedata.category(character) not in {"Cc", "Cf"}:
            assert count == 1


def cpu_seconds(text: str) -> float:
    """Of splitting a text, the least of five: other processes only ever add to it."""
    seconds = []
    for _ in range(5):
        start = time.process_time()
        split_words(text)
        seconds.append(time.process_time() - start)
    return min(seconds)


@pytest.mark.parametrize("piece", ["a-", "1,", "'a", "\u0301", "👩\u200d"])
def test_long_hostile_text_is_linear(piece: str) -> None:
    """Ten times the text takes ten times as long; were it quadratic, a hundred times."""
    assert cpu_seconds(piece * 100_000) < 30 * cpu_seconds(piece * 10_000)
