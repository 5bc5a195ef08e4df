"""transformers' own answer, to compare the tap with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headscope.attention import Attention
from headscope.model.model import Model
from headscope.model.tap.interface import eager_attention
from headscope.model.tap.official import OFFICIAL


def official(
    module: PreTrainedModel, inputs: dict[str, Any]
) -> tuple[dict[str, list[Tensor]], Tensor]:
    """Attention maps by block, and the model's output, from eager `output_attentions`."""
    with torch.no_grad(), eager_attention(module):
        outputs = module(**inputs, output_attentions=True)
    maps = {
        block: [m for m in getattr(outputs, key) if isinstance(m, Tensor)]
        for key, block in OFFICIAL.items()
        if getattr(outputs, key, None)
    }
    if module.config.model_type in ("squeezebert", "prophetnet"):
        # These return some of their maps as scores: what the softmax is taken of.
        maps = {b: [m.softmax(-1) if (m < 0).any() else m for m in ms] for b, ms in maps.items()}
    return maps, main_output(outputs)


def tapped(model: Model, inputs: dict[str, Any]) -> tuple[dict[str, list[Tensor]], Tensor]:
    """The same through the tap."""
    maps: dict[str, dict[int, Tensor]] = {}

    def read(attention: Attention) -> None:
        maps.setdefault(attention.block, {})[attention.layer] = attention.weights.clone()

    outputs = model.run(inputs, read)
    return (
        {block: [found[layer] for layer in sorted(found)] for block, found in maps.items()},
        main_output(outputs),
    )


def main_output(outputs: Any) -> Tensor:
    """Logits, or the last hidden state."""
    logits = getattr(outputs, "logits", None)
    return outputs.last_hidden_state if logits is None else logits


def padded_inputs(module: PreTrainedModel, *, left: bool) -> dict[str, Tensor]:
    """Two rows of different length, padded on one side."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, 90, (2, 9), generator=generator)
    mask = torch.ones_like(ids)
    if left:
        mask[1, :4] = 0
    else:
        mask[1, 5:] = 0
    pad = getattr(module.config.get_text_config(), "pad_token_id", None)
    ids[mask == 0] = pad if isinstance(pad, int) and pad >= 0 else 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if module.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(5, 90, (2, 6), generator=generator)
    return inputs
