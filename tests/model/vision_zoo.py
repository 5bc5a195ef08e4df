"""Tiny vision-language models of the usual families, with random weights and real processors.

Video processors need torchvision, which images do not: they are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

import headscope as hs
from tests.conftest import byte_tokenizer
from tests.model.media_zoo import PATCH, SIDE, SMALL, VISION, llava

TEXT = {**SMALL, "vocab_size": 340, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 1}
SIGLIP: dict[str, Any] = {**VISION, "vision_use_head": False}
SQUARE = {"height": SIDE, "width": SIDE}
GRID = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE]]


def tokenizer_with(*tokens: str, **named: str) -> Any:
    """A tokenizer with special tokens; `named` are attributes that a processor reads."""
    tokenizer = byte_tokenizer()
    tokenizer.model_max_length = 512
    tokenizer.add_tokens([*tokens, *named.values()], special_tokens=True)
    for name, token in named.items():
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))
    return tokenizer


def without_video(processor: type) -> Any:
    """The processor, which accepts None as its video processor."""

    class ImagesOnly(processor):  # type: ignore[misc]
        def check_argument_for_proper_class(self, name: str, argument: Any) -> Any:
            if name == "video_processor" and argument is None:
                return type(None)
            return super().check_argument_for_proper_class(name, argument)

    return ImagesOnly


def qwen(version: str) -> hs.Model:
    """Qwen-VL 2.5 or 3: image tokens between two marks, as its chat template writes them."""
    marks = ("<|vision_start|>", "<|vision_end|>", "<|video_pad|>")
    tokenizer = tokenizer_with("<|image_pad|>", *marks)
    ids = {
        name: tokenizer.convert_tokens_to_ids(token)
        for name, token in zip(
            ("image_token_id", "vision_start_token_id", "vision_end_token_id", "video_token_id"),
            ("<|image_pad|>", *marks),
            strict=True,
        )
    }
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": SIDE**2, "longest_edge": SIDE**2},
    )
    vision: dict[str, Any] = {
              "depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48,
              "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2,
              "out_hidden_size": 32}  # fmt: skip
    if version == "2.5":
        vision |= {"window_size": 16, "fullatt_block_indexes": [1]}
        config: Any = tf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
        module: Any = tf.Qwen2_5_VLForConditionalGeneration(config)
        kind: Any = tf.Qwen2_5_VLProcessor
    else:
        vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
        text["head_dim"] = 8
        config = tf.Qwen3VLConfig(text_config=text, vision_config=vision, **ids)
        module = tf.Qwen3VLForConditionalGeneration(config)
        kind = tf.Qwen3VLProcessor
    processor = without_video(kind)(images, tokenizer, None)
    return hs.load(module, processor=processor)


def llava_next() -> hs.Model:
    tokenizer = tokenizer_with("<image>")
    config = tf.LlavaNextConfig(
        vision_config=tf.CLIPVisionConfig(**VISION), text_config=tf.LlamaConfig(**TEXT),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=GRID, vision_feature_layer=-1,
    )  # fmt: skip
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size=SQUARE, image_grid_pinpoints=GRID
    )
    processor = tf.LlavaNextProcessor(
        images, tokenizer, patch_size=PATCH, vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )  # fmt: skip
    return hs.load(tf.LlavaNextForConditionalGeneration(config), processor=processor)


def llava_onevision() -> hs.Model:
    tokenizer = tokenizer_with("<image>", "<video>")
    config = tf.LlavaOnevisionConfig(
        vision_config=tf.SiglipVisionConfig(**VISION), text_config=tf.Qwen2Config(**TEXT),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=GRID, vision_feature_layer=-1, vision_feature_select_strategy="full",
    )  # fmt: skip
    images = LlavaOnevisionImageProcessorPil(size=SQUARE, image_grid_pinpoints=GRID)
    processor = without_video(tf.LlavaOnevisionProcessor)(
        images, tokenizer, None, num_image_tokens=16, vision_feature_select_strategy="full"
    )
    return hs.load(tf.LlavaOnevisionForConditionalGeneration(config), processor=processor)


def internvl() -> hs.Model:
    tokenizer = tokenizer_with(
        start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )  # fmt: skip
    vision = {**SMALL, "image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]}
    config = tf.InternVLConfig(
        vision_config=vision, text_config=tf.Qwen2Config(**TEXT), downsample_ratio=0.5,
        image_token_id=tokenizer.context_image_token_id, image_seq_length=4,
    )  # fmt: skip
    images = GotOcr2ImageProcessorPil(size=SQUARE, crop_to_patches=False)
    processor = without_video(tf.InternVLProcessor)(images, tokenizer, None, image_seq_length=4)
    return hs.load(tf.InternVLForConditionalGeneration(config), processor=processor)


def paligemma() -> hs.Model:
    images: Any = SiglipImageProcessorPil(size=SQUARE)
    images.image_seq_length = 16
    tokenizer = tokenizer_with()
    tokenizer.bos_token = "<end>"
    processor = tf.PaliGemmaProcessor(images, tokenizer)
    text = tf.GemmaConfig(**{**TEXT, "vocab_size": len(tokenizer), "head_dim": 8})
    config = tf.PaliGemmaConfig(
        vision_config=tf.SiglipVisionConfig(**SIGLIP), text_config=text,
        image_token_index=processor.image_token_id, projection_dim=32,
    )  # fmt: skip
    return hs.load(tf.PaliGemmaForConditionalGeneration(config), processor=processor)


def gemma3() -> hs.Model:
    tokenizer = tokenizer_with(
        boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>"
    )
    text = tf.Gemma3TextConfig(**TEXT, head_dim=8, sliding_window=16, query_pre_attn_scalar=8)
    config = tf.Gemma3Config(
        text_config=text, vision_config=tf.SiglipVisionConfig(**SIGLIP),
        mm_tokens_per_image=4, boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id, image_token_index=tokenizer.image_token_id,
    )  # fmt: skip
    images = Gemma3ImageProcessorPil(size=SQUARE)
    processor = tf.Gemma3Processor(images, tokenizer, image_seq_length=4)
    module = tf.Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(module.model.multi_modal_projector.mm_input_projection_weight)
    return hs.load(module, processor=processor)


def idefics3(kind: str = "Idefics3") -> hs.Model:
    """Idefics3; SmolVLM has the same layers, and a processor that needs num2words for videos."""
    tokenizer = tokenizer_with("<global-img>")
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
    )
    processor = tf.Idefics3Processor(images, tokenizer, image_seq_len=4)
    config = getattr(tf, f"{kind}Config")(
        vision_config=VISION, text_config=tf.LlamaConfig(**TEXT), scale_factor=2,
        image_token_id=processor.image_token_id,
    )  # fmt: skip
    module = getattr(tf, f"{kind}ForConditionalGeneration")(config)
    return hs.load(module, processor=processor)


def idefics2() -> hs.Model:
    tokenizer = tokenizer_with()
    images = Idefics2ImageProcessorPil(
        size={"shortest_edge": SIDE, "longest_edge": SIDE}, do_image_splitting=False
    )
    processor = tf.Idefics2Processor(images, tokenizer, image_seq_len=4)
    perceiver = {"resampler_n_latents": 4, "resampler_depth": 1, "resampler_n_heads": 4,
                 "resampler_head_dim": 8, "num_key_value_heads": 2, "hidden_size": 32}  # fmt: skip
    config = tf.Idefics2Config(
        vision_config=VISION, text_config=tf.MistralConfig(**TEXT), perceiver_config=perceiver,
        image_token_id=processor.image_token_id,
    )  # fmt: skip
    return hs.load(tf.Idefics2ForConditionalGeneration(config), processor=processor)


FAMILIES: dict[str, Callable[[], hs.Model]] = {
    "LLaVA 1.5": llava,
    "LLaVA-NeXT": llava_next,
    "LLaVA-OneVision": llava_onevision,
    "Qwen2.5-VL": lambda: qwen("2.5"),
    "Qwen3-VL": lambda: qwen("3"),
    "InternVL": internvl,
    "PaliGemma": paligemma,
    "Gemma 3": gemma3,
    "Idefics2": idefics2,
    "Idefics3": idefics3,
    "SmolVLM": lambda: idefics3("SmolVLM"),
}


def load(name: str) -> hs.Model:
    """Build a family with seeded weights."""
    torch.manual_seed(0)
    return FAMILIES[name]()
