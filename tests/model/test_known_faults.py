"""Families and inputs that were once read wrongly or not at all, each by what was wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import softmax
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LEDConfig,
    LEDModel,
    LongformerConfig,
    LongformerModel,
    PreTrainedModel,
    RwkvConfig,
    RwkvModel,
    TextClassificationPipeline,
    ViltConfig,
    ViltModel,
)

import headscope as hs
from headscope.attention import Attention
from headscope.errors import InputError, TapUnsupported
from headscope.model.load import unwrap
from tests.conftest import word_piece_tokenizer
from tests.families.reference import reference_maps, tapped
from tests.families.shrink import Tiny, tiny
from tests.families.zoo import SUPPORTED, build


def built(family: str, architecture: str) -> Tiny:
    return tiny(family, architecture)


def test_attention_that_depends_on_the_cache_is_read_without_it() -> None:
    small = built("fsmt", "FSMTForConditionalGeneration")
    model = hs.load(small.module)
    theirs, _ = reference_maps(small.module, small.inputs, use_cache=False)
    ours, _ = tapped(model, small.inputs)
    for block, maps in theirs.items():
        for a, b in zip(ours[block], maps, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_layer_of_diffllama_is_handed_over_once() -> None:
    small = built("diffllama", "DiffLlamaForCausalLM")
    model = hs.load(small.module)
    layers: list[int] = []

    def read(attention: Attention) -> None:
        layers.append(attention.layer)
        # Each half of the heads has values of its own; half an output would be no head's.
        assert attention.outputs is None or attention.outputs.shape[1] == attention.n_heads

    model.run(small.inputs, read)
    assert layers == list(range(model.info.n_layers))


def test_an_encoder_that_cannot_be_read_is_named() -> None:
    model = hs.load(built("pegasus_x", "PegasusXForConditionalGeneration").module)
    assert model.info.blocks == ("decoder", "cross")
    assert any("encoder" in place for place in model.info.check.unread)


def test_several_end_tokens_in_the_configuration() -> None:
    module = build(next(member for member in SUPPORTED if member.name == "llama"))
    module.config.eos_token_id = [2, 5]
    trace = hs.load(module, word_piece_tokenizer()).trace("the cat sat", generate=2)
    assert trace.attention.sizes["query"] == len(trace.tokens)


def test_an_example_of_one_row() -> None:
    module = build(next(member for member in SUPPORTED if member.name == "bert"))
    example = {"input_ids": torch.arange(4, 11)[None]}
    assert hs.load(module, example=example).info.check.largest_difference == 0


def test_an_example_of_one_token_tells_nothing_of_causality() -> None:
    gpt = hs.load(
        built("gpt2", "GPT2LMHeadModel").module, example={"input_ids": torch.tensor([[3]])}
    )
    assert gpt.info.is_causal
    assert gpt.info.objective == "causal"
    one = {name: torch.tensor([[3]]) for name in ("input_ids", "decoder_input_ids")}
    t5 = hs.load(built("t5", "T5ForConditionalGeneration").module, example=one)
    assert t5.wiring.causal_blocks == {"decoder"}
    bert = built("bert", "BertForMaskedLM").module
    example = {"input_ids": torch.tensor([[3]]), "attention_mask": torch.tensor([[1]])}
    assert not hs.load(bert, example=example).info.is_causal


@pytest.mark.parametrize("part", ["query_key_value", "dense"])
def test_heads_of_which_nothing_is_made(part: str) -> None:
    """Bloom adds its residual inside the attention: silencing heads that are silent changes
    nothing there.
    """
    module = built("bloom", "BloomForCausalLM").module
    for layer in module.transformer.h:
        for weights in getattr(layer.self_attention, part).parameters():
            torch.nn.init.zeros_(weights)
    if part == "query_key_value":  # no values: any weights are as good
        assert hs.load(module).info.check.is_exact
    else:
        with pytest.raises(TapUnsupported, match=r"ignores its heads.*projection of zeros\?\), or"):
            _ = hs.load(module).info


def test_wavlm_is_read_head_by_head() -> None:
    """It returns the average over heads of what torch's own function computes, for each head."""
    small = built("wavlm", "WavLMModel")
    model = hs.load(small.module)
    assert "on average over heads the reference attention to 0.0" in str(model.info.check)
    theirs, _ = reference_maps(small.module, small.inputs)
    ours, _ = tapped(model, small.inputs)
    for mine, averaged in zip(ours["self"], theirs["self"], strict=True):
        assert not torch.equal(mine[:, 0], mine[:, 1])
        assert torch.equal(mine.mean(1), averaged[:, 0])
    site = model.wiring.sites[0]
    projection = small.module.get_submodule(site.module).out_proj
    with model.edit(*(hs.ablate(0, head) for head in range(site.n_heads))), torch.no_grad():
        silent: list[torch.Tensor] = []
        hook = small.module.get_submodule(site.module).register_forward_hook(
            lambda _module, _args, result: silent.append(result[0])
        )
        model.module(**small.inputs)
        hook.remove()
    assert torch.equal(silent[0], projection.bias.expand_as(silent[0]))


