"""Tables of tokenizers for the page, and the kinds that are refused for typing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import headscope as hs
from headscope.live import site
from headscope.live.graph import Graph
from headscope.live.tokenizer import Refusal, page_tokenizer
from headscope.model.model import Model
from tests.conftest import byte_tokenizer, word_piece_tokenizer

Make = Callable[[], Any]


@pytest.mark.parametrize("make", [word_piece_tokenizer, byte_tokenizer])
def test_two_hundred_vectors_are_those_of_the_tokenizer(make: Make) -> None:
    tokenizer = make()
    tables = page_tokenizer(tokenizer)
    assert len(tables["vectors"]) == 200
    assert len({text for text, _ in tables["vectors"]}) > 190
    for text, ids in tables["vectors"]:
        assert tokenizer(text)["input_ids"] == ids
        assert ids[: len(tables["prefix"])] == tables["prefix"]
    assert json.loads(json.dumps(tables))["tables"]["kind"] in ("bert", "byte")


def test_tables_have_the_classes_of_characters() -> None:
    words = page_tokenizer(word_piece_tokenizer())
    assert (words["prefix"], words["suffix"]) == ([2], [3])
    tables = words["tables"]
    assert tables["map"][ord("É")] == "e"
    assert has(tables["spaced"], "東")
    assert has(tables["removed"], "\u0000")
    assert has(tables["punct"], "!")
    assert has(tables["space"], " ")
    assert tables["hangul"] is True
    pieces = page_tokenizer(byte_tokenizer())["tables"]
    assert has(pieces["L"], "é")
    assert has(pieces["N"], "½")
    assert has(pieces["S"], "\u3000")
    assert not has(pieces["L"], "!")
    assert pieces["D"] == []


def has(ranges: list[list[int]], character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


def unigram() -> Any:
    return fast(Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0)))


def split() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("x", "isolated"), pre_tokenizers.ByteLevel(use_regex=False)]
    )
    return tokenizer


def normalized() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def stripped() -> Any:
    tokenizer = word_piece_tokenizer()
    tokenizer.add_tokens([AddedToken("<x>", lstrip=True, normalized=False)])
    return tokenizer


def other_words() -> Any:
    tokenizer = word_piece_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def fast(tokenizer: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (unigram, "Unigram tokenizers are not supported"),
        (split, r"its pre-tokenizer is Split \+ ByteLevel"),
        (normalized, "its normalizer is NFC"),
        (stripped, "'<x>' has lstrip"),
        (other_words, "its pre_tokenizer is Whitespace"),
    ],
)
def test_other_kinds_are_refused_with_the_reason(make: Make, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        page_tokenizer(make())


def test_a_page_without_typing_is_written_with_the_reason(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    exported: Callable[[Model], Graph],
) -> None:  # fmt: skip
    monkeypatch.setattr(site, "export", lambda _: exported(tiny_bert))
    model = hs.load(tiny_bert.module, stripped())
    written = hs.save_live(model, tmp_path)
    assert written.tokenizer_refusal == "the added token '<x>' has lstrip"
    names = json.loads(gzip.decompress((tmp_path / "tokenizer.json.gz").read_bytes()))["names"]
    assert names[5:7] == model.require_tokenizer().convert_ids_to_tokens([5, 6])
