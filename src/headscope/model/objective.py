"""How the loss depends on each attention weight: ∂L/∂a with the model's own objective.

The parameters are frozen for the pass, so the backward computes no gradient but those of
activations, and each layer's ∂L/∂a is handed over as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional

from headscope.attention import Attention, LayerReader
from headscope.errors import InputError
from headscope.model.collect import to_numpy
from headscope.model.tap.attachment import Attachment
from headscope.model.tap.sites import Site
from headscope.model.tracing import encode_for
from headscope.results.text_gradients import Gradients
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from headscope.attention import Block
    from headscope.model.model import Model

MASKED_SHARE = 0.15
NOTHING = -100
"""Label of a position that predicts nothing, as PyTorch's cross-entropy has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What the model is asked to predict: inputs, and for each position the right token.

    Attributes:
        inputs: of one row, as the model takes them.
        labels: `1 position`, -100 where nothing is predicted; in step with the logits.
        predicted: positions of the predicted tokens in the predicting stack.
        stack_tokens: the tokens as the model sees them.
    """

    inputs: Mapping[str, Tensor]
    labels: Tensor
    predicted: tuple[int, ...]
    stack_tokens: Mapping[str, Tokens]


def gradients_of_text(
    model: Model,
    text: str,
    pair: str | None,
    *,
    target: str | None,
    seed: int,
    truncate: bool,
) -> Gradients:
    """See `Model.gradients`."""
    objective = model.need_objective("A gradient of the loss")
    question = ask(model, text, pair, target=target, seed=seed, truncate=truncate)
    by_layer: dict[Block, dict[int, np.ndarray]] = {}

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
    return Gradients(loss, blocks, question.stack_tokens, question.predicted, about)


def ask(
    model: Model,
    text: str,
    pair: str | None = None,
    *,
    target: str | None = None,
    seed: int = 0,
    truncate: bool = True,
) -> Question:
    """The question the model's own objective puts to it about a text."""
    objective = model.need_objective("A loss")
    encoded, stacks, inputs = encode_for(
        model, text, pair, target=target, generate=0, truncate=truncate
    )
    if objective == "masked":
        return _masked(model, encoded.tokens, inputs, seed)
    stack = "decoder" if objective == "seq2seq" else "self"
    ids = torch.tensor([stacks[stack].ids])
    if ids.shape[1] < 2:
        raise InputError("One token has no next token to predict. Give a longer text.")
    # The logits at a position are about the token after it.
    labels = torch.cat([ids[:, 1:], torch.full((1, 1), NOTHING)], dim=1)
    return Question(inputs, labels, tuple(range(1, ids.shape[1])), stacks)


def _masked(model: Model, tokens: Tokens, inputs: dict[str, Tensor], seed: int) -> Question:
    """The text with some of its tokens masked, and those as the labels."""
    chosen = choose_masked([i for i, special in enumerate(tokens.special) if not special], seed)
    ids, labels = mask_tokens(model, inputs["input_ids"], [chosen])
    shown = list(tokens.tokens)
    for i in chosen:
        shown[i] = str(model.need_tokenizer().mask_token)
    seen = replace(tokens, tokens=tuple(shown), ids=tuple(int(x) for x in ids[0]))
    return Question({**inputs, "input_ids": ids}, labels, tuple(chosen), {"self": seen})


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
    mask_id = model.need_tokenizer().mask_token_id
    if mask_id is None:
        raise InputError(f"The tokenizer of {model.name} has no mask token.")
    masked, labels = ids.clone(), torch.full_like(ids, NOTHING)
    for row, positions in enumerate(chosen):
        labels[row, positions] = ids[row, positions]
        masked[row, positions] = mask_id
    return masked, labels


def backward(
    model: Model, question: Question, on_gradient: Callable[[Site, Tensor], None]
) -> float:
    """Run forward and backward; hand over each layer's ∂L/∂a, last layer first.

    Returns the loss.
    """
    tap = Attachment(on_gradient=on_gradient, returns_weights=False)
    with torch.enable_grad(), model.attached(tap), _frozen(model.module):
        loss = loss_of(model.module(**model.placed(question.inputs)).logits, question)
        loss.backward()
    return loss.item()


@contextmanager
def asked(
    model: Model, inputs: Mapping[str, Tensor], labels: Tensor
) -> Iterator[tuple[np.ndarray, Callable[[LayerReader], None]]]:
    """Run forward over a batch; within the block, its losses and a way to run backward.

    Args:
        model: with a language-model head.
        inputs: padded.
        labels: `document position`, -100 where nothing is predicted; in step with the logits.

    Yields:
        `document 2`, the sum of each document's cross-entropies and their number; and a
        function that hands each layer's attention to a reader with its `gradients`, last
        layer first. The loss is the sum over documents of each one's mean, so a document's
        gradients do not depend on its batch.
    """
    kept: dict[tuple[Block, int], Attention] = {}
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
    with torch.enable_grad(), model.attached(tap), _frozen(model.module):
        losses = losses_of(model.module(**model.placed(inputs)).logits, labels)

        def run(reader: LayerReader) -> None:
            readers.append(reader)
            (losses[:, 0] / losses[:, 1].clamp_min(1)).sum().backward()

        yield losses.detach().double().cpu().numpy(), run


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """`document 2`: the sum of cross-entropies in nats, and of how many tokens."""
    labels = labels.to(logits.device)
    is_predicted = labels != NOTHING
    # Only what is predicted: an encoder's masked tokens are few, and vocabularies large.
    losses = functional.cross_entropy(logits[is_predicted], labels[is_predicted], reduction="none")
    sums = torch.zeros(len(labels), dtype=losses.dtype, device=losses.device)
    sums = sums.index_add(0, is_predicted.nonzero()[:, 0], losses)
    return torch.stack((sums, is_predicted.sum(1).to(losses)), dim=-1)


def loss_of(logits: Tensor, question: Question) -> Tensor:
    """Mean cross-entropy, in nats, of the predicted tokens."""
    labels = question.labels.to(logits.device)
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING)


@contextmanager
def _frozen(module: torch.nn.Module) -> Iterator[None]:
    """Parameters ask for no gradient within the block."""
    trained = [p for p in module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
