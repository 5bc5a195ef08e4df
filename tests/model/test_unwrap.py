"""Wrapped models are unwrapped, and what is inside is used as it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

import headscope as hs
from headscope.errors import InputError
from headscope.model.load import unwrap
from tests.families.zoo import SUPPORTED, build


@pytest.fixture(scope="module")
def bert() -> PreTrainedModel:
    return build(next(member for member in SUPPORTED if member.name == "bert"))


class Adapted(nn.Module):
    """As peft wraps a model: its layers are changed in place, and it says where they are."""

    def __init__(self, module: PreTrainedModel, *, is_prompt_learning: bool = False) -> None:
        super().__init__()
        self.base_model = nn.ModuleDict({"model": module})
        self.active_peft_config = SimpleNamespace(is_prompt_learning=is_prompt_learning)

    def get_base_model(self) -> nn.Module:
        return self.base_model["model"]


class Pooled(nn.Module):
    """As sentence_transformers holds the model it pools over."""

    def __init__(self, module: PreTrainedModel) -> None:
        super().__init__()
        self.auto_model = module


def test_each_wrapper_gives_the_model_inside(bert: PreTrainedModel) -> None:
    wrappers = [
        Adapted(bert),
        nn.Sequential(Pooled(bert), nn.Identity()),
    ]
    for wrapper in wrappers:
        assert unwrap(wrapper)[0] is bert
        assert hs.load(wrapper).module is bert


def test_learned_tokens_before_the_text_are_refused(bert: PreTrainedModel) -> None:
    with pytest.raises(InputError, match="learned tokens before every text"):
        hs.load(Adapted(bert, is_prompt_learning=True))


def test_what_holds_no_model_is_refused() -> None:
    with pytest.raises(InputError, match="Cannot load a model from Linear"):
        hs.load(nn.Linear(2, 2))


def test_models_compiled_in_place_are_refused() -> None:
    module = build(next(member for member in SUPPORTED if member.name == "bert"))
    module.base_model.encoder.compile(backend="eager")
    with pytest.raises(InputError, match="encoder was compiled in place"):
        hs.load(module)
    other = build(next(member for member in SUPPORTED if member.name == "bert"))
    other.forward = torch.compile(other.forward, backend="eager")
    with pytest.raises(InputError, match="compiled in place"):
        hs.load(other)
