"""Gradients of a loss with respect to attention weights, ∂L/∂a.

L is the model's own objective, −log p of a named answer, or any scalar of the output. Parameters
are frozen during the pass, so only gradients of activations are computed. Each layer's ∂L/∂a is
passed on as soon as it is computed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional
from transformers.utils.generic import ModelOutput

from headscope.attention import Attention, BlockName, LayerReader
from headscope.errors import InputError, MissingObjective
from headscope.model.collect import to_numpy
from headscope.model.logits import find_answer, label_names
from headscope.model.model import Model
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.interrupts import held
from headscope.model.tap.sites import Site
from headscope.model.tracing import encode_for
from headscope.results.effect_data import Gradients
from headscope.text.tokens import Tokens

NOTHING = -100
"""Label of a position without a prediction, as in PyTorch's cross-entropy."""

Scalar = Callable[[ModelOutput], Tensor]
"""Function of a model's output: one number for each row of the batch, or one for a single row."""
Target = str | int | Scalar


def target_labels(
    model: Model, inputs: Mapping[str, Tensor], is_text: Tensor, target: str | int | None
) -> Tensor:
    """Return the labels of the cross-entropy, aligned with the logits: `document position`.

    For a classifier they are its own predictions, or `target`. For a language model `target` is
    the token after the text, or at its masks. `is_text`, `document position`, is true for tokens
    that are neither padding nor special.
    """
    objective = model.require_objective("A loss")
    answer = None if target is None else find_answer(model, target)
    if objective == "label":
        _check_exclusive(model)
        if answer is not None:
            return torch.full((len(is_text), 1), answer)
    if answer is None:
        assert objective in ("label", "token_label")
        best = model.run(inputs)["logits"].argmax(-1).cpu()
        return best[:, None] if objective == "label" else torch.where(is_text, best, NOTHING)
    if objective == "token_label":
        return torch.where(is_text, answer, NOTHING)
    if objective == "causal":
        last = torch.zeros_like(is_text)
        mask = inputs.get("attention_mask")
        lengths = (torch.ones_like(is_text) if mask is None else mask.cpu()).sum(1)
        last[torch.arange(len(is_text)), lengths - 1] = True
        return torch.where(last, answer, NOTHING)
    masks = inputs["input_ids"].cpu() == model.require_tokenizer().mask_token_id
    if not masks.any(1).all():
        raise InputError(
            f"{model.name} predicts tokens at its mask token "
            f"({model.require_tokenizer().mask_token}), and a text lacks it: write it where "
            f"{target!r} should stand."
        )
    return torch.where(masks, answer, NOTHING)


def check_loss_target(model: Model, target: str | int | None, scalar: str | None) -> None:
    """Raise InputError or MissingObjective for an unsuitable target, before the model runs."""
    if scalar is not None:
        return
    objective = model.require_objective("A loss")
    if objective == "label":
        _check_exclusive(model)
    if target is not None and objective == "seq2seq":
        raise InputError(
            f"{model.name} is an encoder-decoder: its decoder reads each document's "
            f"meta['target'], so target={target!r} cannot be used."
        )
    if target is not None:
        find_answer(model, target)


def _check_exclusive(model: Model) -> None:
    config = model.module.config
    if len(label_names(config)) < 2 or config.problem_type == "multi_label_classification":
        prediction = config.problem_type or "a single score"
        raise MissingObjective(
            f"{model.name} predicts {prediction}, which has no cross-entropy. Give a function of "
            "its output: target=lambda output: output.logits[:, 0]."
        )


def scalar_values(scalar: Scalar, outputs: ModelOutput, n_rows: int) -> Tensor:
    """Return a user's scalar for each document, checked."""
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
    """Return `module:function`, by which workers and resumed runs import a function."""
    name = f"{getattr(scalar, '__module__', '?')}:{getattr(scalar, '__qualname__', '?')}"
    with suppress(ImportError, AttributeError, ValueError):
        if import_scalar(name) is scalar:
            return name
    raise InputError(
        f"The target function {name} cannot be imported again, which a run over a corpus needs "
        "(workers, resuming). Define it at the top of a module."
    )


def import_scalar(name: str) -> Scalar:
    """Import the function that `name_scalar` named."""
    module, _, path = name.partition(":")
    function: Scalar = attrgetter(path)(importlib.import_module(module))
    return function