def test_a_pipeline_brings_its_model_and_tokenizer() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
    )
    module = BertForSequenceClassification(config).eval()
    pipeline = TextClassificationPipeline(model=module, tokenizer=word_piece_tokenizer())
    model = hs.load(pipeline)
    assert model.module is module
    assert model.trace("the cat sat").predictions is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, on its first compilation
@pytest.mark.parametrize("wrap", [torch.compile, torch.nn.DataParallel])
def test_compiled_and_parallel_models_are_the_model_inside(wrap: object) -> None:
    module = build(next(member for member in SUPPORTED if member.name == "bert"))
    assert callable(wrap)
    assert unwrap(wrap(module))[0] is module


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_scores_values_and_outputs(dtype: torch.dtype) -> None:
    module = build(next(member for member in SUPPORTED if member.name == "llama")).to(dtype)
    block = hs.load(module, word_piece_tokenizer()).trace("the cat sat on the mat").main
    np.testing.assert_allclose(softmax(block.scores.values, -1), block.attention, atol=0.004)
    values = block.values.isel(group=block.data["group_of_head"]).values
    np.testing.assert_allclose(block.attention.values @ values, block.outputs, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scores", [None, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_neo"])
def test_scores_of_rows_that_are_padding(
    family: str, dtype: torch.dtype, scores: bool | None
) -> None:
    module = build(next(member for member in SUPPORTED if member.name == family)).to(dtype)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1]])
    inputs = {"input_ids": torch.arange(4, 11)[None], "attention_mask": mask}
    block = hs.load(module).trace(inputs, scores=scores).main
    np.testing.assert_allclose(softmax(block.scores.values, -1), block.attention, atol=0.001)
    if family != "gpt_neo":  # which adds half precision's mask to scores in single precision
        assert np.isneginf(block.scores.values[:, :, 3, [0, 1, 4]]).all()


def test_a_model_whose_settings_ask_generate_for_more() -> None:
    module = build(next(member for member in SUPPORTED if member.name == "llama"))
    model = hs.load(module, word_piece_tokenizer())
    expected = model.trace("the cat sat", generate=2).text.ids
    module.generation_config.return_dict_in_generate = True
    module.generation_config.num_beams = module.generation_config.num_return_sequences = 2
    assert model.trace("the cat sat", generate=2).text.ids == expected


def test_positions_while_a_part_of_the_model_runs_alone_with_a_cache() -> None:
    """As `generate` of BLIP-2 runs its language model."""
    module = build(next(member for member in SUPPORTED if member.name == "llama"))
    ids = torch.arange(4, 12)[None]
    edit = hs.set_attention(0, 0, query=0, key=0, weight=0.0, renormalize=False)
    part = module.base_model
    with hs.load(module).edit(edit), torch.inference_mode():
        whole = part(ids).last_hidden_state
        start = part(ids[:, :5], use_cache=True)
        rest = part(ids[:, 5:], past_key_values=start.past_key_values)
    torch.testing.assert_close(rest.last_hidden_state, whole[:, 5:])


