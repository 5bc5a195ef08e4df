"""A forward pass that is interrupted leaves the model, and torch, as they were."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from transformers import BloomConfig, BloomForCausalLM

import headscope as hs
from headscope.model.model import Model

IDS = {"input_ids": torch.arange(2, 9)[None]}


class _Stop(BaseException):
    """Like KeyboardInterrupt, it is no `Exception`."""


def watched() -> Model:
    """A model whose hand-written attention is watched while it runs."""
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=50, hidden_size=16, n_layer=2, n_head=2)
    model = hs.load(BloomForCausalLM(config).train())
    assert model.info.route == "fallback"
    return model


def interrupt(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, "forward", stop)


@pytest.mark.parametrize("error", [KeyboardInterrupt, _Stop, ValueError])
def test_nothing_goes_on_watching_after_an_interrupt(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = watched()
    expected = model.trace(IDS).attention.values
    with monkeypatch.context() as patched:
        interrupt(
            model.module.get_submodule("transformer.h.1.self_attention.dense"), patched, error
        )
        with pytest.raises(error), model.edit(hs.ablate(1, 0)):
            model.trace(IDS)
    assert not _get_current_function_mode_stack()
    assert all(part.training for part in model.module.modules())
    assert (model.trace(IDS).attention.values == expected).all()


def test_an_interrupted_self_check_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = watched()
    last = model.module.get_submodule("transformer.h.1.self_attention.dense")
    own, calls = last.forward, 0

    def stop_later(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 3:  # asked, asked without a cache, looked for by the interface, then watched
            raise KeyboardInterrupt
        return own(*args)

    with monkeypatch.context() as patched:
        patched.setattr(last, "forward", stop_later)
        with pytest.raises(KeyboardInterrupt):
            _ = hs.load(model.module).info
    assert not _get_current_function_mode_stack()


def test_modes_of_the_user_outlast_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {}))

    model, mine = watched(), Mine()
    interrupt(
        model.module.get_submodule("transformer.h.0.self_attention.dense"),
        monkeypatch,
        KeyboardInterrupt,
    )
    edited = model.edit(hs.ablate(1, 0))
    with mine:
        with pytest.raises(KeyboardInterrupt), edited:
            model.module(**IDS)
        assert _get_current_function_mode_stack() == [mine]


@pytest.mark.parametrize("place", ["query_key_value", "dense"])
def test_an_interrupt_caught_inside_an_edit(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The edit of the call that was interrupted reaches nothing that is computed later."""
    model = watched()
    edit = hs.scale_neurons(1, 0, 1, 3.0, "value"), hs.ablate(1, 1)
    mine = torch.rand(1, 2, 3, 3)
    with model.edit(*edit):
        expected = model.trace(IDS, vectors=True)
        logits = model.module(**IDS).logits
        with monkeypatch.context() as patched:
            part = f"transformer.h.1.self_attention.{place}"
            interrupt(model.module.get_submodule(part), patched, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                model.module(**IDS)
        assert torch.equal(torch.softmax(mine, -1)[:, 1], torch.softmax(mine[:, 1], -1))
        assert torch.equal(model.module(**IDS).logits, logits)
        assert model.trace(IDS, vectors=True).main.data.equals(expected.main.data)
    assert not _get_current_function_mode_stack()
