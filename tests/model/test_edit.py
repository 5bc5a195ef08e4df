"""Edits do what they say, where they say, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError
from headscope.model.model import Model
from tests.families.reference import main_output, padded_inputs
from tests.families.zoo import SUPPORTED, build

OUTPUT_PROJECTIONS: dict[str, Callable[[nn.Module, int], nn.Module]] = {
    "bert": lambda m, i: m.bert.encoder.layer[i].attention.output.dense,
    "gpt2": lambda m, i: m.transformer.h[i].attn.c_proj,
    "llama": lambda m, i: m.model.layers[i].self_attn.o_proj,
    "gemma2": lambda m, i: m.model.layers[i].self_attn.o_proj,
    "gptj": lambda m, i: m.transformer.h[i].attn.out_proj,
    "bloom": lambda m, i: m.transformer.h[i].self_attention.dense,
    "deepseek_v3": lambda m, i: m.model.layers[i].self_attn.o_proj,
    "t5": lambda m, i: m.encoder.block[i].layer[0].SelfAttention.o,
}
TEXT = "the cat sat on the mat."


def run(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    return main_output(model.run(inputs, lambda attention: None))


@pytest.mark.parametrize("name", OUTPUT_PROJECTIONS)
def test_ablating_is_zeroing_the_slice_before_the_output_projection(name: str) -> None:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == name)))
    inputs = padded_inputs(model.module, left=False)
    site = model.wiring.find(None, 1, 2)
    assert site.value_size is not None
    neurons = slice(2 * site.value_size, 3 * site.value_size)

    def zero(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        changed = args[0].clone()
        changed[..., neurons] = 0
        return (changed, *args[1:])

    hook = OUTPUT_PROJECTIONS[name](model.module, 1).register_forward_pre_hook(zero)
    expected = run(model, inputs)
    hook.remove()
    with model.edit(hs.ablate(1, 2)):
        found = run(model, inputs)
    assert torch.equal(found, expected)
    assert not torch.equal(found, run(model, inputs))


def test_set_attention_scales_the_rest_of_the_row(tiny_bert: Model) -> None:
    before = tiny_bert.trace(TEXT).attention.values
    with tiny_bert.edit(hs.set_attention(0, 1, query=3, key=2, weight=0.7)):
        after = tiny_bert.trace(TEXT).attention.values
    row, old = after[0, 1, 3], before[0, 1, 3]
    assert row[2] == pytest.approx(0.7)
    rest = np.arange(len(row)) != 2
    np.testing.assert_allclose(row[rest], old[rest] * 0.3 / (1 - old[2]), rtol=1e-5)
    assert row.sum() == pytest.approx(1, abs=1e-6)
    untouched = np.ones(after.shape[1:3], dtype=bool)
    untouched[1, 3] = False
    np.testing.assert_array_equal(after[0][untouched], before[0][untouched])
    assert not np.array_equal(after[1], before[1])


def test_set_attention_without_renormalizing_changes_one_weight(tiny_bert: Model) -> None:
    before = tiny_bert.trace(TEXT).attention.values[0]
    edit = hs.set_attention(0, 1, query=3, key=2, weight=2.5, renormalize=False)
    with tiny_bert.edit(edit):
        after = tiny_bert.trace(TEXT).attention.values[0]
    changed = np.argwhere(after != before)
    np.testing.assert_array_equal(changed, [[1, 3, 2]])
    assert after[1, 3, 2] == 2.5


def test_set_attention_for_all_queries_and_several_keys(tiny_bert: Model) -> None:
    with tiny_bert.edit(hs.set_attention(1, 0, key=[0, 2], weight=0.5)):
        after = tiny_bert.trace(TEXT).attention.values[1, 0]
    expected = np.zeros_like(after)
    expected[:, [0, 2]] = 0.5
    np.testing.assert_allclose(after, expected, atol=2e-7)  # a row sums to 1 within one ulp


def test_scaled_query_neurons_change_the_scores_as_arithmetic_says(tiny_llama: Model) -> None:
    text = "the cat"
    plain = tiny_llama.trace(text)
    with tiny_llama.edit(hs.scale_neurons(0, 1, [3, 5], 0.25)):
        edited = tiny_llama.trace(text)
    queries = plain.queries.values[0, 1].copy()
    queries[:, [3, 5]] *= 0.25
    np.testing.assert_allclose(edited.queries.values[0, 1], queries, rtol=1e-6)
    keys = plain.keys.values[0, 0]
    scores = queries @ keys.T * float(plain.main.data["scale"][0])
    scores[np.triu_indices(len(scores), 1)] = -np.inf
    expected = np.exp(scores - scores.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(edited.attention.values[0, 1], expected, atol=1e-6)
    np.testing.assert_array_equal(edited.attention.values[0, 0], plain.attention.values[0, 0])


@pytest.mark.parametrize("kind", ["key", "value"])
def test_edits_of_shared_keys_and_values_say_whom_they_reach(tiny_llama: Model, kind: str) -> None:
    edit = hs.scale_neurons(0, 2, 1, 0.0, of=kind)  # type: ignore[arg-type]
    shared = f"Heads H2, H3 of layer 0 share their {kind}s"
    with pytest.warns(HeadscopeWarning, match=shared) as caught, tiny_llama.edit(edit):
        after = tiny_llama.trace("the cat")
    assert caught[0].filename == __file__
    before = tiny_llama.trace("the cat")
    name = {"key": "keys", "value": "values"}[kind]
    assert not getattr(after, name).values[0, 1][:, 1].any()
    np.testing.assert_array_equal(
        getattr(after, name).values[0, 0], getattr(before, name).values[0, 0]
    )


def test_edits_of_own_keys_are_silent(tiny_bert: Model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tiny_bert.edit(hs.scale_neurons(0, 2, 1, 0.0, of="key")):
            after = tiny_bert.trace(TEXT)
    assert not after.keys.values[0, 2][:, 1].any()


@pytest.mark.parametrize("name", ["gptj", "mpnet", "bloom"])
@pytest.mark.parametrize("kind", ["query", "key", "value"])
def test_neurons_can_be_scaled_on_the_fallback_route(name: str, kind: str) -> None:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == name)))
    inputs = padded_inputs(model.module, left=False)
    vectors: list[dict[str, Tensor]] = []

    def read(attention: Any) -> None:
        if attention.layer == 0:
            vectors.append(
                {"query": attention.queries, "key": attention.keys, "value": attention.values}
            )

    plain = main_output(model.run(inputs, read))
    with model.edit(hs.scale_neurons(0, 1, [2], 3.0, of=kind)):  # type: ignore[arg-type]
        edited = main_output(model.run(inputs, read))
    expected = vectors[0][kind].clone()
    expected[:, 1, :, 2] *= 3
    torch.testing.assert_close(vectors[1][kind], expected)
    assert not torch.equal(plain, edited)


def test_edits_compose_in_order_and_nest(tiny_bert: Model) -> None:
    row = {"query": 3, "key": 2, "renormalize": False}
    with (
        tiny_bert.edit(hs.set_attention(0, 1, weight=0.1, **row), hs.ablate(1, 0)) as same,
        same.edit(hs.set_attention(0, 1, weight=0.2, **row)),
    ):
        assert same is tiny_bert
        trace = tiny_bert.trace(TEXT)
        assert len(tiny_bert.edits) == 3
    assert tiny_bert.edits == ()
    assert trace.attention.values[0, 1, 3, 2] == pytest.approx(0.2)
    assert not trace.attention.values[1, 0].any()
    assert len(trace.provenance["edits"]) == 3


def test_cross_attention_is_edited_by_block(tiny_t5: Model) -> None:
    with tiny_t5.edit(hs.ablate(1, 3, block="cross")):
        after = tiny_t5.trace(TEXT, target="the dog ran.")
    before = tiny_t5.trace(TEXT, target="the dog ran.")
    assert not after.cross.attention.values[1, 3].any()
    np.testing.assert_array_equal(after.encoder.attention.values, before.encoder.attention.values)
    np.testing.assert_array_equal(after.decoder.attention.values, before.decoder.attention.values)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gptj", "gpt2"])
def test_edits_hold_while_generating(name: str, cached: bool) -> None:
    """Positions count from the start of the sequence, cache or no cache, window or none."""
    model = hs.load(build(next(m for m in SUPPORTED if m.name == name)))
    ids = torch.randint(5, 90, (1, 6), generator=torch.Generator().manual_seed(2))
    seen: list[tuple[int, int, Tensor]] = []

    def read(attention: Any) -> None:
        if attention.layer == 1:
            seen.append((*attention.weights.shape[2:], attention.weights[0, 1, -1].clone()))

    edits = [
        hs.ablate(0, 0),
        hs.set_attention(1, 1, query=7, key=6, weight=0.9, renormalize=False),
    ]
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "use_cache": cached}
    with torch.no_grad(), model.edit(*edits), model.tapped(read):
        written = model.module.generate(ids, attention_mask=torch.ones_like(ids), **options)
        model.module(written[:, :-1], use_cache=False)
    *steps, (_, _, _) = seen
    assert len(steps) == 4
    rows = {}
    for n_queries, n_keys, row in steps:
        position = len(rows) + 5
        assert n_queries == (1 if cached and position > 5 else position + 1)
        rows[position] = (n_keys, row)
    n_keys, row = rows[7]
    assert float(row[6 - (8 - n_keys)]) == pytest.approx(0.9)
    with torch.no_grad(), model.edit(*edits):
        whole = model.module(written[:, :-1], use_cache=False).logits[0]
        greedy = whole[5:].argmax(-1)
    assert torch.equal(greedy, written[0, 6:])


BAD = [
    (lambda: hs.ablate(9, 0), "There is no layer 9; layers with attention: 0, 1"),
    (lambda: hs.ablate(0, 4), "Layer 0 has heads 0 to 3, not 4"),
    (lambda: hs.ablate(0, -1), "heads 0 to 3, not -1"),
    (lambda: hs.ablate(True, 0), "layer should be a whole number from 0 on, not True"),
    (lambda: hs.ablate(0, 1.0), "head should be a whole number from 0 on, not 1.0"),
    (lambda: hs.ablate(0, 0, block="cross"), "No 'cross' attention was seen"),
    (lambda: hs.set_attention(0, 0, query=1, key=2, weight=0.5), "causal, and the key comes later"),
    (lambda: hs.set_attention(0, 0, key=2, weight=0.5), "Query 0 cannot attend to key 2"),
    (lambda: hs.set_attention(0, 0, key=0, weight=1.5), "leaves no row that sums to 1"),
    (lambda: hs.set_attention(0, 0, key=[0, 1], weight=0.6), "leaves no row that sums to 1"),
    (
        lambda: hs.set_attention(0, 0, key=-1, weight=0.5),
        "key should be a whole number from 0 on, not -1",
    ),
    (lambda: hs.set_attention(0, 0, key=[], weight=0.5), "at least one key"),
    (lambda: hs.scale_neurons(0, 0, 8, 1.0), "L0 H0 has neurons 0 to 7"),
    (lambda: hs.scale_neurons(0, 0, [], 1.0), "at least one neuron"),
    (lambda: hs.scale_neurons(0, 0, 1, 1.0, of="keys"), "should be 'query', 'key' or 'value'"),
    (lambda: "ablate", "'ablate' is not an edit"),
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message for _, message in BAD])
def test_impossible_edits_are_refused(
    tiny_llama: Model, make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(InputError) as caught, tiny_llama.edit(make()):
        pass
    assert message in str(caught.value)


def test_a_later_key_may_be_removed_from_every_query(tiny_llama: Model) -> None:
    with tiny_llama.edit(hs.set_attention(0, 0, key=2, weight=0)):
        weights = tiny_llama.trace("the cat sat on the mat").attention.sel(layer=0, head=0).values
    assert not weights[:, 2].any()
    assert not np.triu(weights, 1).any()


def test_an_empty_edit_is_refused(tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="at least one edit"), tiny_llama.edit():
        pass


def test_vectors_of_several_products_cannot_be_edited() -> None:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == "deberta-v2")))
    with (
        pytest.raises(InputError, match="builds its scores from several products"),
        model.edit(hs.scale_neurons(0, 0, 1, 2.0)),
    ):
        pass
