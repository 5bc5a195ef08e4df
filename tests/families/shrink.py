"""A tiny model of any family of the installed transformers, and inputs on which it runs.

A configuration is shrunk by the names of its settings, its parts likewise. What does not fit
together (a family may want as many key heads as query heads, or more layers) is tried in
variants until a model can be built and runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from headscope.model.tap.example import examples
from headscope.model.tap.interface import eager_attention

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH = 32, 4, 2, 99, 64
MAX_PARAMETERS = 20e6

Settings = dict[str, Any]

NAMES: dict[int, str] = {
    WIDTH: """hidden_size d_model n_embd dim emb_dim embed_dim embedding_size n_embed lru_width
        word_embed_proj_dim true_hidden_size intra_bottleneck_size out_hidden_size vision_width
        encoder_hidden_size attention_hidden_size qformer_hidden_size entity_emb_size
        decoder_hidden_size text_hidden_size audio_hidden_size cross_attention_hidden_size
        projector_hidden_size output_dim embed_dims decoder_embed_dim codec_dim""",
    48: """intermediate_size ffn_dim d_ff d_inner hidden_dim n_inner dff encoder_ffn_dim mlp_dim
        decoder_ffn_dim ffn_hidden_size ffn_intermediate_size intermediate_size_mlp
        encoder_intermediate_size decoder_intermediate_size dim_feedforward""",
    HEADS: """num_attention_heads n_heads n_head num_heads encoder_attention_heads
        decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads
        attention_heads num_experts num_local_experts n_routed_experts moe_num_experts
        linear_num_value_heads patch_size num_query_tokens num_landmarks state_size
        ssm_state_size mamba_d_state mamba_dt_rank laurel_rank mm_tokens_per_image block_size
        encoder_num_attention_heads decoder_num_attention_heads rotary_dim""",
    2: """num_key_value_heads n_head_kv num_kv_heads num_experts_per_tok num_experts_per_token
        moe_topk moe_k linear_num_key_heads num_hidden_layers n_layers n_layer num_layers
        encoder_layers decoder_layers num_encoder_layers num_decoder_layers depth index_n_heads
        num_codebooks mamba_expand eos_token_id sep_token_id num_feat_extract_layers
        num_conv_pos_embedding_groups num_queries_per_level encoder_num_hidden_layers
        decoder_num_hidden_layers""",
    8: """head_dim d_kv kv_channels qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_num_heads
        mamba_n_heads mamba_d_head mamba_head_dim linear_key_head_dim linear_value_head_dim
        query_pre_attn_scalar index_head_dim chunk_size mamba_chunk_size attention_chunk_size
        hidden_size_per_layer_input attention_head_size d_head""",
    16: """moe_intermediate_size shared_expert_intermediate_size image_size projection_dim
        moe_shared_expert_intermediate_size q_lora_rank kv_lora_rank qk_head_dim num_mel_bins
        input_embedding_size output_embedding_size expert_ffn_hidden_size num_image_tokens
        image_seq_length num_conv_pos_embeddings""",
    VOCABULARY: "vocab_size vocab_size_per_layer_input",
    LENGTH: """max_position_embeddings n_positions n_ctx max_seq_len context_length index_topk
        max_target_positions""",
    24: "max_source_positions",
    6: "sliding_window local_attention window_size",
    1: """n_group topk_group bos_token_id decoder_start_token_id cls_token_id max_window_layers
        first_k_dense_replace n_shared_experts num_experts_shared num_ln_in_embed n_langs""",
    0: "pad_token_id",
    3: "mask_token_id num_channels conv_kernel_size",
    90: "image_token_id image_token_index",
    91: "video_token_id video_token_index",
    92: "audio_token_id audio_token_index",
    93: "vision_start_token_id",
    94: "vision_end_token_id",
    50: "entity_vocab_size",
    128: "codebook_size text_vocab_size audio_vocab_size",
}
SMALL = {name: size for size, names in NAMES.items() for name in names.split()}
MAY_BE_ABSENT = {f"{x}_token_id" for x in ("pad", "bos", "eos", "image")} | {"image_token_index"}
SPEECH: Settings = {"conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2]}
BEGINNINGS: Settings = {f"{x}_index": i for i, x in enumerate(("pad", "bos", "eos", "unk", "mask"))}

OF_FAMILY: dict[str, Settings] = {
    "xlm": BEGINNINGS,
    "flaubert": BEGINNINGS,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "longformer": {"attention_window": [4, 4]},
    "led": {
        "attention_window": [4, 4],
        "max_encoder_position_embeddings": LENGTH,
        "max_decoder_position_embeddings": LENGTH,
    },
    "squeezebert": dict.fromkeys(
        ("q_groups", "k_groups", "v_groups", "intermediate_groups", "output_groups"), 2
    ),
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "funnel": {"block_sizes": [1, 1]},
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "patch_size": 2},
    "swinv2": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "patch_size": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
    },
    "t5": {"decoder_start_token_id": 0},
    "lilt": {"channel_shrink_ratio": 4, "max_2d_position_embeddings": 64, "hidden_size": 48},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "nystromformer": {"segment_means_seq_len": LENGTH, "num_landmarks": LENGTH},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4}},
    "zaya": {"num_experts_per_tok": 1},
    "esm": {"vocab_size": VOCABULARY},
    "granite_speech5_encoder": {"context_size": 16},
    "audio-spectrogram-transformer": {"max_length": 24, "frequency_stride": 4, "time_stride": 4},
    "bros": {"hidden_size": 32, "dim_bbox": 8, "bbox_scale": 100.0},
    "informer": {"prediction_length": 4},
    "autoformer": {"prediction_length": 4},
    "time_series_transformer": {"prediction_length": 4},
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 0},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "falcon_h1": {"mamba_d_ssm": 64},
    "swin2sr": {"num_heads": [2, 2], "depths": [1, 1], "embed_dim": 16},
    "donut-swin": {"num_heads": [2, 2], "depths": [1, 1], "embed_dim": 16},
    "maskformer-swin": {"num_heads": [2, 2], "depths": [1, 1], "embed_dim": 16},
    "blip-2": {"image_token_index": 90},
    "mobilebert": {"num_feedforward_networks": 1},
    "bit": {"depths": [1, 1], "hidden_sizes": [8, 16]},
    "convnext": {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2},
    "convnextv2": {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "bamba": {"attn_layer_indices": [1]},
    "layoutlmv3": {"input_size": 16, "patch_size": 4, "coordinate_size": 6, "shape_size": 4},
}
VARIANTS: tuple[Settings, ...] = (
    {},
    {"num_key_value_heads": HEADS},
    {"head_dim": 16, "num_key_value_heads": HEADS},
    {"mrope_section": True},
    {"num_hidden_layers": 4},
    {"head_dim": None},
    {"head_dim": 8},
    {"head_dim": 8, "num_key_value_heads": HEADS, "num_hidden_layers": 4},
    {"image_size": 32},
    {"image_size": 64},
    {"vocab_size": 4 * VOCABULARY},
    {"patch_size": 2, "image_size": 32},
)
MROPE = ([2, 1, 1], [1, 1, 0], [1, 1], [4, 2, 2])
"""How many pairs of neurons turn with time, height and width: what fits the head decides."""

MAPPINGS = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
"""Of a family's classes, the first that one of these names."""


