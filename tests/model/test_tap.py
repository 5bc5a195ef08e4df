"""The tap nests, locks, survives exceptions and leaves the model as it was."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import AttentionInterface

import headscope as hs
from headscope.attention import Attention
from headscope.errors import InputError, TapUnsupported
from headscope.model.model import Model
from headscope.model.tap.interface import eager_attention
from tests.families.reference import padded_inputs, reference_maps, tapped
from tests.families.zoo import SUPPORTED, build

BOTH_ROUTES = ["llama", "gptj"]


@pytest.fixture(params=BOTH_ROUTES)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == request.param)))
    assert model.info.route == ("interface" if request.param == "llama" else "fallback")
    yield model
    assert_untouched(model.module)


def assert_untouched(module: nn.Module) -> None:
    """No hook, no patch, no changed setting is left behind."""
    assert AttentionInterface.get_interface.__name__ == "get_interface"
    for part in module.modules():
        hooks = [h for h in part._forward_pre_hooks.values() if "headscope" in h.__module__]
        hooks += [h for h in part._forward_hooks.values() if "headscope" in h.__module__]
        assert not hooks


def inputs_of(model: Model) -> dict[str, Tensor]:
    return padded_inputs(model.module, left=False)


def test_a_model_loaded_for_sdpa_stays_so(model: Model) -> None:
    before = model.module.config._attn_implementation
    seen = []
    model.run(inputs_of(model), lambda a: seen.append(model.module.config._attn_implementation))
    assert set(seen) == {"eager"}
    assert model.module.config._attn_implementation == before


def test_train_mode_is_suspended_and_restored(model: Model) -> None:
    inputs = inputs_of(model)
    expected, _ = tapped(model, inputs)
    model.module.train()
    part = next(
        m for m in model.module.modules() if isinstance(m, nn.Dropout) or m is not model.module
    )
    part.eval()
    modes = [m.training for m in model.module.modules()]
    found, _ = tapped(model, inputs)
    assert [m.training for m in model.module.modules()] == modes
    model.module.eval()
    assert all(torch.equal(a, b) for a, b in zip(found["self"], expected["self"], strict=True))


def test_a_reader_that_raises_leaves_the_model_in_order(model: Model) -> None:
    inputs = inputs_of(model)
    expected, output = reference_maps(model.module, inputs)

    def fail(attention: Attention) -> None:
        raise KeyError("from the reader")

    with pytest.raises(KeyError, match="from the reader"):
        model.run(inputs, fail)
    assert_untouched(model.module)
    found, again = tapped(model, inputs)
    assert torch.equal(again, output)
    assert all(torch.equal(a, b) for a, b in zip(found["self"], expected["self"], strict=True))


def test_a_forward_that_raises_leaves_the_model_in_order(model: Model) -> None:
    inputs = inputs_of(model)
    with (
        pytest.raises(InputError, match="embeddings"),
        model.tapped(lambda a: None),
        torch.no_grad(),
    ):
        model.module(input_ids=torch.full((1, 4), 10_000))
    assert_untouched(model.module)
    expected, _ = reference_maps(model.module, inputs)
    found, _ = tapped(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(found["self"], expected["self"], strict=True))


def test_taps_nest(model: Model) -> None:
    outer: list[int] = []
    inner: list[int] = []
    inputs = inputs_of(model)
    with torch.no_grad(), model.tapped(lambda a: outer.append(a.layer)):
        model.module(**inputs)
        with model.tapped(lambda a: inner.append(a.layer)):
            model.module(**inputs)
        model.module(**inputs)
    assert outer == [0, 1] * 3
    assert inner == [0, 1]


def test_output_attentions_still_works_under_the_tap(model: Model) -> None:
    inputs = inputs_of(model)
    expected, _ = reference_maps(model.module, inputs)
    with torch.no_grad(), model.edit(hs.ablate(1, 2)), model.tapped(lambda a: None):
        outputs = model.module(**inputs, output_attentions=True)
    assert torch.equal(outputs.attentions[0], expected["self"][0])
    assert float(outputs.attentions[1][:, 2].abs().max()) == 0


def test_other_models_pass_through(model: Model) -> None:
    other = build(next(m for m in SUPPORTED if m.name == "qwen2"))
    inputs = padded_inputs(other, left=False)
    with torch.no_grad():
        expected = other(**inputs).logits
        seen: list[Attention] = []
        with model.tapped(seen.append):
            found = other(**inputs).logits
    assert torch.equal(found, expected)
    assert not seen


def test_threads_do_not_disturb_each_other(model: Model) -> None:
    """Edits of one thread must not reach a run of another, however they interleave."""
    inputs = inputs_of(model)
    plain, _ = tapped(model, inputs)
    failures: list[str] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for _ in range(5):
            if number % 2:
                with model.edit(hs.ablate(0, number)):
                    found, _ = tapped(model, inputs)
                if float(found["self"][0][:, number].abs().max()) != 0:
                    failures.append(f"edit of thread {number} did not act")
            else:
                found, _ = tapped(model, inputs)
                if not torch.equal(found["self"][0], plain["self"][0]):
                    failures.append(f"thread {number} saw another thread's edit")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_untapped_run_in_another_thread_is_neither_read_nor_edited(model: Model) -> None:
    inputs = inputs_of(model)
    _, expected = reference_maps(model.module, inputs)
    found: list[Tensor] = []
    seen: list[int] = []

    def bystander() -> None:
        with torch.no_grad():
            found.append(model.module(**inputs).logits)

    with model.edit(hs.ablate(0, 1)), model.tapped(lambda a: seen.append(a.layer)):
        thread = threading.Thread(target=bystander)
        thread.start()
        thread.join()
    assert not seen
    assert torch.equal(found[0], expected)


def test_an_unpickled_edit_acts_in_every_thread(model: Model) -> None:
    inputs = inputs_of(model)
    with model.edit(hs.ablate(0, 1)), torch.no_grad():
        expected = model.module(**inputs).logits
        copied = pickle.loads(pickle.dumps(model))
    found: list[Tensor] = []

    def bystander() -> None:
        with torch.no_grad():
            found.append(copied.module(**inputs).logits)

    thread = threading.Thread(target=bystander)
    thread.start()
    thread.join()
    assert torch.equal(found[0], expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_module_is_not_copied_within_an_edit(
    model: Model, copied: Callable[[nn.Module], object]
) -> None:
    with (
        model.edit(hs.ablate(0, 1)),
        pytest.raises(InputError, match="a copy would keep its hooks"),
    ):
        copied(model.module)
    copy.deepcopy(model.module)


@pytest.mark.parametrize("left", [True, False], ids=["left-padded", "right-padded"])
def test_reads_what_generate_computes(model: Model, left: bool) -> None:
    """Step by step and layer by layer, under a cache, the attention `generate` returns."""
    inputs = padded_inputs(model.module, left=left)
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad(), eager_attention(model.module):
        expected = model.module.generate(
            **inputs, **options, return_dict_in_generate=True, output_attentions=True
        )
    seen: list[Tensor] = []
    masks: list[Tensor | None] = []

    def read(attention: Attention) -> None:
        seen.append(attention.weights.clone())
        masks.append(attention.key_mask)

    with torch.no_grad(), model.tapped(read):
        found = model.module.generate(**inputs, **options)
    assert torch.equal(found, expected.sequences)
    theirs = [layer for step in expected.attentions for layer in step]
    assert len(seen) == len(theirs) == 6
    assert all(torch.equal(a, b) for a, b in zip(seen, theirs, strict=True))
    for weights, mask in zip(seen, masks, strict=True):
        assert mask is not None
        assert mask.shape == (2, weights.shape[-1])
        assert int((~mask).sum()) == int((inputs["attention_mask"] == 0).sum()) > 0


def test_masks_are_found_among_positional_arguments(model: Model) -> None:
    inputs = padded_inputs(model.module, left=False)
    masks = []
    call = {"llama": lambda m: m(inputs["input_ids"], inputs["attention_mask"])}.get(
        model.info.family, lambda m: m(inputs["input_ids"], None, inputs["attention_mask"])
    )
    with torch.no_grad(), model.tapped(lambda a: masks.append(a.key_mask)):
        call(model.module)
    assert all(torch.equal(mask, inputs["attention_mask"].bool()) for mask in masks)


def test_at_most_one_layer_is_held(model: Model) -> None:
    """The weights of a layer are gone when the next layer is read."""
    import weakref

    held: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def read(attention: Attention) -> None:
        alive.append(sum(ref() is not None for ref in held))
        held.append(weakref.ref(attention.weights))

    model.run(inputs_of(model), read)
    if model.info.route == "interface":
        assert alive == [0] * len(alive)
    else:
        assert max(alive) <= 1  # the module's own frame may still hold it


class SdpaOnly(PreTrainedModel):
    """A model that knows no eager attention and returns none."""

    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(99, 32)
        self.layers = nn.ModuleList([SdpaLayer() for _ in range(2)])
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BaseModelOutput:
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return BaseModelOutput(last_hidden_state=hidden)


class SdpaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 48)
        self.out = nn.Linear(32, 32)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, n, _ = hidden.shape
        query, key, value = self.qkv(hidden).split([32, 8, 8], -1)
        query = query.view(batch, n, 4, 8).transpose(1, 2)
        key, value = (x.view(batch, n, 1, 8).transpose(1, 2) for x in (key, value))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        return hidden + self.out(mixed.transpose(1, 2).reshape(batch, n, 32))


@pytest.fixture
def sdpa_model() -> Model:
    torch.manual_seed(0)
    return hs.load(SdpaOnly(PretrainedConfig(vocab_size=99)))  # type: ignore[call-arg]


def test_fused_attention_is_spelled_out(sdpa_model: Model) -> None:
    info = sdpa_model.info
    assert (info.route, info.check.against) == ("fallback", "nothing")
    assert (info.n_layers, info.n_heads, info.n_groups, info.is_causal) == (2, 4, 1, True)
    assert info.check.output_difference < 1e-5
    seen: list[Attention] = []
    sdpa_model.run({"input_ids": torch.arange(5, 12)[None]}, seen.append, scores=True)
    weights = seen[0].weights
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4, 7))
    assert float(weights.triu(1).abs().max()) == 0
    assert seen[0].queries is not None
    assert seen[0].keys is not None
    scores = seen[0].queries @ seen[0].keys.transpose(-1, -2) * 8**-0.5
    expected = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), float("-inf")).softmax(-1)
    torch.testing.assert_close(weights, expected)


def test_fused_attention_can_be_edited(sdpa_model: Model) -> None:
    ids = {"input_ids": torch.arange(5, 12)[None]}
    seen: list[Attention] = []
    with sdpa_model.edit(hs.set_attention(1, 3, query=6, key=2, weight=0.5)):
        sdpa_model.run(ids, seen.append)
    assert float(seen[1].weights[0, 3, 6, 2]) == 0.5
    assert float(seen[1].weights[0, 3, 6].sum()) == pytest.approx(1)


def test_attention_that_changes_its_form_is_refused_when_it_does(sdpa_model: Model) -> None:
    sdpa_model.info  # noqa: B018
    layer = sdpa_model.module.layers[0]
    layer.forward = lambda hidden: hidden  # stands for code that takes another way
    with pytest.raises(TapUnsupported, match=r"layers\.0 computed its attention differently"):
        sdpa_model.run({"input_ids": torch.arange(5, 12)[None]}, lambda a: None)
