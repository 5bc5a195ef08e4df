"""A forward pass that is interrupted leaves the model, and torch, as they were."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from transformers import AttentionInterface, BloomConfig, BloomForCausalLM

import headscope as hs
from headscope.errors import InputError
from headscope.model.model import Model
from headscope.model.objective import require_gradients
from headscope.model.tap import dispatch, interface, interrupts

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


def state_of(module: nn.Module) -> list[object]:
    """All that attaching changes, in the model and beyond it."""
    parts = [
        (
            part.training,
            len(part._forward_hooks),
            len(part._forward_pre_hooks),
            getattr(getattr(part, "config", None), "_attn_implementation", None),
        )
        for part in module.modules()
    ]
    return [
        parts,
        [parameter.requires_grad for parameter in module.parameters()],
        dict(interface._handlers),
        dict(interface._locks),
        dict(dispatch._dispatchers),
        AttentionInterface.get_interface,
        _get_current_function_mode_stack(),
        signal.getsignal(signal.SIGINT),
    ]


TRACED = (str(Path(hs.__file__).parent / "model"), contextlib.__file__, nn.modules.module.__file__)


class Interrupter:
    """Calls the handler of Ctrl-C at one instruction of the code that attaches and restores."""

    def __init__(self, at: int) -> None:
        self.count, self._at = 0, at

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupter | None:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if self.count == self._at:
                self.count += 1
                handler = signal.getsignal(signal.SIGINT)
                assert callable(handler)
                handler(signal.SIGINT, frame)
            self.count += 1
        return self


def attach_and_restore(model: Model, interrupter: Interrupter) -> None:
    edited = model.edit(hs.ablate(1, 0))
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        with edited:
            pass
    finally:
        sys.settrace(before)


def check_interrupts(model: Model, places: Iterable[int]) -> None:
    """The model is as it was, and the interrupt arrives; the traceback is kept meanwhile."""
    logits, before = model.module(**IDS).logits, state_of(model.module)
    for place in places:
        with pytest.raises(KeyboardInterrupt) as kept:
            attach_and_restore(model, Interrupter(place))
        assert state_of(model.module) == before, place
        assert not model.edits
        del kept
    assert torch.equal(model.module(**IDS).logits, logits)


def n_instructions(model: Model) -> int:
    counted = Interrupter(-1)
    attach_and_restore(model, counted)
    assert counted.count > 1000
    return counted.count


@pytest.fixture(params=["interface", "fallback"])
def either(request: pytest.FixtureRequest, tiny_llama: Model) -> Model:
    model = tiny_llama if request.param == "interface" else watched()
    assert model.info.route == request.param
    return model


def test_interrupts_while_attaching_and_restoring(either: Model) -> None:
    n = n_instructions(either)
    check_interrupts(either, range(0, n, max(1, n // 150)))


@pytest.mark.long
def test_interrupts_at_many_instructions(either: Model) -> None:
    """`HEADSCOPE_FUZZ=1` tries every instruction, which takes minutes."""
    step = 1 if os.environ.get("HEADSCOPE_FUZZ") else 16
    check_interrupts(either, range(0, n_instructions(either), step))


def test_an_interrupt_waits_for_the_next_attention_call(tiny_llama: Model) -> None:
    with tiny_llama.edit(hs.ablate(1, 0)):
        interrupts._Pending.is_waiting = True
        assert tiny_llama.edits
        with pytest.raises(KeyboardInterrupt):
            tiny_llama.module(**IDS)
    assert not interrupts._Pending.is_waiting


def test_a_wait_for_another_thread_can_be_interrupted(tiny_llama: Model) -> None:
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with tiny_llama.edit(hs.ablate(0, 0)):
            ready.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(30)
    main = threading.main_thread().ident
    threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt), tiny_llama.edit(hs.ablate(1, 0)):
            pytest.fail("another thread holds the model")
    finally:
        done.set()
        thread.join()


def test_gradients_under_inference_mode_say_what_is_wrong(tiny_llama: Model) -> None:
    with torch.inference_mode(), pytest.raises(InputError, match="inference_mode"):
        tiny_llama.gradients("the cat sat")
    with torch.inference_mode(), pytest.raises(InputError, match="inference_mode"):
        hs.importance(tiny_llama, ["the cat sat"])
    with torch.inference_mode(), pytest.raises(InputError, match="inference_mode"):
        hs.effects(tiny_llama, "the cat sat", method="gradient")
    with torch.inference_mode():
        model = watched()
        module = model.module
        assert all(parameter.is_inference() for parameter in module.parameters())
    with pytest.raises(InputError, match="inference_mode"):
        require_gradients(model)


@pytest.mark.parametrize("copy_of", [copy.deepcopy, pickle.dumps])
def test_a_copy_made_inside_an_edit_is_refused(
    copy_of: Callable[[object], object], either: Model
) -> None:
    with either.edit(hs.ablate(1, 0)), pytest.raises(InputError, match="a copy would keep its"):
        copy_of(either.module)
