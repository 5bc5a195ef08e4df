"""Models that read more than text: named stacks, each with tokens of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

import headscope as hs
from headscope.attention import Attention, key_stack, query_stack
from headscope.errors import TapUnsupported
from headscope.model.model import Model
from tests.conftest import word_piece_tokenizer
from tests.families.reference import gap, reference_maps, tapped

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
IMAGE_TOKEN = 90


def seeded(module: PreTrainedModel) -> PreTrainedModel:
    """Weights large enough that attention is not uniform."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.3, generator=generator)
    return module.eval()


def picture(n: int = 1, side: int = 16) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(2))


def text_with_image(n_image: int) -> dict[str, Tensor]:
    ids = torch.tensor([[5, 6, *[IMAGE_TOKEN] * n_image, 7, 8, 9]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_clip_has_a_text_and_a_vision_stack() -> None:
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=16)
    model = hs.load(seeded(transformers.CLIPModel(config)))
    assert model.info.blocks == ("text", "vision")
    assert model.info.check.is_exact
    assert model.wiring.causal_blocks == {"text"}
    # As many tokens as patches: which layers are whose is still known.
    ids = torch.arange(5, 22)[None]
    trace = model.trace(
        {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": picture()}
    )
    assert trace.vision.attention.shape == (3, 4, 17, 17)
    assert trace.blocks["text"].attention.shape == (2, 4, 17, 17)
    assert trace.main.name == "text"


def test_the_maps_that_blip_calls_its_own_are_of_the_image() -> None:
    """With as many tokens as patches, they were once labelled with the words of the text."""
    text = {**TEXT, "encoder_hidden_size": 32, "sep_token_id": 2}
    config = transformers.BlipConfig(text_config=text, vision_config=VISION)
    module = seeded(transformers.BlipForConditionalGeneration(config))
    model = hs.load(module, word_piece_tokenizer())
    assert model.info.blocks == ("self", "vision")
    assert model.wiring.causal_blocks == {"self"}
    inputs = {"input_ids": torch.arange(5, 22)[None], "pixel_values": picture()}
    theirs, _ = reference_maps(module, inputs)
    trace = model.trace(inputs)
    assert trace.vision.query_tokens.tokens == tuple(map(str, range(17)))
    assert trace.tokens[:2] == ("the", "cat")
    for block in ("self", "vision"):
        for ours, own in zip(trace.blocks[block].attention.values, theirs[block], strict=True):
            torch.testing.assert_close(torch.tensor(ours), own[0], rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def llava() -> Model:
    config = transformers.LlavaConfig(  # type: ignore[call-arg]
        text_config={"model_type": "llama", **TEXT},
        vision_config={"model_type": "clip_vision_model", **VISION},
        image_token_id=IMAGE_TOKEN,
        image_token_index=IMAGE_TOKEN,
        vision_feature_layer=-1,
    )
    return hs.load(seeded(transformers.LlavaForConditionalGeneration(config)))


def test_the_vision_tower_of_llava_is_read_beside_the_text(llava: Model) -> None:
    assert llava.info.blocks == ("self",)  # given text alone
    inputs = {**text_with_image(16), "pixel_values": picture()}
    wiring = llava.wiring_for(inputs)
    assert wiring.blocks == ("self", "vision")
    trace = llava.trace(inputs)
    assert trace.vision.attention.shape[-2:] == (17, 17)
    assert trace.attention.shape == (2, 4, 21, 21)
    tower: Any = llava.module.model.vision_tower
    maps = reference_maps(tower, {"pixel_values": picture()})[0]["self"]
    for layer, theirs in enumerate(maps):
        ours = torch.tensor(trace.vision.attention.values[layer])
        assert torch.equal(ours, theirs[0])


def test_a_picture_the_self_check_has_not_seen_is_refused(llava: Model) -> None:
    inputs = {**text_with_image(16), "pixel_values": picture()}
    with (
        pytest.raises(TapUnsupported, match="given pixel_values, which the self-check was not"),
        torch.no_grad(),
        llava.tapped(lambda _: None),
    ):
        llava.module(**inputs)
    seen: list[str] = []

    def read(attention: Attention) -> None:
        seen.append(attention.block)

    with torch.no_grad(), llava.tapped(read, inputs=inputs):
        llava.module(**inputs)
    assert set(seen) == {"self", "vision"}


def test_two_tiles_of_a_picture_attend_each_within_itself(llava: Model) -> None:
    inputs = {**text_with_image(32), "pixel_values": picture(2)}
    with pytest.raises(hs.errors.InputError, match="its first axis"):
        llava.trace(inputs)  # prepared inputs are of one row
    from headscope.model.collect import Collector

    collector = Collector(llava.wiring_for(inputs), vectors=False)
    llava.run(inputs, collector)
    n_queries, n_keys = collector.lengths("vision")
    assert (n_queries, n_keys) == (34, 34)
    weights = collector._layers["vision"][0]["attention"]
    assert weights[:, :17, 17:].max() == weights[:, 17:, :17].max() == 0
    assert weights.sum(-1) == pytest.approx(1, abs=1e-5)


def test_mllama_attends_to_the_picture_in_cross_layers() -> None:
    text = {**TEXT, "cross_attention_layers": [1], "num_hidden_layers": 3}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    vision = {
        "hidden_size": 16,
        "attention_heads": 2,
        "num_hidden_layers": 2,
        "num_global_layers": 1,
        "intermediate_size": 32,
        "vision_output_dim": 32,
        "image_size": 16,
        "patch_size": 8,
        "max_num_tiles": 1,
        "supported_aspect_ratios": [[1, 1]],
        "intermediate_layers_indices": [0],
    }
    config = transformers.MllamaConfig(text_config=text, vision_config=vision, image_token_index=90)
    model = hs.load(seeded(transformers.MllamaForConditionalGeneration(config)))
    assert model.info.blocks == ("self",)
    assert [site.layer for site in model.wiring.of_block("self")] == [0, 2]
    ids = torch.tensor([[5, 6, IMAGE_TOKEN, 7, 8]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(1, 1, 1, 3, 16, 16, generator=torch.Generator().manual_seed(3)),
        "aspect_ratio_ids": torch.tensor([[1]]),
        "aspect_ratio_mask": torch.tensor([[[1]]]),
        "cross_attention_mask": torch.ones(1, 5, 1, 1, dtype=torch.long),
    }
    wiring = model.wiring_for(inputs)
    assert "cross" in wiring.blocks
    assert [site.layer for site in wiring.of_block("cross")] == [1]
    trace = model.trace(inputs)
    assert trace.cross.attention.sizes["query"] == 5
    stacks = trace.stack_tokens
    assert (query_stack("cross", stacks), key_stack("cross", stacks)) == ("self", "cross")
    assert len(stacks["cross"]) == trace.cross.attention.sizes["key"]


def test_picture_tokens_of_gemma_3_look_ahead() -> None:
    text = {**TEXT, "num_hidden_layers": 2, "sliding_window": 4, "query_pre_attn_scalar": 8}
    text["layer_types"] = ["sliding_attention", "full_attention"]
    config = transformers.Gemma3Config(  # type: ignore[call-arg]
        text_config=text,
        vision_config={**VISION, "model_type": "siglip_vision_model"},
        mm_tokens_per_image=4,
        image_token_id=IMAGE_TOKEN,
    )
    model = hs.load(seeded(transformers.Gemma3ForConditionalGeneration(config)))
    assert model.info.is_causal
    inputs: dict[str, Tensor] = {**text_with_image(4), "pixel_values": picture()}
    inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE_TOKEN).long()
    wiring = model.wiring_for(inputs)
    assert "self" not in wiring.causal_blocks
    trace = model.trace(inputs)
    assert not trace.main.is_causal
    assert float(trace.attention[1, 0, 2, 5]) > 0
    # Text alone stays causal, whatever was traced before.
    assert model.trace(text_with_image(0)).main.is_causal


def test_one_stack_is_self_whatever_it_reads() -> None:
    config = transformers.CLIPVisionConfig(**VISION)
    model = hs.load(seeded(transformers.CLIPVisionModel(config)))
    assert model.info.blocks == ("self",)


def test_frames_of_padded_sounds_are_masked_as_frames() -> None:
    config = transformers.Wav2Vec2Config(  # type: ignore[call-arg]
        **{k: v for k, v in TEXT.items() if k not in ("head_dim", "max_position_embeddings")},
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        feat_extract_norm="layer",
    )
    module: Any = seeded(transformers.Wav2Vec2Model(config))
    model = hs.load(module)
    sound = torch.randn(2, 600, generator=torch.Generator().manual_seed(4))
    mask = torch.ones(2, 600, dtype=torch.long)
    mask[1, 300:] = 0
    masks: list[Tensor | None] = []
    inputs = {"input_values": sound * mask, "attention_mask": mask}
    model.run(inputs, lambda a: masks.append(a.key_mask))
    n_frames = module._get_feat_extract_output_lengths(torch.tensor([600, 300])).tolist()
    assert masks[0] is not None
    assert masks[0].sum(-1).tolist() == n_frames


def test_the_two_equal_softmaxes_of_lilt_are_edited_together() -> None:
    settings = {**TEXT, "hidden_size": 48, "head_dim": None, "num_key_value_heads": None}
    config = transformers.LiltConfig(**settings, channel_shrink_ratio=4)
    model = hs.load(seeded(transformers.LiltModel(config)))
    assert len(model.wiring.copies) == len(model.wiring.sites) == 2
    ids = torch.randint(5, 90, (1, 7), generator=torch.Generator().manual_seed(5))
    inputs = {"input_ids": ids, "bbox": torch.zeros(1, 7, 4, dtype=torch.long)}
    before, output = tapped(model, inputs)
    with model.edit(hs.ablate(1, 2)):
        during, changed = tapped(model, inputs)
    assert float(during["self"][1][:, 2].abs().max()) == 0
    assert gap(before["self"][0], during["self"][0]) == 0
    assert not torch.equal(output, changed)