class NotBuilt(Exception):
    """No tiny model of a family could be made."""


@dataclass(frozen=True, slots=True)
class Tiny:
    """A tiny model and inputs on which it runs."""

    module: PreTrainedModel
    inputs: dict[str, Tensor]


def classes() -> dict[str, str]:
    """Family → the name of the class to build, for every family there is."""
    chosen: dict[str, str] = {}
    for mapping in MAPPINGS:
        for family, names in getattr(modeling_auto, mapping).items():
            name = names if isinstance(names, str) else names[0]
            if family not in chosen and family in CONFIG_MAPPING and hasattr(transformers, name):
                chosen[family] = name
    return dict(sorted(chosen.items()))


def tiny(family: str, class_name: str) -> Tiny:
    """A tiny model of a family, its weights large enough that attention is not uniform.

    Raises:
        NotBuilt: none could be made, or none runs; with what the first attempt ran into.
    """
    model_class = getattr(transformers, class_name)
    first = ""
    for config in _configurations(CONFIG_MAPPING[family]):
        if isinstance(config, str):
            first = first or config
            continue
        try:
            module = _built(model_class, config)
            return Tiny(module, _accepted(module))
        except Exception as error:  # whatever a family objects to
            first = first or _line(error)
    raise NotBuilt(first)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def _configurations(config_class: type[PretrainedConfig]) -> Iterator[PretrainedConfig | str]:
    """Tiny configurations, one variant after another; or why there is none."""
    made: set[str] = set()
    for variant in VARIANTS:
        for sections in MROPE:
            try:
                config = _shrunk(config_class, variant, sections)
            except Exception as error:
                yield _line(error)
                break
            if repr(config) not in made:
                made.add(repr(config))
                yield config


