"""Tiny models exported once for all tests of live pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from transformers import BertConfig, BertForSequenceClassification

import headscope as hs
from headscope.live.graph import Graph, export
from headscope.model.model import Model
from tests.conftest import byte_tokenizer, word_piece_tokenizer
from tests.families.shrink import seeded
from tests.families.zoo import COMMON, DECODERS, build


@pytest.fixture(scope="session")
def tiny_classifier() -> Model:
    """A BERT with three labels."""
    module = BertForSequenceClassification(BertConfig(**COMMON | {"num_labels": 3}))
    return hs.load(seeded(module).eval(), word_piece_tokenizer())


@pytest.fixture(scope="session")
def tiny_gpt2() -> Model:
    """A GPT-2 with a byte-level tokenizer."""
    member = next(f for f in DECODERS if f.name == "gpt2")
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    settings = {**member.settings, "vocab_size": 300, **special}
    return hs.load(build(replace(member, settings=settings)), byte_tokenizer())


@pytest.fixture(scope="session")
def exported() -> Callable[[Model], Graph]:
    """`export`, once for each model."""
    return cache(export)
