"""A forward and a backward pass over a batch: losses, and gradients of the attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headscope.batch import Batch
from headscope.measuring.fold import Fold
from headscope.metrics.gradients import Importance
from headscope.model.aims import NOTHING, aim_labels, import_scalar
from headscope.model.model import Model
from headscope.model.objective import asked, choose_masked, mask_tokens
from headscope.run.batches import EncodedDocument
from headscope.run.plan import Plan


def can_ask(model: Model, document: EncodedDocument) -> bool:
    """Is there anything to predict in the document?"""
    objective = model.info.objective
    if objective is None:  # a user's scalar
        return True
    stack = {"causal": "self", "seq2seq": "decoder"}.get(objective)
    return stack is None or len(document.stacks[stack]) > 1


def measure_gradients(
    model: Model, plan: Plan, inputs: Mapping[str, Tensor], batch: Batch, fold: Fold
) -> None:
    """Run forward and backward; the fold reads each layer's gradients, which are then freed."""
    asking = [metric for metric in plan.metrics if isinstance(metric, Importance)]
    one = asking[0] if asking else Importance()
    posed, labels = question(model, inputs, batch, one.seed, one.target)
    scalar = None if one.scalar is None else import_scalar(one.scalar)
    with (
        asked(model, posed, labels, scalar) as (losses, backward),
        fold.batch(replace(batch, losses=losses)) as read,
    ):
        backward(read)


def question(
    model: Model,
    inputs: Mapping[str, Tensor],
    batch: Batch,
    seed: int,
    target: str | int | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs and labels of the model's own objective, or of an answer that is named.

    Which tokens an encoder has to guess depends on the seed and the document's content, not on
    its batch: however documents are put into shards, the same tokens are masked.
    """
    objective = model.info.objective
    if objective is None:  # a user's scalar needs no labels
        return dict(inputs), torch.zeros((len(batch), 0), dtype=torch.long)
    if objective in ("label", "token_label") or target is not None:
        main = next(iter(batch.stacks.values()))
        is_text = torch.from_numpy(main.mask & ~main.special)
        return dict(inputs), aim_labels(model, inputs, is_text, target)
    if objective == "masked":
        return _masked(model, inputs, batch, seed)
    stack, name = {
        "causal": ("self", "input_ids"),
        "seq2seq": ("decoder", "decoder_input_ids"),
    }[objective]
    ids = inputs[name]
    mask = torch.from_numpy(batch.stacks[stack].mask)
    labels = torch.full_like(ids, NOTHING)
    labels[:, :-1] = torch.where(mask[:, 1:], ids[:, 1:], NOTHING)
    return dict(inputs), labels


def _masked(
    model: Model, inputs: Mapping[str, Tensor], batch: Batch, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    stack = batch.stacks["self"]
    chosen = [
        choose_masked(
            np.flatnonzero(stack.mask[row] & ~stack.special[row]).tolist(),
            [seed, int(batch.keys[row] * 2**53)],
        )
        for row in range(len(batch))
    ]
    ids, labels = mask_tokens(model, inputs["input_ids"], chosen)
    return {**inputs, "input_ids": ids}, labels
