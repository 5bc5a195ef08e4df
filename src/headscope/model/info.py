"""Properties of a model: its shape, its objective, and the route of its tap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto import modeling_auto

from headscope.attention import BlockName
from headscope.model.tap.check import Check
from headscope.model.tap.sites import Route
from headscope.model.tapped import Wired

if TYPE_CHECKING:
    from headscope.model.model import Model

SEQ2SEQ_TASKS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
MASKED_TASKS = ("MASKED_LM",)
CAUSAL_TASKS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
LABEL_TASKS = ("SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION")
"""Tasks of model classes, as transformers calls them."""
Objective = Literal["causal", "masked", "seq2seq", "label", "token_label"]
"""Prediction of the model: the next token, masked tokens, a target text, or labels of the text or
of each token."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Properties of a model. Counts come from its real attention, not its configuration."""

    name: str
    family: str
    """transformers' `model_type`."""
    architecture: str
    """Loaded class."""
    source: str
    n_layers: int
    """Layers with attention in the main block."""
    n_heads: int
    """Query heads per layer (maximum over layers)."""
    n_groups: int | None
    """Key/value heads per layer (maximum over layers); fewer than `n_heads` with grouped
    queries."""
    head_size: int | None
    blocks: tuple[BlockName, ...]
    is_causal: bool
    """True if tokens of the main block attend only to themselves and earlier tokens."""
    has_lm_head: bool
    """True if the weights include a language-model head."""
    objective: Objective | None
    max_length: int | None
    n_parameters: int
    dtype: str
    device: str
    route: Route
    check: Check
    has_vectors: bool
    """True if queries and keys are readable."""
    notes: tuple[str, ...]


def describe(model: Model, wired: Wired, source: str, notes: tuple[str, ...]) -> ModelInfo:
    """Collect the properties of a wired model."""
    module, (wiring, check, _) = model.module, wired
    main = wiring.of_block(wiring.main_block())
    is_causal = wiring.main_block() in wiring.causal_blocks
    if check.unread:
        shown = ", ".join(check.unread[:3]) + (" …" if len(check.unread) > 3 else "")
        notes += (
            f"{len(check.unread)} modules take a softmax that is in no reference map and is not "
            f"read: {shown}",
        )
    if check.depends_on_cache:
        notes += ("its attention depends on use_cache: it is read without a cache",)
    return ModelInfo(
        name=model.name,
        family=module.config.model_type,
        architecture=type(module).__name__,
        source=source,
        n_layers=len(main),
        n_heads=max(site.n_heads for site in main),
        n_groups=max((site.n_groups for site in main if site.n_groups), default=None),
        head_size=main[0].head_size,
        blocks=wiring.blocks,
        is_causal=is_causal,
        has_lm_head=is_language_model(module),
        objective=_objective(module, is_causal),
        max_length=_max_length(module, model.tokenizer),
        n_parameters=_n_parameters(module),
        dtype=str(module.dtype).removeprefix("torch."),
        device=str(module.device),
        route=wiring.route,
        check=check,
        has_vectors=all(site.head_size is not None for site in main),
        notes=notes,
    )


def model_facts(
    module: PreTrainedModel, source: str, info: ModelInfo | None
) -> list[tuple[str, object]]:
    """Return the rows of a notebook's table; `info` is None before the self-check."""
    facts: list[tuple[str, object]] = [
        ("class", type(module).__name__),
        ("source", source),
        ("parameters", _n_parameters(module)),
        ("runs on", f"{module.device}, {str(module.dtype).removeprefix('torch.')}"),
    ]
    if info is None:
        return [*facts, ("attention", "not read yet: model.info runs the self-check")]
    has_groups = info.n_groups is not None and info.n_groups < info.n_heads
    attention = f"{info.n_layers} layers × {info.n_heads} heads"
    attention += f" ({info.n_groups} key/value groups)" if has_groups else ""
    attention += ", causal" if info.is_causal else ", bidirectional"
    return [
        *facts,
        ("attention", attention),
        ("blocks", ", ".join(info.blocks)),
        ("objective", info.objective or "none (no head that predicts)"),
        ("length", f"up to {info.max_length:,} tokens" if info.max_length else None),
        ("self-check", str(info.check)),
        *(("note", note) for note in info.notes),
    ]


def _n_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _objective(module: nn.Module, is_causal: bool) -> Objective | None:
    """Return the objective of a model class; None without a head that predicts. A class may have
    several objectives (BERT can be a decoder), so observed causality decides.
    """
    if _is_for(module, *SEQ2SEQ_TASKS):
        return "seq2seq"
    if is_language_model(module):
        if is_causal:
            return "causal" if _is_for(module, *CAUSAL_TASKS) else None
        return "masked" if _is_for(module, *MASKED_TASKS) else None
    if _is_for(module, "TOKEN_CLASSIFICATION"):
        return "token_label"
    return "label" if _is_for(module, *LABEL_TASKS) else None


def is_language_model(module: nn.Module) -> bool:
    """True if the model's class has a language-model head."""
    return _is_for(module, *SEQ2SEQ_TASKS, *MASKED_TASKS, *CAUSAL_TASKS)


def _is_for(module: nn.Module, *tasks: str) -> bool:
    """True if transformers lists the model's class under one of these tasks."""
    return any(
        type(module).__name__ in ([names] if isinstance(names, str) else names)
        for task in tasks
        for names in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").values()
    )


def _max_length(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> int | None:
    """Return the maximum number of tokens: the smallest limit in configuration and tokenizer."""
    config = module.config.get_text_config()
    limits = [
        getattr(config, name, None)
        for name in ("max_position_embeddings", "n_positions", "max_source_positions")
    ]
    for table in module.modules():
        # RoBERTa and related families count positions from padding_idx + 1.
        if isinstance(table, nn.Embedding) and table.padding_idx and table.num_embeddings in limits:
            limits.append(table.num_embeddings - table.padding_idx - 1)
    if tokenizer is not None:
        limits.append(getattr(tokenizer, "model_max_length", None))
    stated = [n for n in limits if isinstance(n, int) and 0 < n < 10**7]
    return min(stated, default=None)