MASKED_SHARE = 0.15


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs:
    """Inputs of one row and labels of a loss (`1 position`, -100 without a prediction). `predicted`
    are positions in the predicting stack; `scalar` replaces the cross-entropy.
    """

    inputs: Mapping[str, Tensor]
    labels: Tensor
    predicted: tuple[int, ...]
    stack_tokens: Mapping[str, Tokens]
    scalar: Scalar | None = None


def gradients_of_text(
    model: Model, text: str, pair: str | None, *, target: Target | None, seed: int, truncate: bool
) -> Gradients:
    """See `Model.gradients`."""
    objective = "scalar" if callable(target) else model.require_objective("A gradient of the loss")
    loss_inputs = make_loss_inputs(model, text, pair, target=target, seed=seed, truncate=truncate)
    by_layer: dict[BlockName, dict[int, np.ndarray]] = {}

    def keep(site: Site, gradient: Tensor) -> None:
        by_layer.setdefault(site.block, {})[site.layer] = to_numpy(gradient[0])

    loss = backward(model, loss_inputs, keep)
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
    return Gradients(loss, blocks, loss_inputs.stack_tokens, loss_inputs.predicted, about)


def make_loss_inputs(
    model: Model,
    text: str,
    pair: str | None = None,
    *,
    target: Target | None = None,
    seed: int = 0,
    truncate: bool = True,
) -> LossInputs:
    """Make the inputs of a loss: the model's own objective, a named answer, or any scalar."""
    decoder_text = None
    if "decoder" in model.info.blocks:
        if target is not None and not isinstance(target, str):
            raise InputError(
                f"{model.name} is an encoder-decoder: its target is the text that its decoder "
                f"reads, not {type(target).__name__}."
            )
        decoder_text = target
    encoded, stacks, inputs = encode_for(model, text, pair, target=decoder_text, truncate=truncate)
    if callable(target):
        return LossInputs(inputs, torch.zeros((1, 0), dtype=torch.long), (), stacks, target)
    objective = model.require_objective("A loss")
    if objective in ("label", "token_label") or (target is not None and decoder_text is None):
        is_text = ~torch.tensor([encoded.tokens.special])
        labels = target_labels(model, inputs, is_text, target)
        predicted = [] if objective == "label" else (labels[0] != NOTHING).nonzero()[:, 0].tolist()
        return LossInputs(inputs, labels, tuple(predicted), stacks)
    if objective == "masked":
        tokens = encoded.tokens
        chosen = choose_masked([i for i, special in enumerate(tokens.special) if not special], seed)
        ids, labels = mask_tokens(model, inputs["input_ids"], [chosen])
        shown = list(tokens.tokens)
        for i in chosen:
            shown[i] = str(model.require_tokenizer().mask_token)
        seen = replace(tokens, tokens=tuple(shown), ids=tuple(ids[0].tolist()))
        return LossInputs({**inputs, "input_ids": ids}, labels, tuple(chosen), {"self": seen})
    stack = "decoder" if objective == "seq2seq" else "self"
    ids = torch.tensor([stacks[stack].ids])
    if ids.shape[1] < 2:
        raise InputError("One token has no next token to predict. Give a longer text.")
    # The logits at a position predict the next token.
    labels = torch.cat([ids[:, 1:], torch.full((1, 1), NOTHING)], dim=1)
    return LossInputs(inputs, labels, tuple(range(1, ids.shape[1])), stacks)


def choose_masked(candidates: Sequence[int], seed: int | Sequence[int]) -> list[int]:
    """Choose 15 % of the candidate positions by the seed, at least one."""
    n = max(1, round(MASKED_SHARE * len(candidates)))
    return sorted(np.random.default_rng(seed).choice(candidates, n, replace=False).tolist())


