"""What a loss is about: the model's own objective, an answer that someone names, or any scalar."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.errors import InputError, MissingObjective
from headscope.model.answers import find_answer, label_names
from headscope.model.model import Model

NOTHING = -100
"""Label of a position that predicts nothing, as PyTorch's cross-entropy has it."""

Scalar = Callable[[ModelOutput], Tensor]
"""A function of a model's output: one number for each row of the batch, or one for a single row."""
Target = str | int | Scalar


def aim_labels(
    model: Model,
    inputs: Mapping[str, Tensor],
    is_text: Tensor,
    target: str | int | None,
) -> Tensor:
    """`document position`: the answers whose cross-entropy is the loss, in step with the logits.

    For a classifier the labels it predicts itself, or `target`. For a language model `target` is
    the token after the text, or at its masks.

    Args:
        model: with a head that predicts.
        inputs: padded.
        is_text: `document position`, true for tokens that are neither padding nor special.
        target: a label or a token.
    """
    objective = model.need_objective("A loss")
    answer = None if target is None else find_answer(model, target)
    if objective == "label":
        _check_exclusive(model)
        if answer is not None:
            return torch.full((len(is_text), 1), answer)
        return _logits(model, inputs).argmax(-1, keepdim=True).cpu()
    if objective == "token_label":
        if answer is not None:
            return torch.where(is_text, answer, NOTHING)
        return torch.where(is_text, _logits(model, inputs).argmax(-1).cpu(), NOTHING)
    assert answer is not None
    if objective == "causal":
        last = torch.zeros_like(is_text)
        mask = inputs.get("attention_mask")
        lengths = (
            torch.full((len(is_text),), is_text.shape[1]) if mask is None else mask.sum(1).cpu()
        )
        last[torch.arange(len(is_text)), lengths - 1] = True
        return torch.where(last, answer, NOTHING)
    masks = inputs["input_ids"].cpu() == model.need_tokenizer().mask_token_id
    if not masks.any(1).all():
        raise InputError(
            f"{model.name} predicts tokens at its mask token "
            f"({model.need_tokenizer().mask_token}), and a text has none: write it where "
            f"{target!r} should stand."
        )
    return torch.where(masks, answer, NOTHING)


def check_aim(model: Model, target: str | int | None, scalar: str | None) -> None:
    """Refuse what cannot be asked of the model, before anything runs."""
    if scalar is not None:
        return
    objective = model.need_objective("A loss")
    if objective == "label":
        _check_exclusive(model)
    if target is not None and objective == "seq2seq":
        raise InputError(
            f"{model.name} is an encoder-decoder: what its decoder reads is each document's "
            f"meta['target'], so target={target!r} says nothing."
        )
    if target is not None:
        find_answer(model, target)


def _check_exclusive(model: Model) -> None:
    """A cross-entropy is about labels of which one is right."""
    config = model.module.config
    if len(label_names(config)) < 2 or config.problem_type == "multi_label_classification":
        what = config.problem_type or "a single score"
        raise MissingObjective(
            f"{model.name} predicts {what}, which has no cross-entropy. Give a function of its "
            "output: target=lambda output: output.logits[:, 0]."
        )


def _logits(model: Model, inputs: Mapping[str, Tensor]) -> Tensor:
    with torch.inference_mode(), model.tapped(returns_weights=False):
        logits: Tensor = model.module(**model.placed(inputs)).logits
    return logits


def scalar_values(scalar: Scalar, outputs: ModelOutput, n_rows: int) -> Tensor:
    """`document`: what a user's function makes of the model's output, checked."""
    values = scalar(outputs)
    if not isinstance(values, Tensor) or not values.is_floating_point():
        raise InputError(
            f"The target function returned {type(values).__name__}; expected a tensor of real "
            "numbers, one for each row of the batch (lambda output: output.logits[:, 0])."
        )
    values = values.reshape(-1)
    if len(values) != n_rows:
        raise InputError(
            f"The target function returned {len(values)} numbers for {n_rows} rows; expected one "
            "for each row of the batch."
        )
    return values


def name_scalar(scalar: Scalar) -> str:
    """`module:function`, by which workers and resumed runs find a function again."""
    name = f"{getattr(scalar, '__module__', '?')}:{getattr(scalar, '__qualname__', '?')}"
    try:
        is_there = import_scalar(name) is scalar
    except (ImportError, AttributeError, ValueError):
        is_there = False
    if not is_there:
        raise InputError(
            f"The target function {name} cannot be imported again, which a run over a corpus "
            "needs (workers, resuming). Define it at the top of a module."
        )
    return name


def import_scalar(name: str) -> Scalar:
    """The function that `name_scalar` named."""
    module, _, path = name.partition(":")
    function: Scalar = importlib.import_module(module)  # type: ignore[assignment]
    for part in path.split("."):
        function = getattr(function, part)
    return function
