"""A forward pass whose attention alone is asked for ends after the last layer's attention, and
runs to its end wherever that might be noticed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import headscope as hs
from headscope.attention import Attention
from headscope.model.model import Model
from tests.families.reference import left_early, padded_inputs, tapped
from tests.families.zoo import SUPPORTED, VOCABULARY, build
from tests.model.test_tap import assert_untouched

Count = Callable[[], int]


def nothing(attention: Attention) -> None:
    """A reader that keeps nothing."""


def load(family: str) -> Model:
    return hs.load(build(next(member for member in SUPPORTED if member.name == family)))


@pytest.fixture
def last_linear(monkeypatch: pytest.MonkeyPatch) -> Count:
    """How often the vocabulary's linear layer, the last, has run: counted without a hook."""
    sizes: list[int] = []
    linear = torch.nn.functional.linear

    def counted(*args: torch.Tensor) -> torch.Tensor:
        sizes.append(args[1].shape[0])
        return linear(*args)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    return lambda: sum(size == VOCABULARY for size in sizes)


STOPS = {
    "llama": {"uncached"},
    "albert": {"uncached"},
    "bart": {"as is"},
    # Its cache changes how keys lie in memory; whether that shows in the last bits of their
    # products depends on the processor.
    "gptj": {"uncached", "as is"},
}


@pytest.mark.parametrize("family", list(STOPS))
def test_what_comes_after_the_last_attention_never_runs(family: str, last_linear: Count) -> None:
    model = load(family)
    assert model.wiring.stops in STOPS[family]
    inputs = padded_inputs(model.module, left=False)
    expected, _ = tapped(model, inputs)
    before = last_linear()
    maps = left_early(model, inputs)
    assert last_linear() == before
    assert {b: len(m) for b, m in maps.items()} == {b: len(m) for b, m in expected.items()}
    for block, layers in expected.items():
        assert all(torch.equal(a, b) for a, b in zip(maps[block], layers, strict=True))
    assert_untouched(model.module)
    tapped(model, inputs)
    assert last_linear() == before + 1


def test_a_hook_on_a_later_module_still_runs(last_linear: Count) -> None:
    model = load("llama")
    inputs = padded_inputs(model.module, left=False)
    model.read(inputs, nothing)
    seen: list[object] = []
    handle = model.module.lm_head.register_forward_hook(lambda *_: seen.append(1))
    model.read(inputs, nothing)
    assert seen == [1]
    handle.remove()
    model.read(inputs, nothing)
    assert seen == [1]


def test_a_forward_pass_that_was_replaced_runs_to_its_end() -> None:
    model = load("llama")
    inputs = padded_inputs(model.module, left=False)
    head = model.module.lm_head
    seen: list[int] = []

    def moved(x: torch.Tensor) -> torch.Tensor:  # as accelerate moves weights in and out
        seen.append(1)
        return nn.functional.linear(x, head.weight)

    head.forward = moved
    model.read(inputs, nothing)
    assert seen


def test_edits_and_other_readers_see_the_whole_pass(last_linear: Count) -> None:
    model = load("llama")
    inputs = padded_inputs(model.module, left=False)
    model.read(inputs, nothing)
    before = last_linear()
    with model.edit(hs.ablate(0, 0)):
        model.read(inputs, nothing)
    with model.tapped(nothing):
        model.read(inputs, nothing)
    assert last_linear() == before + 2


def test_a_reader_that_raises_is_heard() -> None:
    model = load("llama")

    def fail(attention: Attention) -> None:
        raise KeyError("from the reader")

    with pytest.raises(KeyError, match="from the reader"):
        model.read(padded_inputs(model.module, left=False), fail)
    assert_untouched(model.module)


def test_a_model_that_swallows_the_signal_runs_to_its_end() -> None:
    model = load("llama")
    module = model.module
    plain = type(module).forward

    class Stubborn(type(module)):  # type: ignore[misc]
        def forward(self, *args: object, **kwargs: object) -> object:
            try:
                return plain(self, *args, **kwargs)
            except Exception:
                return plain(self, *args, **kwargs)

    module.__class__ = Stubborn
    stubborn = hs.load(module)
    assert stubborn.wiring.stops is None
    seen: list[int] = []
    stubborn.read(padded_inputs(module, left=False), lambda attention: seen.append(attention.layer))
    assert seen == list(range(stubborn.info.n_layers))


def test_nan_after_the_last_attention_goes_unseen_and_before_it_does_not() -> None:
    model = load("llama")
    inputs = padded_inputs(model.module, left=False)
    expected = left_early(model, inputs)
    with torch.no_grad():
        model.module.lm_head.weight.fill_(float("nan"))
        layers = model.module.model.layers
        layers[-1].mlp.up_proj.weight.fill_(float("nan"))
    for a, b in zip(left_early(model, inputs)["self"], expected["self"], strict=True):
        assert torch.equal(a, b)
    with torch.no_grad():
        layers[0].mlp.up_proj.weight.fill_(float("nan"))
    assert left_early(model, inputs)["self"][-1].isnan().any()