def mask_tokens(
    model: Model, ids: Tensor, chosen: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """Replace each row's chosen positions by the mask token; return ids and labels."""
    mask_id = model.require_tokenizer().mask_token_id
    if mask_id is None:
        raise InputError(f"The tokenizer of {model.name} has no mask token.")
    masked, labels = ids.clone(), torch.full_like(ids, NOTHING)
    for row, positions in enumerate(chosen):
        labels[row, positions] = ids[row, positions]
        masked[row, positions] = mask_id
    return masked, labels


def backward(
    model: Model, loss_inputs: LossInputs, on_gradient: Callable[[Site, Tensor], None]
) -> float:
    """Run forward and backward, pass on each layer's ∂L/∂a, last layer first; return the loss."""
    attachment = Attachment(on_gradient=on_gradient, returns_weights=False)
    require_gradients(model)
    with torch.enable_grad(), model.attached(attachment), frozen(model.module):
        loss = loss_of(model.module(**model.to_device(loss_inputs.inputs)), loss_inputs)
        loss.backward()
    return loss.item()


@contextmanager
def with_loss(
    model: Model,
    inputs: Mapping[str, Tensor],
    labels: Tensor,
    scalar: Scalar | None = None,
    *,
    rows: int | None = None,
    layers: frozenset[int] | None = None,
) -> Iterator[tuple[np.ndarray, Callable[[LayerReader], None]]]:
    """Run a batch forward; within the block, provide its losses and a function to run backward.

    `labels` are as in `LossInputs`, `document position`; `scalar` replaces the cross-entropies.
    With `rows`, weights are computed again in the backward pass, and read in blocks of rows.
    `layers` are the only ones to read.

    Yields:
        `document 2`, the sum of each document's cross-entropies and their number; and a function
        that passes each layer's attention to a reader with its `gradients`, last layer first.
        The loss is the sum over documents of each one's mean, so a document's gradients do not
        depend on its batch.
    """
    kept: dict[tuple[BlockName, int], Attention] = {}
    readers: list[LayerReader] = []

    def keep(attention: Attention) -> None:
        alone = replace(attention.without_vectors(), weights=attention.weights.detach())
        kept[attention.block, attention.layer] = alone

    def read_gradient(site: Site, gradient: Tensor) -> None:
        if layers is None or site.layer in layers:
            read(replace(kept.pop((site.block, site.layer)), gradients=gradient))

    def read(attention: Attention) -> None:
        for reader in readers:
            reader(attention)

    attachment = Attachment(read, rows=rows, layers=layers, takes_gradients=True)
    if rows is None:
        attachment = Attachment(keep, on_gradient=read_gradient, layers=layers)
    attachment = replace(attachment, returns_weights=False)
    require_gradients(model)
    with torch.enable_grad(), model.attached(attachment), frozen(model.module):
        losses = measure_losses(model.module(**model.to_device(inputs)), labels, scalar)

        def run(reader: LayerReader) -> None:
            readers.append(reader)
            (losses[:, 0] / losses[:, 1].clamp_min(1)).sum().backward()

        yield losses.detach().double().cpu().numpy(), run


def measure_losses(outputs: ModelOutput, labels: Tensor, scalar: Scalar | None) -> Tensor:
    """Return sum and number of each document's losses, `document 2`; a user's scalar is one."""
    if scalar is None:
        return losses_of(outputs["logits"], labels)
    values = scalar_values(scalar, outputs, len(labels))
    return torch.stack((values, torch.ones_like(values)), dim=-1)


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of cross-entropies in nats and their number: `document 2`."""
    labels = labels.to(logits.device)
    logits = logits if logits.ndim == 3 else logits[:, None]  # one label for the whole text
    is_predicted = labels != NOTHING
    # Only what is predicted: an encoder's masked tokens are few, and vocabularies large.
    losses = functional.cross_entropy(logits[is_predicted], labels[is_predicted], reduction="none")
    sums = torch.zeros(len(labels), dtype=losses.dtype, device=losses.device)
    sums = sums.index_add(0, is_predicted.nonzero()[:, 0], losses)
    return torch.stack((sums, is_predicted.sum(1).to(losses)), dim=-1)


def loss_of(outputs: ModelOutput, loss_inputs: LossInputs) -> Tensor:
    """Return the mean cross-entropy of the predicted answers, in nats, or the user's scalar."""
    if loss_inputs.scalar is not None:
        return scalar_values(loss_inputs.scalar, outputs, 1)[0]
    logits: Tensor = outputs["logits"]
    labels, rows = loss_inputs.labels.to(logits.device), logits.reshape(-1, logits.shape[-1])
    return functional.cross_entropy(rows, labels.flatten(), ignore_index=NOTHING)


def require_gradients(model: Model) -> None:
    """Raise InputError under `torch.inference_mode`, and for weights that were loaded under it."""
    is_inference = any(p.is_inference() for p in model.module.parameters())
    if is_inference or torch.is_inference_mode_enabled():
        raise InputError(
            "Gradients cannot be computed under torch.inference_mode(), or with weights that were "
            "loaded under it. Load the model and call headscope outside of that block; "
            "torch.no_grad() is fine."
        )


@contextmanager
@held
def frozen(module: torch.nn.Module) -> Iterator[None]:
    """Within the block, parameters require no gradient."""
    trained = [p for p in module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
