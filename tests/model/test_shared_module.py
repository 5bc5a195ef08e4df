"""Several models over one module: nested, and in threads."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_utils import AttentionInterface

import headscope as hs
from headscope.attention import Attention
from headscope.errors import InputError
from headscope.model.model import Model
from headscope.model.objective import with_loss
from tests.families.reference import reference_maps, tapped
from tests.model.sharing import (
    N_ROUNDS,
    PATIENCE,
    family,
    in_threads,
    inputs_of,
    is_silent,
    state_of,
)


@pytest.fixture(params=["llama", "gptj"])
def module(request: pytest.FixtureRequest) -> Iterator[PreTrainedModel]:
    """One module for each route; afterwards it is as it was."""
    module = family(request.param)
    module.train()
    before = state_of(module)
    yield module
    assert state_of(module) == before
    assert AttentionInterface.get_interface.__name__ == "get_interface"


def test_an_edit_lasts_through_the_trace_of_another_model(module: PreTrainedModel) -> None:
    a, b = hs.load(module), hs.load(module)
    inputs = inputs_of(module)
    plain, _ = tapped(a, inputs)
    heard: list[int] = []
    with a.edit(hs.ablate(0, 1)), a.tapped(lambda attention: heard.append(attention.layer)):
        before, _ = tapped(a, inputs)
        through_b, _ = tapped(b, inputs)
        after, _ = tapped(a, inputs)
    for found in (before, through_b, after):
        assert is_silent(found["self"][0], 1)
        assert torch.equal(found["self"][0], before["self"][0])
        assert torch.equal(found["self"][1], before["self"][1])
    assert heard == [0, 1] * 3
    again, _ = tapped(b, inputs)
    assert torch.equal(again["self"][0], plain["self"][0])


def test_a_trace_says_which_edits_of_the_module_were_in_effect(module: PreTrainedModel) -> None:
    a, b = hs.load(module), hs.load(module)
    ids = {"input_ids": torch.arange(5, 12)[None]}
    outer, inner = hs.ablate(0, 1), hs.ablate(1, 2)
    with a.edit(outer):
        assert b.edits == (outer,)
        assert b.trace(ids).provenance["edits"] == [repr(outer)]
        with b.edit(inner):
            assert a.edits == b.edits == (outer, inner)
            trace = a.trace(ids)
            assert trace.provenance["edits"] == [repr(outer), repr(inner)]
            assert float(trace.attention.sel(layer=1)[2].max()) == 0
        assert a.edits == (outer,)
    assert a.edits == b.edits == ()
    assert b.trace(ids).provenance["edits"] == []


def test_the_last_one_out_restores_the_module(module: PreTrainedModel) -> None:
    """Blocks of two models need not end in the order they began."""
    a, b = hs.load(module), hs.load(module)
    inputs = inputs_of(module)
    before = state_of(module)
    expected, _ = tapped(a, inputs)
    first, second = a.edit(hs.ablate(0, 1)), b.edit(hs.ablate(1, 2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert module.config._attn_implementation == "eager"
    assert not module.training
    with torch.no_grad(), b.tapped():
        found = module(**inputs, output_attentions=True).attentions
    assert torch.equal(found[0], expected["self"][0])
    assert is_silent(found[1], 2)
    second.__exit__(None, None, None)
    assert state_of(module) == before


def test_a_model_is_checked_as_it_is_without_the_edits_in_effect(module: PreTrainedModel) -> None:
    a = hs.load(module)
    with a.edit(hs.ablate(0, 1)):
        b = hs.load(module)
        assert b.info.check.is_exact
        assert b.wiring == a.wiring
        found, _ = tapped(b, inputs_of(module))
    assert is_silent(found["self"][0], 1)


def test_an_exception_inside_ends_its_own_block_alone(module: PreTrainedModel) -> None:
    a, b = hs.load(module), hs.load(module)
    inputs = inputs_of(module)

    def fail(attention: Attention) -> None:
        raise KeyError("from the reader")

    with a.edit(hs.ablate(0, 1)):
        with pytest.raises(KeyError, match="from the reader"):
            b.run(inputs, fail)
        with pytest.raises(InputError, match="embeddings"), b.tapped(), torch.no_grad():
            module(input_ids=torch.full((1, 4), 10_000))
        found, _ = tapped(a, inputs)
        assert is_silent(found["self"][0], 1)
        assert module.config._attn_implementation == "eager"


def test_a_reader_may_run_the_module_itself(module: PreTrainedModel) -> None:
    """A forward within a forward has its own count of layers."""
    a, b = hs.load(module), hs.load(module)
    inputs = inputs_of(module)
    expected, _ = tapped(b, inputs)
    inner: list[dict[str, list[Tensor]]] = []
    layers: list[int] = []

    def read(attention: Attention) -> None:
        layers.append(attention.layer)
        if len(layers) == 1:
            inner.append(tapped(b, inputs)[0])

    with a.tapped(read):
        found, _ = tapped(a, inputs)
    assert layers == [0, 0, 1, 1]  # the first layer, all of the inner pass, the second
    for weights in (found["self"], inner[0]["self"]):
        assert all(torch.equal(x, y) for x, y in zip(weights, expected["self"], strict=True))


def test_models_in_threads_over_one_module(module: PreTrainedModel) -> None:
    """Attached and detached in turns by three threads, with errors in between."""
    a, b, c = (hs.load(module) for _ in range(3))
    inputs = inputs_of(module)
    plain, output = tapped(hs.load(module), inputs)
    before = state_of(module)

    def edit() -> None:
        for number in range(N_ROUNDS):
            head = number % 4
            with a.edit(hs.ablate(0, head)):
                found, changed = tapped(a, inputs)
                assert a.edits == (hs.ablate(0, head),)
            assert is_silent(found["self"][0], head)
            assert not torch.equal(changed, output)

    def read() -> None:
        for _ in range(N_ROUNDS):
            found, same = tapped(b, inputs)
            assert b.edits == ()
            assert torch.equal(same, output)
            for mine, expected in zip(found["self"], plain["self"], strict=True):
                assert torch.equal(mine, expected)

    def fail() -> None:
        def stop(attention: Attention) -> None:
            raise KeyError("from the reader")

        for _ in range(N_ROUNDS):
            with pytest.raises(KeyError), c.edit(hs.ablate(1, 3)):
                c.run(inputs, stop)
            fresh = hs.load(module)  # a self-check, among the others' edits
            assert fresh.info.check.is_exact

    in_threads(edit, read, fail)
    assert state_of(module) == before


def test_gradients_in_threads_leave_the_parameters_alone() -> None:
    module = family("llama")
    texts = {"input_ids": torch.arange(5, 12)[None]}
    labels = torch.cat([texts["input_ids"][:, 1:], torch.full((1, 1), -100)], 1)
    sizes: list[float] = []

    def work() -> None:
        model = hs.load(module)
        for _ in range(N_ROUNDS):
            seen: list[Tensor] = []
            with with_loss(model, texts, labels) as (_, backward):
                backward(lambda attention, seen=seen: seen.append(attention.gradients))
            sizes.append(float(sum(gradient.abs().sum() for gradient in seen)))

    in_threads(work, work, work)
    assert len(set(sizes)) == 1
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


def test_modules_that_share_a_configuration_are_restored() -> None:
    """transformers keeps the attention implementation there, so two modules switch it."""
    first = family("bert")
    second = type(first)(first.config)
    assert second.config is first.config
    before = first.config._attn_implementation
    a, b = hs.load(first), hs.load(second)
    a.info, b.info  # noqa: B018
    outer, inner = a.tapped(), b.tapped()
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert first.config._attn_implementation == "eager"
    inner.__exit__(None, None, None)
    assert first.config._attn_implementation == before


def test_different_modules_do_not_wait_for_one_another() -> None:
    """Both threads are inside their block at once: else the barrier breaks."""
    both = threading.Barrier(2)

    def job(name: str) -> Callable[[], None]:
        model = hs.load(family(name))

        def work() -> None:
            with model.edit(hs.ablate(0, 1)):
                both.wait(PATIENCE / 2)
                found, _ = tapped(model, inputs_of(model.module))
                both.wait(PATIENCE / 2)
            assert is_silent(found["self"][0], 1)

        return work

    in_threads(job("llama"), job("gptj"))


def test_one_module_is_used_by_one_thread_at_a_time(module: PreTrainedModel) -> None:
    a, b = hs.load(module), hs.load(module)
    b.info  # noqa: B018
    order: list[str] = []
    inside, done = threading.Event(), threading.Event()

    def first() -> None:
        with a.edit(hs.ablate(0, 1)):
            inside.set()
            done.wait(0.3)
            order.append("first is done")

    def second() -> None:
        inside.wait(PATIENCE)
        with b.tapped():
            order.append("second is in")

    in_threads(first, second)
    assert order == ["first is done", "second is in"]


def test_edits_in_effect_travel_with_either_model(module: PreTrainedModel) -> None:
    """A copy made for another process keeps the edits, in whatever thread it runs."""
    a, b = hs.load(module), hs.load(module)
    inputs = inputs_of(module)
    with a.edit(hs.ablate(0, 1)):
        sent = pickle.dumps(b)
    copy: Model = pickle.loads(sent)
    seen: list[Tensor] = []

    def elsewhere() -> None:
        assert copy.edits == (hs.ablate(0, 1),)
        seen.append(tapped(copy, inputs)[0]["self"][0])

    elsewhere()
    in_threads(elsewhere, elsewhere)
    assert len(seen) == 3
    assert all(is_silent(weights, 1) for weights in seen)


def test_what_official_computes_is_what_models_sharing_a_module_read(
    module: PreTrainedModel,
) -> None:
    inputs = inputs_of(module)
    expected, output = reference_maps(module, inputs)
    with hs.load(module).tapped(), hs.load(module).tapped():
        found, same = tapped(hs.load(module), inputs)
    assert torch.equal(same, output)
    assert all(torch.equal(x, y) for x, y in zip(found["self"], expected["self"], strict=True))
