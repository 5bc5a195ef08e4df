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
from headscope.model.model import Model
from headscope.model.objective import NOTHING, asked, choose_masked, mask_tokens
from headscope.run.batches import EncodedDocument
from headscope.run.plan import Plan


def can_ask(model: Model, document: EncodedDocument) -> bool:
    """Is there anything to predict in the document?"""
    objective = model.need_objective("A loss")
    stack = {"causal": "self", "seq2seq": "decoder"}.get(objective)
    return stack is None or len(document.stacks[stack]) > 1


def measure_gradients(
    model: Model, plan: Plan, inputs: Mapping[str, Tensor], batch: Batch, fold: Fold
) -> None:
    """Run forward and backward; the fold reads each layer's gradients, which are then freed."""
    seeds = [metric.seed for metric in plan.metrics if isinstance(metric, Importance)]
    posed, labels = question(model, inputs, batch, seeds[0] if seeds else 0)
    with (
        asked(model, posed, labels) as (losses, backward),
        fold.batch(replace(batch, losses=losses)) as read,
    ):
        backward(read)


def question(
    model: Model, inputs: Mapping[str, Tensor], batch: Batch, seed: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs and labels of the model's own objective.

    Which tokens an encoder has to guess depends on the seed and the document's content, not on
    its batch: however documents are put into shards, the same tokens are masked.
    """
    objective = model.need_objective("A loss")
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
