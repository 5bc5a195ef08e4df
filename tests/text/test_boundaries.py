from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.text.splitting import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Li won.", "Who else?", "Nobody."],
        ["He met J. R. Smith in the U.S. Army.", "Then he left."],
        ["“Stop!” she said.", "“Why?”", "He ran (fast).", "It rained."],
        ["It cost 3.50 dollars.", "7 were sold."],
        ["Wait … what?", "No!!!"],
        ["So did I.", "You too?"],
        ["see e.g. the list, vol. 3."],
        ["One"],
    ],
)
def test_sentences_come_apart(sentences: list[str]) -> None:
    text = "  " + "  ".join(sentences) + "\n"
    assert [text[a:b] for a, b in split_sentences(text)] == sentences


def test_sentences_without_spaces_and_blank_lines() -> None:
    text = "東京へ行く。本当？\n\nA heading\n\nand more"
    assert [text[a:b] for a, b in split_sentences(text)] == [
        "東京へ行く。",
        "本当？",
        "A heading",
        "and more",
    ]


@settings(deadline=None)
@given(st.text(st.sampled_from("aA. !?\n\t\"'。)( 1")))
def test_nothing_but_spaces_is_lost(text: str) -> None:
    at = 0
    for start, end in split_sentences(text):
        assert not text[at:start].strip()
        assert text[start:end] == text[start:end].strip() != ""
        at = end
    assert not text[at:].strip()
