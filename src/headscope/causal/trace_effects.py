"""Effects of all heads on one input's prediction, as a trace stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast, final

import numpy as np
import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.attention import BlockName
from headscope.causal.ablation import Replacement, head_grid
from headscope.causal.batched_forward import BatchedAblation, ForwardPass, HeadSet
from headscope.causal.readout import (
    Readout,
    find_position,
    log_probabilities,
    pooled,
    require_two_tokens,
)
from headscope.errors import InputError, MissingObjective
from headscope.model.logits import KINDS, N_ANSWERS, answer_names, are_exclusive, has_probabilities
from headscope.model.model import Model
from headscope.results.effect_data import HeadEffects
from headscope.results.trace import Trace
from headscope.text.tokens import Tokens

CHUNKS = 10


@final
@dataclass(frozen=True, eq=False)
class TopLogprobs(Readout):
    """Log-probabilities of some answers at one position."""

    ids: Tensor
    excludes: bool = True
    """Whether answers exclude one another: true of tokens, not of all labels."""

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return `row answer`."""
        assert logits is not None
        return log_probabilities(logits.float(), excludes=self.excludes)[:, self.ids]


@final
class Vector(Readout):
    """Vector of the text: the mean over its tokens."""

    def read(self, outputs: ModelOutput, logits: Tensor | None) -> Tensor:
        """Return `row unit`."""
        return pooled(outputs, "mean").float()


def measure_every_head(
    model: Model,
    inputs: Mapping[str, object],
    stacks: Mapping[str, Tokens],
    position: int | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
    block: BlockName | None = None,
) -> HeadEffects:
    """Ablate each head of a block alone, the main one by default; return predictions, or the
    vectors of a plain encoder. Edits of the model stay in effect. `advance` gets the number of
    heads done and in all.
    """
    block = block or model.wiring.main_block()
    sets: list[HeadSet] = [
        ((site.layer, head),)
        for site in model.wiring_for(inputs).of_block(block)
        for head in range(site.n_heads)
    ]
    if "decoder" not in model.info.blocks:
        require_two_tokens(stacks)
    predicts = model.info.objective is not None
    if position is not None and not predicts:
        raise InputError(
            f"{model.name} predicts nothing, so there is no prediction at position {position}: its "
            "effects are on the vector of the whole text. Leave position out."
        )
    index = find_position(model, stacks, -1 if position is None else position) if predicts else None
    text = ForwardPass(model, cast("Mapping[str, Tensor]", inputs), index)
    ablation = BatchedAblation(text, block)
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
        if not has_probabilities(model):
            raise InputError(
                f"{model.name} predicts a score, which has no probability. For what heads do to "
                "it, call headscope.effects(model, text)."
            )
        n_answers = min(N_ANSWERS, logits.shape[-1])
        ids = logits[0].float().topk(n_answers).indices.to(torch.long)
        kind = KINDS[model.require_objective("An effect on a prediction")]
        names.extend(answer_names(model, kind, ids.tolist()))
        return TopLogprobs(ids, are_exclusive(model))

    base = ablation.base(make)
    chunks: list[np.ndarray] = []
    edit = Replacement(block).edit
    size = -(-len(sets) // CHUNKS)
    advance(0, len(sets))
    for start in range(0, len(sets), size):
        chunks.append(ablation.values(base, sets[start : start + size], edit))
        advance(min(start + size, len(sets)), len(sets))
    layers = sorted({layer for ((layer, _),) in sets})
    n_heads = max(head for ((_, head),) in sets) + 1
    table = head_grid(sets, np.concatenate(chunks), layers, n_heads, np.float32)
    attributes: dict[str, str | int] = {"block": block, "ablation": "zero", "model": model.name}
    before = np.asarray(base.value, dtype=np.float32)
    if predicts:
        attributes |= {} if index is None else {"position": index}
        return HeadEffects.of_prediction(names, before, table, layers, attributes)
    return HeadEffects.of_vector(before, table, layers, attributes | {"pooling": "mean"})


def with_effects(
    trace: Trace,
    position: int | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
    block: BlockName | None = None,
) -> Trace:
    """Return the trace with the effect of each head. See `Model.trace` and `measure_every_head`."""
    origin = trace.require_origin("effects=True")
    with origin.as_it_was():
        effects = measure_every_head(
            origin.model, origin.inputs, trace.stack_tokens, position, advance, block
        )
    return replace(trace, effects=effects)
