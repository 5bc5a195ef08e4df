"""Tiny decoders of many families, whose vocabulary is that of a tokenizer of bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import headscope as hs
from tests.conftest import byte_tokenizer
from tests.families.zoo import DECODERS, build

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from headscope.model.model import Model

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}


def tiny_module(name: str, **settings: Any) -> PreTrainedModel:
    """A decoder of the zoo, with seeded weights."""
    family = next(family for family in DECODERS if family.name == name)
    settings = {**family.settings, "vocab_size": 300, **SPECIAL, **settings}
    return build(replace(family, settings=settings))


def tiny_decoder(name: str, **settings: Any) -> Model:
    """The same, loaded."""
    return hs.load(tiny_module(name, **settings), byte_tokenizer())
