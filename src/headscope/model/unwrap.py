"""The transformers model inside what people wrap around one."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscope.errors import InputError


def unwrap(source: object) -> tuple[object, PreTrainedTokenizerBase | None]:
    """The model inside a wrapper, and the tokenizer that came with it; anything else as it is.

    A transformers pipeline, a compiled model (`torch.compile`), a parallel one, a PEFT model
    (its adapters stay at work in the layers of the model), a SentenceTransformer (the
    Transformer it pools over). The model is not copied: what is inside is used as it is.
    """
    tokenizer: PreTrainedTokenizerBase | None = None
    while not isinstance(source, PreTrainedModel):
        inner = _inside(source)
        if inner is None:
            return source, tokenizer
        tokenizer = tokenizer or _tokenizer(source)
        source = inner
    _check_not_compiled(source)
    return source, tokenizer


def _check_not_compiled(module: PreTrainedModel) -> None:
    """Refuse code that was compiled in place: it would not pass through the tap."""
    for name, part in module.named_modules():
        if part._compiled_call_impl is not None or hasattr(
            part.forward, "_torchdynamo_orig_callable"
        ):
            raise InputError(
                f"{name or type(module).__name__} was compiled in place (module.compile() or "
                "module.forward = torch.compile(…)), so its attention runs where it cannot be "
                "read. Load the model before compiling it, or wrap it: torch.compile(model)."
            )


def _inside(source: object) -> object | None:
    """What a wrapper holds, by what it offers: none of these libraries is needed to ask."""
    from transformers import Pipeline  # takes its time, and few models come in one

    if isinstance(source, Pipeline):
        return source.model
    if not isinstance(source, nn.Module):
        return None
    get_base_model = getattr(source, "get_base_model", None)
    if get_base_model is not None:  # peft.PeftModel
        _check_adapter(source)
        base: object = get_base_model()
        return base
    for name in ("_orig_mod", "module", "auto_model"):  # compiled, parallel, sentence_transformers
        inner = getattr(source, name, None)
        if isinstance(inner, nn.Module):
            return inner
    if isinstance(source, nn.Sequential) and len(source):  # a SentenceTransformer's first module
        first = source[0]
        return first if isinstance(getattr(first, "auto_model", None), nn.Module) else None
    return None


def _check_adapter(source: object) -> None:
    config = getattr(source, "active_peft_config", None)
    if getattr(config, "is_prompt_learning", False):
        raise InputError(
            f"{type(source).__name__} puts learned tokens before every text "
            f"({type(config).__name__}), which the model inside does not do by itself. Load "
            "adapters that change weights (LoRA and its kin), or the model without them."
        )


def _tokenizer(source: object) -> PreTrainedTokenizerBase | None:
    for owner in (source, getattr(source, "processor", None)):
        tokenizer = getattr(owner, "tokenizer", None)
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            return tokenizer
    return None
