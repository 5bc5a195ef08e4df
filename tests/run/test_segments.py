"""Corpora cut into BERT's segments, through the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import headscope as hs
from headscope.causal.importance import check_importance
from headscope.run.analyze import analyze, make_plan
from headscope.run.batches import Encoder, cut_segments, special_names
from headscope.run.measure import measure
from headscope.run.options import Settings
from headscope.run.plan import survey
from headscope.text.readers.read import read
from tests.conftest import word_piece_tokenizer
from tests.run.corpora import make_documents

if TYPE_CHECKING:
    from pathlib import Path

    from headscope.model.model import Model

TEXT = ["the cat sat on the mat . the dog ran under the table . she said it was fine ."]


def encoded(model: Model, max_tokens: int = 16) -> list:
    corpus = cut_segments(model, TEXT, max_tokens)
    found = survey(corpus, Settings())
    plan = make_plan(model, found, "all", Settings())
    encoder = Encoder.of(model, plan)
    return encoder.encode(list(enumerate(corpus)))


def test_pairs_with_token_types(tiny_bert: Model) -> None:
    tokenizer = word_piece_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    first = encoded(hs.load(tiny_bert.module, tokenizer))[0]
    tokens = tiny_bert.tokenizer.convert_ids_to_tokens(first.inputs["input_ids"])
    assert tokens[0] == "[CLS]"
    assert tokens.count("[SEP]") == 2
    assert len(tokens) <= 16
    second = tokens.index("[SEP]") + 1
    assert first.inputs["token_type_ids"] == [0] * second + [1] * (len(tokens) - second)
    # Offsets of the second span are characters of the whole segment.
    text = first.numbered[1].text
    shown = [text[a:b] for a, b in first.stacks["self"].offsets if b > a]
    assert shown == [t for t in tokens if not t.startswith("[")]


def test_models_without_special_tokens_get_one_text(tiny_llama: Model) -> None:
    assert special_names(tiny_llama.tokenizer) == ()
    for document in encoded(tiny_llama, 24):
        assert len(document.inputs["input_ids"]) <= 24
        assert not any(document.stacks["self"].special)


def test_a_segment_equals_its_trace(tiny_bert: Model) -> None:
    corpus = cut_segments(tiny_bert, TEXT, 16)
    segment = next(iter(corpus))
    at = int(segment.meta["second_span"])
    trace = tiny_bert.trace(segment.text[: at - 1], segment.text[at:])
    alone = measure(trace, ["class_share", "offset_share", "sep_from_sep", "row_entropy"])
    result = analyze(tiny_bert, read([segment]), ["class_share", "offset_share", "row_entropy"])
    for name in ("class_share", "offset_share", "row_entropy"):
        np.testing.assert_allclose(result[name], alone[name], rtol=1e-5, atol=1e-6)


def test_annotations_come_along(tiny_bert: Model) -> None:
    documents = [replace(d, part_of="book") for d in make_documents(12)]
    result = analyze(tiny_bert, cut_segments(tiny_bert, read(documents), 24))
    assert float(result["dep_baseline"]) > 0
    assert result["class_share"].sel(key_class="[SEP]").min() > 0
    assert result.provenance["axes"]["key_classes"][:3] == ["first", "[CLS]", "[SEP]"]
    assert "segments of 24 tokens" in result.provenance["corpus"]["name"]


def test_one_token_documents_are_measured(tiny_llama: Model) -> None:
    result = analyze(tiny_llama, ["t", "t"], ["offset_share", "sink_rate", "row_entropy"])
    assert float(result["row_entropy"].max()) == pytest.approx(0, abs=1e-7)
    assert np.isnan(result["sink_rate"]).all()


def test_a_model_by_name(tiny_llama: Model, tmp_path: Path) -> None:
    """Also for `check_importance`: every function that measures loads what it is told."""
    tiny_llama.module.save_pretrained(tmp_path)
    tiny_llama.tokenizer.save_pretrained(tmp_path)
    by_name = cut_segments(str(tmp_path), TEXT, 24)
    assert [d.text for d in by_name] == [d.text for d in cut_segments(tiny_llama, TEXT, 24)]
    found = check_importance(str(tmp_path), by_name, heads=[(0, 0)], levels=[1.0])
    assert found.equals(check_importance(tiny_llama, by_name, heads=[(0, 0)], levels=[1.0]))
