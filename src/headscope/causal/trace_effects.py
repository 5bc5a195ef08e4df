"""What one input's prediction is without each head: the effects that a trace carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers.utils.generic import ModelOutput

from headscope.causal.ablation import Replacement
from headscope.causal.batched_forward import BatchedAblation, ForwardPass, HeadSet
from headscope.causal.readout import Pooling, Readout, find_position, pooled, refuse_one_token
from headscope.errors import InputError, MissingObjective
from headscope.model.logits import (
    KINDS,
    N_ANSWERS,
    answer_names,
    are_exclusive,
    has_probabilities,
)
from headscope.model.model import Model
from headscope.results.effect_data import HeadEffects
from headscope.results.trace import Trace
from headscope.text.tokens import Tokens

CHUNKS = 10
"""Into so many the heads are cut, so that one can see how far it is."""


@final
@dataclass(frozen=True, eq=False)
class TopLogprobs(Readout):
    """The log-probabilities of some answers at one position."""

    ids: Tensor
    excludes: bool = True
    """Do the answers exclude one another, as tokens do? Labels of a text may not."""

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """`row answer`."""
        assert logits is not None
        rows = logits.float()
        logs = rows.log_softmax(-1) if self.excludes else functional.logsigmoid(rows)
        return logs[:, self.ids]

    def describe(self) -> dict[str, str | int | float]:
        """What is read."""
        return {"measure": "logprob"}


@final
@dataclass(frozen=True, eq=False)
class Vector(Readout):
    """The text's vector."""

    pooling: Pooling = field(default="mean")

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """`row unit`."""
        return pooled(outputs, self.pooling).float()

    def describe(self) -> dict[str, str | int | float]:
        """What is read."""
        return {"measure": "turn", "pooling": self.pooling}


def measure_every_head(
    model: Model,
    inputs: Mapping[str, object],
    stacks: Mapping[str, Tokens],
    position: int | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> HeadEffects:
    """The prediction, or the vector of a plain encoder, with each head switched off alone.

    Args:
        model: the model; edits in effect stay in effect.
        inputs: of one row.
        stacks: its tokens.
        position: where the prediction stands; the last token, or mask, by default.
        advance: told how many heads are done, and of how many.

    Raises:
        InputError: a score instead of a choice, a text of one token, a masked model and a text
            without a mask, a position where nothing is predicted.
    """
    block = model.wiring.main_block()
    sets: list[HeadSet] = [
        ((site.layer, head),)
        for site in model.wiring_for(inputs).of_block(block)
        for head in range(site.n_heads)
    ]
    if "decoder" not in model.info.blocks:
        refuse_one_token(stacks)
    predicts = model.info.objective is not None
    if position is not None and not predicts:
        raise InputError(
            f"{model.name} predicts nothing, so there is no prediction at position {position}: its "
            "effects are on the vector of the whole text. Leave position out."
        )
    at = find_position(model, stacks, -1 if position is None else position) if predicts else None
    rows = BatchedAblation(ForwardPass(model, cast("Mapping[str, Tensor]", inputs), at), block)
    names: list[str] = []

    def make(outputs: ModelOutput, logits: Tensor | None) -> Readout:
        if not predicts:
            if "last_hidden_state" not in outputs:
                raise MissingObjective(
                    f"{model.info.architecture} returns neither logits nor hidden states, so there "
                    "is nothing for heads to have an effect on."
                )
            return Vector()
        assert logits is not None
        ids = _likeliest(model, logits)
        kind = KINDS[model.require_objective("An effect on a prediction")]
        names.extend(answer_names(model, kind, ids.tolist()))
        return TopLogprobs(ids, are_exclusive(model))

    base = rows.base(make)
    parts: list[np.ndarray] = []
    edit = Replacement(block).edit
    size = -(-len(sets) // CHUNKS)
    advance(0, len(sets))
    for start in range(0, len(sets), size):
        parts.append(rows.values(base, sets[start : start + size], edit))
        advance(min(start + size, len(sets)), len(sets))
    layers, table = _by_head(sets, np.concatenate(parts))
    about: dict[str, str | int] = {"block": block, "ablation": "zero", "model": model.name}
    before = np.asarray(base.value, dtype=np.float32)
    if predicts:
        about |= {} if at is None else {"position": at}
        return HeadEffects.of_prediction(names, before, table, layers, about)
    return HeadEffects.of_vector(before, table, layers, about | {"pooling": "mean"})


def _likeliest(model: Model, logits: Tensor) -> Tensor:
    if not has_probabilities(model):
        raise InputError(
            f"{model.name} predicts a score, which has no probability. For what heads do to it, "
            "call headscope.effects(model, text)."
        )
    return logits[0].float().topk(min(N_ANSWERS, logits.shape[-1])).indices.to(torch.long)


def _by_head(sets: Sequence[HeadSet], values: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The layers, and `layer head …`; NaN for heads that a layer does not have."""
    layers = sorted({layer for ((layer, _),) in sets})
    n_heads = max(head for ((_, head),) in sets) + 1
    table = np.full((len(layers), n_heads, *values.shape[1:]), np.nan, dtype=np.float32)
    for ((layer, head),), value in zip(sets, values, strict=True):
        table[layers.index(layer), head] = value
    return layers, table


def with_effects(
    trace: Trace,
    position: int | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Trace:
    """The trace with the prediction without each head beside it; see `Model.trace`.

    Args:
        trace: one that knows its model.
        position: of the prediction; the last by default.
        advance: told how many heads are done, and of how many.
    """
    origin = trace.require_origin("effects=True")
    with origin.as_it_was():
        effects = measure_every_head(
            origin.model, origin.inputs, trace.stack_tokens, position, advance
        )
    return replace(trace, effects=effects)