def _shrunk(
    config_class: type[PretrainedConfig], variant: Settings, sections: list[int]
) -> PretrainedConfig:
    default = config_class()
    settings = default.to_dict()
    chosen: Settings = {}
    for name, size in {**SMALL, **variant}.items():
        may_be_absent = name in MAY_BE_ABSENT or name in variant
        is_known = name in settings and (settings[name] is not None or may_be_absent)
        if is_known and not isinstance(settings[name], list | tuple | dict | str):
            chosen[name] = size
    kinds = settings.get("layer_types")
    if isinstance(kinds, list):
        distinct = list(dict.fromkeys(kinds))
        n = max(chosen.get("num_hidden_layers", LAYERS), len(distinct))
        chosen["layer_types"] = (distinct * n)[:n]
        chosen |= {x: n for x in ("num_hidden_layers", "n_layers", "num_layers") if x in chosen}
    for name in ("rope_parameters", "rope_scaling"):
        rope = settings.get(name)
        if isinstance(rope, dict) and ("mrope_section" in rope or "mrope_section" in variant):
            chosen[name] = {**rope, "mrope_section": sections}
    if settings.keys() >= SPEECH.keys():
        chosen |= SPEECH
    if isinstance(settings.get("image_size"), list | tuple):
        side = variant.get("image_size", SMALL["image_size"])
        chosen["image_size"] = [side] * len(settings["image_size"])
    for part in default.sub_configs or {}:
        config = getattr(default, part, None)
        if isinstance(config, PretrainedConfig):
            chosen[part] = _shrunk(type(config), variant, sections).to_dict()
    return config_class(**chosen | OF_FAMILY.get(default.model_type, {}))


def _built(model_class: type[PreTrainedModel], config: PretrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        try:
            n = sum(p.numel() for p in model_class(config).parameters())
        except Exception:  # some cannot be made without memory
            n = 0
    if n > MAX_PARAMETERS:
        raise NotBuilt(f"still {n / 1e6:.0f}M parameters")
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    module = model_class(config)
    if sum(p.numel() for p in module.parameters()) > MAX_PARAMETERS:
        raise NotBuilt("still too large")
    return seeded(module)


def seeded(module: PreTrainedModel) -> PreTrainedModel:
    """The model with random weights that are large enough that attention is not uniform."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if weights.is_floating_point() and weights.ndim >= 2 and "A_log" not in name:
                n_inputs = max(weights[0].numel(), 1)
                weights.normal_(0, 1.7 / n_inputs**0.5, generator=generator)
            elif re.search("bias|sinks", name) and "correction" not in name:
                weights.normal_(0, 0.1, generator=generator)
    return module.eval()


def _accepted(module: PreTrainedModel) -> dict[str, Tensor]:
    """The first of the examples on which the model runs."""
    failure: Exception | None = None
    for inputs in examples(module):
        try:
            with torch.no_grad(), eager_attention(module):
                module(**inputs)
        except Exception as error:
            failure = failure or error
        else:
            return inputs
    raise failure or NotBuilt(f"no example is known for {module.main_input_name}")
