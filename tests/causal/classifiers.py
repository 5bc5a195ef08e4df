"""Tiny classifiers with seeded weights, and scalars of their output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import headscope as hs
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import ENCODERS, build

if TYPE_CHECKING:
    from torch import Tensor

    from headscope.model.model import Model

BERT = next(family for family in ENCODERS if family.name == "bert")
LABELS = {0: "NEGATIVE", 1: "NEUTRAL", 2: "POSITIVE"}


def tiny_classifier(kind: str = "Sequence", **settings: Any) -> Model:
    """A BERT that classifies texts ("Sequence") or tokens ("Token")."""
    named = {"id2label": LABELS, "label2id": {name: n for n, name in LABELS.items()}, **settings}
    family = replace(
        BERT, model=f"BertFor{kind}Classification", settings={**BERT.settings, **named}
    )
    return hs.load(build(family), word_piece_tokenizer())


def first_logit(output: Any) -> Tensor:
    """One number for each row."""
    logits: Tensor = output.logits
    return logits[:, 0]
