"""Tokens as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.model.encode import byte_alphabet, readable, spelling_of
from tests.conftest import byte_tokenizer, word_piece_tokenizer


def test_byte_level_tokens() -> None:
    tokens = ["The", "Ġcat", "Ċ", "cafÃ©", "ðŁ", "ĺ", "<end>", "漢"]
    expected = ["The", " cat", "\n", "café", "<0xF0><0x9F>", "<0x98>", "<end>", "漢"]
    assert readable(tokens, "bytes", {"<end>"}) == expected


def test_metaspace_tokens() -> None:
    tokens = ["▁The", "cat", "<0x0A>", "<0xE2>", "▁", "<s>"]
    assert readable(tokens, "metaspace", {"<s>"}) == [" The", "cat", "\n", "<0xE2>", " ", "<s>"]


def test_word_pieces_stay() -> None:
    assert readable(["un", "##bel", "Ġx"], "plain", set()) == ["un", "##bel", "Ġx"]


def test_spelling_is_read_off_the_tokenizer() -> None:
    assert spelling_of(byte_tokenizer()) == "bytes"
    assert spelling_of(word_piece_tokenizer()) == "plain"


def test_spelling_of_a_sentencepiece_tokenizer() -> None:
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(vocab={"▁a": 0}, merges=[]))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    assert spelling_of(PreTrainedTokenizerFast(tokenizer_object=tokenizer)) == "metaspace"


def test_the_alphabet_has_every_byte_once() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["Ġ"] == 0x20
    assert byte_alphabet()["Ċ"] == 0x0A


@pytest.mark.parametrize("spelling", ["bytes", "metaspace", "plain"])
@given(token=st.text())
def test_any_string_can_be_shown(spelling: str, token: str) -> None:
    (shown,) = readable([token], spelling, set())  # type: ignore[arg-type]
    assert isinstance(shown, str)


@given(text=st.text())
def test_bytes_come_back(text: str) -> None:
    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    token = "".join(letters[byte] for byte in text.encode())
    assert readable([token], "bytes", set()) == [text]
