"""Attention from elsewhere: several blocks, and the steps of a generation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.model.model import Model
from headscope.results.trace import Trace


def uniform(*shape: int) -> np.ndarray:
    return np.full(shape, 1 / shape[-1], dtype=np.float32)


def test_encoder_decoder_and_cross_blocks() -> None:
    blocks = {
        "cross": uniform(2, 3, 2, 4),
        "encoder": uniform(2, 3, 4, 4),
        "decoder": np.tril(np.ones((2, 3, 2, 2))) / [[1], [2]],
    }
    trace = Trace.from_arrays(blocks, {"encoder": list("abcd"), "decoder": ["<s>", "x"]})
    assert list(trace.blocks) == ["encoder", "decoder", "cross"]
    assert trace.cross.query_tokens.tokens == ("<s>", "x")
    assert trace.cross.key_tokens.tokens == tuple("abcd")
    causal = {name: block.is_causal for name, block in trace.blocks.items()}
    assert causal == {"encoder": False, "decoder": True, "cross": False}
    np.testing.assert_array_equal(trace.cross.attention.values, blocks["cross"])


@pytest.mark.parametrize(
    ("attention", "tokens", "said"),
    [
        ({"cross": uniform(1, 1, 2, 4)}, {"encoder": list("abcd")}, r"needs tokens\['self'\]"),
        ({"encoder": uniform(1, 1, 4, 4)}, list("abcd"), "tokens should name the stacks"),
        (uniform(1, 1, 4, 4), {"encoder": list("abcd")}, "attention should name its blocks too"),
        (
            {"cross": uniform(1, 1, 2, 3)},
            {"encoder": list("abcd"), "decoder": list("xy")},
            "2 queries × 3 keys, but there are 2 tokens of 'decoder' and 4 of 'encoder'",
        ),
        (
            {"encoder": uniform(1, 1, 4, 4)},
            {"encoder": list("abcd"), "decoder": list("xy")},
            "tokens has 'decoder', which no block",
        ),
        ({}, {}, "no block is named"),
    ],
)
def test_blocks_and_tokens_that_disagree(attention: object, tokens: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Trace.from_arrays(attention, tokens)  # type: ignore[arg-type]


def test_unknown_blocks() -> None:
    with pytest.raises(UnknownName, match="encodre"):
        Trace.from_arrays({"encodre": uniform(1, 1, 2, 2)}, {"encodre": list("ab")})
    with pytest.raises(InputError, match="bare strings"):
        Trace.from_arrays({"self": uniform(1, 1, 2, 2)}, {"self": list("ab")}, words=[0, 0])


def generated(model: Model, inputs: dict[str, torch.Tensor], **options: object) -> object:
    model.module.set_attn_implementation("eager")
    with torch.inference_mode():
        return model.module.generate(  # type: ignore[operator]
            **inputs,
            max_new_tokens=4,
            min_new_tokens=4,
            do_sample=False,
            output_attentions=True,
            return_dict_in_generate=True,
            **options,
        )


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_steps_of_a_causal_model_are_one_pass(tiny_llama: Model, cache: str) -> None:
    """The reference: the model run once on everything it wrote."""
    assert tiny_llama.tokenizer is not None
    ids = torch.tensor([tiny_llama.tokenizer("the cat sat").input_ids])
    implementation = tiny_llama.module.config._attn_implementation
    try:
        answer = generated(tiny_llama, {"input_ids": ids}, cache_implementation=cache)
        whole = answer.sequences[:, :-1]  # type: ignore[attr-defined]
        with torch.inference_mode():
            official = tiny_llama.module(whole, output_attentions=True).attentions
    finally:
        tiny_llama.module.set_attn_implementation(implementation)
    names = [str(int(i)) for i in whole[0]]
    steps = answer.attentions  # type: ignore[attr-defined]
    trace = Trace.from_arrays(steps, names)
    assert trace.main.is_causal
    for ours, theirs in zip(trace.attention.values, official, strict=True):
        np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-5)
    with pytest.raises(InputError, match="no row for the last token it wrote: leave that one out"):
        Trace.from_arrays(steps, [*names, "last"])
    with pytest.raises(InputError, match="Expected every step of one generation"):
        Trace.from_arrays(steps[1:], names[len(ids[0]) :])


def test_steps_of_an_encoder_decoder(tiny_t5: Model) -> None:
    assert tiny_t5.tokenizer is not None
    inputs = dict(tiny_t5.tokenizer("the cat sat", return_tensors="pt"))
    inputs.pop("token_type_ids", None)
    implementation = tiny_t5.module.config._attn_implementation
    try:
        answer = generated(tiny_t5, inputs)
        read = answer.sequences[:, :-1]  # type: ignore[attr-defined]
        with torch.inference_mode():
            official = tiny_t5.module(**inputs, decoder_input_ids=read, output_attentions=True)
    finally:
        tiny_t5.module.set_attn_implementation(implementation)
    tokens = {
        "encoder": [str(int(i)) for i in inputs["input_ids"][0]],
        "decoder": [str(int(i)) for i in read[0]],
    }
    blocks = {
        "encoder": answer.encoder_attentions,  # type: ignore[attr-defined]
        "decoder": answer.decoder_attentions,  # type: ignore[attr-defined]
        "cross": answer.cross_attentions,  # type: ignore[attr-defined]
    }
    trace = Trace.from_arrays(blocks, tokens)
    for name in blocks:
        found = trace.blocks[name].attention.values
        for ours, theirs in zip(found, official[f"{name}_attentions"], strict=True):
            np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"cache_implementation": "static"}, {"use_cache": False}], ids=str
)
def test_steps_of_a_model_with_a_sliding_window(options: dict[str, object]) -> None:
    """Layers with a window hand over the keys in it; without a cache every row comes again."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
        eos_token_id=None,
    )
    model = hs.load(Gemma3ForCausalLM(config).eval())
    answer: Any = generated(model, {"input_ids": torch.arange(5, 11)[None]}, **options)
    ids = answer.sequences[:, :-1]
    trace = Trace.from_arrays(answer.attentions, [str(int(token)) for token in ids[0]])
    expected = model.trace({"input_ids": ids}).attention
    np.testing.assert_allclose(trace.attention, expected, atol=1e-6)
