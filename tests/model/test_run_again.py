"""A forward pass inside a forward pass, and a layer that stands twice: read rightly, or refused
with advice that helps.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import headscope as hs
from headscope.errors import TapUnsupported
from headscope.model.model import Model
from tests.conftest import word_piece_tokenizer
from tests.families.reference import reference_maps, tapped
from tests.families.zoo import SUPPORTED, build

TEXT = "the cat sat"
IDS = torch.arange(5, 12)[None]


def fresh() -> Model:
    module = build(next(member for member in SUPPORTED if member.name == "llama"))
    return hs.load(module, word_piece_tokenizer())


def run_once_more(module: nn.Module, run: Callable[[], object]) -> None:
    """A hook on a layer, which runs something once in each pass."""
    under_way = []

    def hook(*_: object) -> None:
        if not under_way:
            under_way.append(True)
            try:
                run()
            finally:
                under_way.pop()

    module.register_forward_hook(hook)


@pytest.mark.parametrize("is_checked", [True, False], ids=["after the check", "before it"])
def test_a_hook_that_runs_the_model_again(is_checked: bool) -> None:
    """Layers of the inner pass would stand among those of the outer one."""
    model = fresh()
    if is_checked:
        model.trace(TEXT)
    run_once_more(model.module.model.layers[1], lambda: model.module(IDS))
    with pytest.raises(TapUnsupported, match=r"read twice.* remove the hook"):
        model.trace(TEXT)
    with pytest.raises(TapUnsupported, match=r"read twice.* remove the hook"):
        hs.analyze(model, [TEXT], ["distance"], workers=1)


def test_a_hook_that_runs_a_part_again() -> None:
    model = fresh()
    model.trace(TEXT)
    run_once_more(model.module.model.layers[1], lambda: model.module.model(IDS))
    with pytest.raises(TapUnsupported, match="If a hook or an edit of yours runs the model"):
        model.trace(TEXT)


def test_a_layer_that_stands_twice() -> None:
    """Both write into one place of the cache, and attention reads twice the keys there."""
    model = fresh()
    module = model.module
    module.model.layers[1] = module.model.layers[0]
    with pytest.raises(
        TapUnsupported, match=r"It runs without a cache .*model\.config\.use_cache = False"
    ):
        model.trace(TEXT)
    module.config.use_cache = False
    theirs, _ = reference_maps(module, {"input_ids": IDS})
    ours, _ = tapped(model, {"input_ids": IDS})
    for a, b in zip(ours["self"], theirs["self"], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
