"""Tiny models of many families, built from their configurations with seeded weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

WIDTH, LAYERS, HEADS, VOCABULARY = 32, 2, 4, 99

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
GPT2_LIKE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 64,
    "n_ctx": 64,
}
BART_LIKE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}
TOKENS: dict[str, Any] = {
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 3,
}
SMALL_IMAGE: dict[str, Any] = {"image_size": 16, "patch_size": 4}


@dataclass(frozen=True, eq=False)
class Family:
    """A family and how to build a tiny one of it."""

    name: str
    config: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)


def family(name: str, prefix: str, suffix: str, base: dict[str, Any], **more: Any) -> Family:
    settings = {**base, **{k: v for k, v in more.items() if v is not None}}
    for key in [k for k, v in more.items() if v is None]:
        settings.pop(key, None)
    return Family(name, f"{prefix}Config", f"{prefix}{suffix}", settings)


GROUPED = {"num_key_value_heads": 2}
NO_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

ENCODERS = [
    family("bert", "Bert", "ForMaskedLM", COMMON),
    family("roberta", "Roberta", "ForMaskedLM", COMMON),
    family("xlm-roberta", "XLMRoberta", "ForMaskedLM", COMMON),
    family("camembert", "Camembert", "ForMaskedLM", COMMON),
    family(
        "distilbert",
        "DistilBert",
        "ForMaskedLM",
        {"vocab_size": VOCABULARY, "dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS},
        hidden_dim=48,
        max_position_embeddings=64,
    ),
    family("electra", "Electra", "ForMaskedLM", COMMON, embedding_size=WIDTH),
    family("albert", "Albert", "ForMaskedLM", COMMON, embedding_size=16, num_hidden_layers=3),
    family("modernbert", "ModernBert", "ForMaskedLM", COMMON, **NO_SPECIAL, local_attention=8),
    family(
        "deberta",
        "Deberta",
        "ForMaskedLM",
        COMMON,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
    ),
    family(
        "deberta-v2",
        "DebertaV2",
        "ForMaskedLM",
        COMMON,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
    ),
    family("mpnet", "MPNet", "ForMaskedLM", COMMON),
    family(
        "xlnet",
        "XLNet",
        "LMHeadModel",
        {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS},
        d_inner=48,
    ),
    family(
        "squeezebert",
        "SqueezeBert",
        "ForMaskedLM",
        COMMON,
        embedding_size=WIDTH,
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=1,
        intermediate_groups=2,
        output_groups=2,
    ),
    family(
        "xlm",
        "XLM",
        "WithLMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "emb_dim": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_position_embeddings": 64,
            "n_langs": 1,
        },
        pad_index=0,
        bos_index=1,
        eos_index=2,
        unk_index=3,
        mask_index=4,
    ),
    family("ernie", "Ernie", "ForMaskedLM", COMMON),
    family(
        "rembert",
        "RemBert",
        "ForMaskedLM",
        COMMON,
        input_embedding_size=16,
        output_embedding_size=16,
        **NO_SPECIAL,
    ),
    family("megatron-bert", "MegatronBert", "ForMaskedLM", COMMON),
    family("roformer", "RoFormer", "ForMaskedLM", COMMON),
    family(
        "esm",
        "Esm",
        "ForMaskedLM",
        COMMON,
        pad_token_id=1,
        mask_token_id=4,
        position_embedding_type="rotary",
    ),
    family("nomic_bert", "NomicBert", "Model", COMMON),
    family(
        "convbert",
        "ConvBert",
        "ForMaskedLM",
        COMMON,
        embedding_size=WIDTH,
        head_ratio=2,
        conv_kernel_size=3,
    ),
    family("ibert", "IBert", "ForMaskedLM", COMMON),
    family("layoutlm", "LayoutLM", "ForMaskedLM", COMMON),
]

DECODERS = [
    family("gpt2", "GPT2", "LMHeadModel", GPT2_LIKE, **NO_SPECIAL),
    family("openai-gpt", "OpenAIGPT", "LMHeadModel", GPT2_LIKE, n_ctx=None),
    family("gpt_neox", "GPTNeoX", "ForCausalLM", COMMON, **NO_SPECIAL),
    family("gptj", "GPTJ", "ForCausalLM", GPT2_LIKE, n_ctx=None, rotary_dim=4, **NO_SPECIAL),
    family(
        "gpt_neo",
        "GPTNeo",
        "ForCausalLM",
        COMMON,
        num_attention_heads=None,
        intermediate_size=48,
        num_hidden_layers=None,
        num_layers=LAYERS,
        num_heads=HEADS,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        **NO_SPECIAL,
    ),
    family("gpt_bigcode", "GPTBigCode", "ForCausalLM", GPT2_LIKE, n_ctx=None, **NO_SPECIAL),
    family("codegen", "CodeGen", "ForCausalLM", GPT2_LIKE, rotary_dim=4, **NO_SPECIAL),
    family(
        "opt",
        "OPT",
        "ForCausalLM",
        COMMON,
        ffn_dim=48,
        word_embed_proj_dim=WIDTH,
        intermediate_size=None,
    ),
    family(
        "bloom",
        "Bloom",
        "ForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS},
        **NO_SPECIAL,
    ),
    family(
        "falcon",
        "Falcon",
        "ForCausalLM",
        COMMON,
        intermediate_size=None,
        new_decoder_architecture=True,
        num_kv_heads=2,
        alibi=False,
        **NO_SPECIAL,
    ),
    family(
        "falcon-alibi",
        "Falcon",
        "ForCausalLM",
        COMMON,
        intermediate_size=None,
        alibi=True,
        multi_query=False,
        **NO_SPECIAL,
    ),
    family(
        "mpt",
        "Mpt",
        "ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_seq_len": 64,
        },
    ),
    family("llama", "Llama", "ForCausalLM", COMMON, **GROUPED),
    family("mistral", "Mistral", "ForCausalLM", COMMON, **GROUPED, sliding_window=4),
    family("mixtral", "Mixtral", "ForCausalLM", COMMON, **GROUPED, num_local_experts=2),
    family("qwen2", "Qwen2", "ForCausalLM", COMMON, **GROUPED),
    family("qwen3", "Qwen3", "ForCausalLM", COMMON, **GROUPED, head_dim=8),
    family("gemma", "Gemma", "ForCausalLM", COMMON, num_key_value_heads=1, head_dim=8),
    family(
        "gemma2",
        "Gemma2",
        "ForCausalLM",
        COMMON,
        **GROUPED,
        head_dim=8,
        sliding_window=4,
        query_pre_attn_scalar=8,
    ),
    Family(
        "gemma3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**COMMON, **GROUPED, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8},
    ),
    family("phi", "Phi", "ForCausalLM", COMMON, **NO_SPECIAL),
    family("phi3", "Phi3", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family("olmo", "Olmo", "ForCausalLM", COMMON, **NO_SPECIAL),
    family("olmo2", "Olmo2", "ForCausalLM", COMMON, **NO_SPECIAL),
    family(
        "gpt_oss",
        "GptOss",
        "ForCausalLM",
        COMMON,
        **GROUPED,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=4,
        **NO_SPECIAL,
    ),
    family(
        "deepseek_v3",
        "DeepseekV3",
        "ForCausalLM",
        COMMON,
        num_key_value_heads=4,
        moe_intermediate_size=16,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        q_lora_rank=16,
        kv_lora_rank=8,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
        **NO_SPECIAL,
    ),
    family("stablelm", "StableLm", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family("starcoder2", "Starcoder2", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family("cohere", "Cohere", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family(
        "granite",
        "Granite",
        "ForCausalLM",
        COMMON,
        **GROUPED,
        attention_multiplier=0.3,
        **NO_SPECIAL,
    ),
    family("smollm3", "SmolLM3", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family("glm4", "Glm4", "ForCausalLM", COMMON, **GROUPED, head_dim=8, **NO_SPECIAL),
    family(
        "llama4",
        "Llama4Text",
        "Model",
        COMMON,
        **GROUPED,
        head_dim=8,
        intermediate_size_mlp=48,
        num_local_experts=2,
        **NO_SPECIAL,
    ),
    family("exaone4", "Exaone4", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family(
        "qwen3_next",
        "Qwen3Next",
        "ForCausalLM",
        COMMON,
        **GROUPED,
        head_dim=8,
        num_hidden_layers=4,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
    family(
        "ctrl",
        "CTRL",
        "LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "dff": 48,
            "n_positions": 64,
        },
    ),
    family("doge", "Doge", "ForCausalLM", COMMON, **GROUPED, **NO_SPECIAL),
    family("persimmon", "Persimmon", "ForCausalLM", COMMON, **NO_SPECIAL),
    family("biogpt", "BioGpt", "ForCausalLM", COMMON),
    family(
        "xglm",
        "XGLM",
        "ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "num_layers": LAYERS,
            "attention_heads": HEADS,
            "ffn_dim": 48,
            "max_position_embeddings": 64,
        },
    ),
    family(
        "jamba",
        "Jamba",
        "ForCausalLM",
        COMMON,
        **GROUPED,
        num_hidden_layers=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=2,
        use_mamba_kernels=False,
        mamba_d_state=4,
        mamba_dt_rank=4,
    ),
    family("diffllama", "DiffLlama", "ForCausalLM", COMMON, **GROUPED),
]

ENCODER_DECODERS = [
    family("bart", "Bart", "ForConditionalGeneration", BART_LIKE, **TOKENS),
    family("mbart", "MBart", "ForConditionalGeneration", BART_LIKE, **TOKENS),
    family("pegasus", "Pegasus", "ForConditionalGeneration", BART_LIKE, **TOKENS),
    family("marian", "Marian", "MTModel", BART_LIKE, **TOKENS),
    family("m2m_100", "M2M100", "ForConditionalGeneration", BART_LIKE, **TOKENS),
    family(
        "t5",
        "T5",
        "ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": LAYERS,
            "num_heads": HEADS,
        },
        decoder_start_token_id=0,
    ),
    family(
        "mt5",
        "MT5",
        "ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": LAYERS,
            "num_heads": HEADS,
        },
        decoder_start_token_id=0,
    ),
    family(
        "umt5",
        "UMT5",
        "ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": LAYERS,
            "num_heads": HEADS,
        },
        decoder_start_token_id=0,
    ),
    family(
        "whisper",
        "Whisper",
        "ForConditionalGeneration",
        BART_LIKE,
        max_position_embeddings=None,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=20,
        **TOKENS,
    ),
    family(
        "prophetnet",
        "ProphetNet",
        "ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_encoder_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "num_encoder_attention_heads": HEADS,
            "num_decoder_attention_heads": HEADS,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
        },
    ),
    family("plbart", "PLBart", "ForConditionalGeneration", BART_LIKE, **TOKENS),
    family(
        "switch_transformers",
        "SwitchTransformers",
        "ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "num_heads": HEADS,
            "num_experts": 2,
        },
        decoder_start_token_id=0,
    ),
    family("blenderbot", "Blenderbot", "ForConditionalGeneration", BART_LIKE, **TOKENS),
]

OTHERS = [
    family(
        "vit", "ViT", "Model", COMMON, vocab_size=None, max_position_embeddings=None, **SMALL_IMAGE
    ),
    family(
        "deit",
        "DeiT",
        "Model",
        COMMON,
        vocab_size=None,
        max_position_embeddings=None,
        **SMALL_IMAGE,
    ),
    family(
        "wav2vec2",
        "Wav2Vec2",
        "Model",
        COMMON,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        max_position_embeddings=None,
    ),
    family(
        "clip_vision",
        "CLIPVision",
        "Model",
        COMMON,
        vocab_size=None,
        max_position_embeddings=None,
        **SMALL_IMAGE,
    ),
    family(
        "dinov2",
        "Dinov2",
        "Model",
        COMMON,
        vocab_size=None,
        max_position_embeddings=None,
        intermediate_size=None,
        **SMALL_IMAGE,
    ),
    family("clip_text", "CLIPText", "Model", COMMON, **NO_SPECIAL),
]

SUPPORTED = ENCODERS + DECODERS + ENCODER_DECODERS + OTHERS

REFUSED = [
    family(
        "mamba",
        "Mamba",
        "ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "state_size": 4,
        },
    ),
    family(
        "fnet",
        "FNet",
        "ForMaskedLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "intermediate_size": 48,
            "max_position_embeddings": 64,
        },
    ),
    family(
        "rwkv",
        "Rwkv",
        "ForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "attention_hidden_size": WIDTH,
            "context_length": 64,
        },
    ),
    family("longformer", "Longformer", "ForMaskedLM", COMMON, attention_window=4),
    family(
        "big_bird",
        "BigBird",
        "ForMaskedLM",
        COMMON,
        attention_type="block_sparse",
        block_size=4,
        num_random_blocks=1,
        max_position_embeddings=128,
    ),
    family(
        "led",
        "LED",
        "ForConditionalGeneration",
        BART_LIKE,
        max_position_embeddings=None,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
        attention_window=4,
        **TOKENS,
    ),
    family(
        "longt5",
        "LongT5",
        "ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "local_radius": 3,
        },
        decoder_start_token_id=0,
    ),
    family(
        "funnel",
        "Funnel",
        "ForMaskedLM",
        {
            "vocab_size": VOCABULARY,
            "block_sizes": [1, 1],
            "d_model": WIDTH,
            "n_head": HEADS,
            "d_head": 8,
            "d_inner": 48,
        },
    ),
    family("canine", "Canine", "Model", COMMON),
    family(
        "swin",
        "Swin",
        "Model",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
    ),
]


def build(member: Family) -> PreTrainedModel:
    """A tiny model with weights large enough that its attention is not uniform."""
    config_class = getattr(transformers, member.config)
    config = config_class(**member.settings)
    model_class: Callable[[Any], PreTrainedModel] = getattr(transformers, member.model)
    torch.manual_seed(0)
    model = model_class(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.3, generator=generator)
            elif "bias" in name or "sinks" in name:
                parameter.normal_(0, 0.1, generator=generator)
    return model.eval()
