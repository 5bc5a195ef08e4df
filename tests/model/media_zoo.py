"""Tiny models that see or hear, with seeded weights and processors made from settings."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
import transformers as tf
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import headscope as hs
from tests.conftest import byte_tokenizer, word_piece_tokenizer

if TYPE_CHECKING:
    from headscope.model.model import Model

SIDE, PATCH = 32, 8
"""Pixels of a tiny image and of its patches: a grid of 4 × 4."""
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
VISION = {**SMALL, "image_size": SIDE, "patch_size": PATCH}
CHAT = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}"
    "{% endif %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]"
    "{% endif %}"
)


def picture(side: int = 48) -> np.ndarray:
    """A drawing that differs everywhere: no two patches look alike."""
    y, x = np.mgrid[:side, :side] / (side - 1)
    disk = (y - 0.4) ** 2 + (x - 0.6) ** 2 < 0.06
    colors = np.stack([np.where(disk, 0.95, x), np.where(disk, 0.8, y), 1 - (x + y) / 2], axis=-1)
    return np.rint(colors * 255).astype(np.uint8)


def tone(seconds: float = 0.5, rate: int = 16_000) -> np.ndarray:
    """A sound that rises."""
    time = np.arange(int(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * time) * time)).astype(np.float32)


def vit_processor() -> ViTImageProcessorPil:
    return ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})


def clip_images() -> CLIPImageProcessorPil:
    return CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )


@cache
def vit() -> Model:
    torch.manual_seed(0)
    return hs.load(tf.ViTModel(tf.ViTConfig(**VISION)), processor=vit_processor())


@cache
def dinov2() -> Model:
    """With four registers beside the class token."""
    torch.manual_seed(0)
    config = tf.Dinov2WithRegistersConfig(**VISION, num_register_tokens=4, layerscale_value=0.5)
    return hs.load(tf.Dinov2WithRegistersModel(config), processor=vit_processor())


@cache
def clip() -> Model:
    torch.manual_seed(0)
    tokenizer = word_piece_tokenizer()
    tokenizer.model_max_length = 16
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 16, "eos_token_id": 3}
    config = tf.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16)
    processor = tf.CLIPProcessor(clip_images(), tokenizer)
    example = {
        "input_ids": torch.arange(4, 18).reshape(2, 7),
        "pixel_values": torch.randn(2, 3, SIDE, SIDE),
    }
    return hs.load(tf.CLIPModel(config), processor=processor, example=example)


@cache
def llava() -> Model:
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    text = tf.LlamaConfig(
        **SMALL, vocab_size=320, num_key_value_heads=2, pad_token_id=0, eos_token_id=1
    )
    config = tf.LlavaConfig(
        vision_config=tf.CLIPVisionConfig(**VISION),
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
        vision_feature_layer=-1,
    )
    processor = tf.LlavaProcessor(
        clip_images(),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
    )
    return hs.load(tf.LlavaForConditionalGeneration(config), processor=processor)


@cache
def whisper() -> Model:
    """Two seconds long at most, not thirty."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    config = tf.WhisperConfig(
        vocab_size=300,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=100,
        max_target_positions=40,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=2,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    listener = tf.WhisperFeatureExtractor(feature_size=16, chunk_length=2)
    processor = tf.WhisperProcessor(listener, tokenizer)
    return hs.load(tf.WhisperForConditionalGeneration(config), processor=processor)


@cache
def wav2vec2() -> Model:
    torch.manual_seed(0)
    config = tf.Wav2Vec2Config(  # type: ignore[call-arg]
        **SMALL,
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 8, 4),
        conv_stride=(5, 8, 8),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    listener = tf.Wav2Vec2FeatureExtractor(sampling_rate=16_000)
    return hs.load(tf.Wav2Vec2Model(config), processor=listener)