def test_layers_that_were_replaced_or_moved_are_checked_anew() -> None:
    module = build(next(member for member in SUPPORTED if member.name == "llama"))
    model = hs.load(module)
    inputs = {"input_ids": torch.arange(4, 11)[None]}
    n_layers = model.info.n_layers
    first, *others = module.model.layers
    module.model.layers = torch.nn.ModuleList([*others, copy.deepcopy(first)])
    for index, layer in enumerate(module.model.layers):
        layer.self_attn.layer_idx = index
    theirs, _ = reference_maps(module, inputs)
    for ours, expected in zip(model.trace(inputs).attention.values, theirs["self"], strict=True):
        np.testing.assert_array_equal(ours, expected[0])
    with model.edit(hs.ablate(n_layers - 1, 0)):
        assert not model.trace(inputs).attention.values[-1, 0].any()
    del module.model.layers[-1]
    assert model.info.n_layers == n_layers - 1


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_weights_that_are_not_there(family: str) -> None:
    module = build(next(member for member in SUPPORTED if member.name == family)).to("meta")
    with pytest.raises(InputError, match="on the device 'meta'"):
        hs.load(module)


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_a_mask_of_ones_own_may_look_ahead(family: str) -> None:
    model = hs.load(build(next(member for member in SUPPORTED if member.name == family)))
    ids = torch.arange(5, 9)[None]
    seen: list[Attention] = []
    inputs = {"input_ids": ids, "attention_mask": torch.zeros(1, 1, 4, 4)}
    model.run(inputs, seen.append)
    assert all(bool(one.weights.triu(1).any()) and not one.is_causal for one in seen)
    trace = model.trace(inputs)
    assert np.triu(trace.attention.values, 1).any()
    assert not trace.main.is_causal
    assert model.trace({"input_ids": ids}).main.is_causal


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({}, r"does not run on the inputs \(none\)"),
        ({"input_ids": [[5, 6]]}, "does not run on the inputs input_ids.* Give tensors"),
        ({"input_ids": np.array([[5, 6]])}, "Give tensors of one row"),
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, "Give tensors of one row"),
        ({"input_ids": torch.tensor([[5]]), "past_key_values": object()}, "the whole input"),
    ],
)
def test_prepared_inputs_that_do_not_run(inputs: dict[str, object], reason: str) -> None:
    model = hs.load(build(next(member for member in SUPPORTED if member.name == "llama")))
    with pytest.raises(InputError, match=reason):
        model.trace(inputs)


def test_a_vocabulary_of_special_tokens_alone() -> None:
    config = GPT2Config(vocab_size=1, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    assert hs.load(GPT2LMHeadModel(config)).info.check.is_exact
    with pytest.raises(InputError, match="example should be inputs by name"):
        hs.load(GPT2LMHeadModel(config), example=[1, 2])  # type: ignore[arg-type]


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 60}


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            lambda: LongformerModel(LongformerConfig(**SMALL, attention_window=4)),
            r"reference shapes \(2, 2, 11, 5\) for 2 rows\) is computed in windows",
        ),
        (
            lambda: LEDModel(
                LEDConfig(
                    vocab_size=60,
                    d_model=16,
                    encoder_layers=1,
                    decoder_layers=1,
                    encoder_attention_heads=2,
                    decoder_attention_heads=2,
                    encoder_ffn_dim=16,
                    decoder_ffn_dim=16,
                    attention_window=4,
                )
            ),
            r"laid out in windows or blocks \(shapes \(2, 2, 11, 5\)",
        ),
        (
            lambda: ViltModel(ViltConfig(**SMALL, image_size=16, patch_size=4)),
            "draws random numbers",
        ),
        (
            lambda: RwkvModel(RwkvConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2)),
            "has no softmax attention",
        ),
    ],
    ids=["longformer", "led", "vilt", "rwkv"],
)
def test_the_reason_of_a_refusal_is_the_true_one(
    module: Callable[[], PreTrainedModel], reason: str
) -> None:
    """Windows were once taken for pooling, or for no attention at all."""
    torch.manual_seed(0)
    with pytest.raises(TapUnsupported, match=reason):
        _ = hs.load(module()).info


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_a_module_in_use_is_not_copied_with_its_hooks(family: str) -> None:
    model = hs.load(build(next(member for member in SUPPORTED if member.name == family)))
    with model.edit(hs.ablate(0, 0)), pytest.raises(InputError, match="outside of the block"):
        copy.deepcopy(model.module)
    assert hs.load(copy.deepcopy(model.module)).info.check.is_exact
