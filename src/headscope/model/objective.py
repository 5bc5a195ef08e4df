"""How the loss depends on each attention weight: ∂L/∂a with the model's own objective, or of any
scalar that someone gives.

The parameters are frozen for the pass, so the backward computes no gradient but those of
activations, and each layer's ∂L/∂a is handed over as soon as it is known.

What a loss is about: the model's own objective, an answer that someone names, or any scalar.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional
from transformers.utils.generic import ModelOutput

from headscope.attention import Attention, LayerReader
from headscope.errors import InputError, MissingObjective
from headscope.model.collect import to_numpy
from headscope.model.logits import find_answer, label_names
from headscope.model.model import Model
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.sites import Site
from headscope.model.tracing import encode_for
from headscope.results.effect_data import Gradients
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from headscope.attention import BlockName

NOTHING = -100
"""Label of a position that predicts nothing, as PyTorch's cross-entropy has it."""

Scalar = Callable[[ModelOutput], Tensor]
"""A function of a model's output: one number for each row of the batch, or one for a single row."""
Target = str | int | Scalar


def target_labels(
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
    objective = model.require_objective("A loss")
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
    masks = inputs["input_ids"].cpu() == model.require_tokenizer().mask_token_id
    if not masks.any(1).all():
        raise InputError(
            f"{model.name} predicts tokens at its mask token "
            f"({model.require_tokenizer().mask_token}), and a text has none: write it where "
            f"{target!r} should stand."
        )
    return torch.where(masks, answer, NOTHING)


def check_loss_target(model: Model, target: str | int | None, scalar: str | None) -> None:
    """Refuse what cannot be asked of the model, before anything runs."""
    if scalar is not None:
        return
    objective = model.require_objective("A loss")
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
        logits: Tensor = model.module(**model.to_device(inputs)).logits
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


MASKED_SHARE = 0.15


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs:
    """What the model is asked to predict: inputs, and for each position the right token.

    Attributes:
        inputs: of one row, as the model takes them.
        labels: `1 position`, -100 where nothing is predicted; in step with the logits.
        predicted: positions of the predicted tokens in the predicting stack.
        stack_tokens: the tokens as the model sees them.
        scalar: a user's function of the output, instead of the cross-entropy of `labels`.
    """

    inputs: Mapping[str, Tensor]
    labels: Tensor
    predicted: tuple[int, ...]
    stack_tokens: Mapping[str, Tokens]
    scalar: Scalar | None = None


def gradients_of_text(
    model: Model,
    text: str,
    pair: str | None,
    *,
    target: Target | None,
    seed: int,
    truncate: bool,
) -> Gradients:
    """See `Model.gradients`."""
    objective = "scalar" if callable(target) else model.require_objective("A gradient of the loss")
    question = make_loss_inputs(model, text, pair, target=target, seed=seed, truncate=truncate)
    by_layer: dict[BlockName, dict[int, np.ndarray]] = {}

    def keep(site: Site, gradient: Tensor) -> None:
        by_layer.setdefault(site.block, {})[site.layer] = to_numpy(gradient[0])

    loss = backward(model, question, keep)
    blocks: dict[str, xr.DataArray] = {
        block: xr.DataArray(
            np.stack([by_layer[block][layer] for layer in sorted(by_layer[block])]),
            dims=("layer", "head", "query", "key"),
            coords={"layer": sorted(by_layer[block])},
        )
        for block in model.wiring.blocks
        if block in by_layer
    }
    about = {"model": model.name, "objective": objective, "seed": seed}
    if target is not None:
        about["target"] = getattr(target, "__name__", "?") if callable(target) else target
    return Gradients(loss, blocks, question.stack_tokens, question.predicted, about)


def make_loss_inputs(
    model: Model,
    text: str,
    pair: str | None = None,
    *,
    target: Target | None = None,
    seed: int = 0,
    truncate: bool = True,
) -> LossInputs:
    """The question about a text: the model's own objective, a named answer, or any scalar."""
    read = _read_by_decoder(model, target)
    encoded, stacks, inputs = encode_for(
        model, text, pair, target=read, generate=0, truncate=truncate
    )
    if callable(target):
        return LossInputs(inputs, torch.zeros((1, 0), dtype=torch.long), (), stacks, target)
    objective = model.require_objective("A loss")
    if objective in ("label", "token_label") or (target is not None and read is None):
        is_text = ~torch.tensor([encoded.tokens.special])
        labels = target_labels(model, inputs, is_text, target)
        predicted = [] if objective == "label" else (labels[0] != NOTHING).nonzero()[:, 0].tolist()
        return LossInputs(inputs, labels, tuple(predicted), stacks)
    if objective == "masked":
        return _masked(model, encoded.tokens, inputs, seed)
    stack = "decoder" if objective == "seq2seq" else "self"
    ids = torch.tensor([stacks[stack].ids])
    if ids.shape[1] < 2:
        raise InputError("One token has no next token to predict. Give a longer text.")
    # The logits at a position are about the token after it.
    labels = torch.cat([ids[:, 1:], torch.full((1, 1), NOTHING)], dim=1)
    return LossInputs(inputs, labels, tuple(range(1, ids.shape[1])), stacks)


def _read_by_decoder(model: Model, target: Target | None) -> str | None:
    """The target of an encoder-decoder is the text that its decoder reads."""
    if "decoder" not in model.info.blocks:
        return None
    if target is not None and not isinstance(target, str):
        raise InputError(
            f"{model.name} is an encoder-decoder: its target is the text that its decoder reads, "
            f"not {type(target).__name__}."
        )
    return target


def _masked(model: Model, tokens: Tokens, inputs: dict[str, Tensor], seed: int) -> LossInputs:
    """The text with some of its tokens masked, and those as the labels."""
    chosen = choose_masked([i for i, special in enumerate(tokens.special) if not special], seed)
    ids, labels = mask_tokens(model, inputs["input_ids"], [chosen])
    shown = list(tokens.tokens)
    for i in chosen:
        shown[i] = str(model.require_tokenizer().mask_token)
    seen = replace(tokens, tokens=tuple(shown), ids=tuple(int(x) for x in ids[0]))
    return LossInputs({**inputs, "input_ids": ids}, labels, tuple(chosen), {"self": seen})


def choose_masked(candidates: Sequence[int], seed: int | Sequence[int]) -> list[int]:
    """15 % of the candidate positions, at least one; which ones, the seed decides."""
    n = max(1, round(MASKED_SHARE * len(candidates)))
    return sorted(np.random.default_rng(seed).choice(candidates, n, replace=False).tolist())


def mask_tokens(
    model: Model, ids: Tensor, chosen: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """`row position`: ids with the mask token at each row's chosen positions, and labels
    with the tokens that stood there.
    """
    mask_id = model.require_tokenizer().mask_token_id
    if mask_id is None:
        raise InputError(f"The tokenizer of {model.name} has no mask token.")
    masked, labels = ids.clone(), torch.full_like(ids, NOTHING)
    for row, positions in enumerate(chosen):
        labels[row, positions] = ids[row, positions]
        masked[row, positions] = mask_id
    return masked, labels


def backward(
    model: Model, question: LossInputs, on_gradient: Callable[[Site, Tensor], None]
) -> float:
    """Run forward and backward; hand over each layer's ∂L/∂a, last layer first.

    Returns the loss.
    """
    tap = Attachment(on_gradient=on_gradient, returns_weights=False)
    with torch.enable_grad(), model.attached(tap), frozen(model.module):
        loss = loss_of(model.module(**model.to_device(question.inputs)), question)
        loss.backward()
    return loss.item()


@contextmanager
def with_loss(
    model: Model, inputs: Mapping[str, Tensor], labels: Tensor, scalar: Scalar | None = None
) -> Iterator[tuple[np.ndarray, Callable[[LayerReader], None]]]:
    """Run forward over a batch; within the block, its losses and a way to run backward.

    Args:
        model: with a head that predicts.
        inputs: padded.
        labels: `document position`, -100 where nothing is predicted; in step with the logits.
        scalar: a function of the output to take instead of the cross-entropies.

    Yields:
        `document 2`, the sum of each document's cross-entropies and their number; and a
        function that hands each layer's attention to a reader with its `gradients`, last
        layer first. The loss is the sum over documents of each one's mean, so a document's
        gradients do not depend on its batch.
    """
    kept: dict[tuple[BlockName, int], Attention] = {}
    readers: list[LayerReader] = []

    def keep(attention: Attention) -> None:
        kept[attention.block, attention.layer] = replace(
            attention.without_vectors(), weights=attention.weights.detach()
        )

    def hear(site: Site, gradient: Tensor) -> None:
        attention = replace(kept.pop((site.block, site.layer)), gradients=gradient)
        for reader in readers:
            reader(attention)

    tap = Attachment(reader=keep, on_gradient=hear, returns_weights=False)
    with torch.enable_grad(), model.attached(tap), frozen(model.module):
        losses = measure_losses(model.module(**model.to_device(inputs)), labels, scalar)

        def run(reader: LayerReader) -> None:
            readers.append(reader)
            (losses[:, 0] / losses[:, 1].clamp_min(1)).sum().backward()

        yield losses.detach().double().cpu().numpy(), run


def measure_losses(outputs: ModelOutput, labels: Tensor, scalar: Scalar | None) -> Tensor:
    """`document 2`: the sum of a document's losses, and of how many; a user's scalar counts as
    one.
    """
    if scalar is None:
        return losses_of(outputs["logits"], labels)
    values = scalar_values(scalar, outputs, len(labels))
    return torch.stack((values, torch.ones_like(values)), dim=-1)


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """`document 2`: the sum of cross-entropies in nats, and of how many tokens."""
    labels = labels.to(logits.device)
    logits = logits if logits.ndim == 3 else logits[:, None]  # one label for the whole text
    is_predicted = labels != NOTHING
    # Only what is predicted: an encoder's masked tokens are few, and vocabularies large.
    losses = functional.cross_entropy(logits[is_predicted], labels[is_predicted], reduction="none")
    sums = torch.zeros(len(labels), dtype=losses.dtype, device=losses.device)
    sums = sums.index_add(0, is_predicted.nonzero()[:, 0], losses)
    return torch.stack((sums, is_predicted.sum(1).to(losses)), dim=-1)


def loss_of(outputs: ModelOutput, question: LossInputs) -> Tensor:
    """Mean cross-entropy, in nats, of the predicted answers; or the user's scalar."""
    if question.scalar is not None:
        return scalar_values(question.scalar, outputs, 1)[0]
    logits: Tensor = outputs["logits"]
    labels, rows = question.labels.to(logits.device), logits.reshape(-1, logits.shape[-1])
    return functional.cross_entropy(rows, labels.flatten(), ignore_index=NOTHING)


@contextmanager
def frozen(module: torch.nn.Module) -> Iterator[None]:
    """Parameters ask for no gradient within the block."""
    trained = [p for p in module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
