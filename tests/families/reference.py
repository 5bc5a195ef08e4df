"""transformers' own answer, read independently of the self-check, to compare the tap with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.blip.modeling_blip import BlipForConditionalGenerationModelOutput

from headscope.attention import Attention, LayerReader
from headscope.model.model import Model
from headscope.model.tap.interface import eager_attention

BLOCKS = {
    "attentions": "self",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
Maps = dict[str, list[Tensor]]


def reference_maps(
    module: PreTrainedModel, inputs: Mapping[str, Any], **options: object
) -> tuple[Maps, Tensor]:
    """Attention maps by block, and the model's output, from eager `output_attentions`."""
    with torch.no_grad(), eager_attention(module):
        outputs = module(**inputs, output_attentions=True, **options)
    maps: Maps = {}
    for key, block in BLOCKS.items():
        returned = getattr(outputs, key, None) or getattr(
            getattr(outputs, "language_model_outputs", None), key, None
        )
        maps[block] = [m for m in returned or () if isinstance(m, Tensor) and m.ndim >= 3]
    for tower in ("text", "vision", "audio"):
        for key in (f"{tower}_model_output", f"{tower}_outputs", f"{tower}_output"):
            returned = getattr(getattr(outputs, key, None), "attentions", None) or ()
            maps.setdefault(tower, []).extend(
                m for m in returned if isinstance(m, Tensor) and m.ndim >= 3
            )
        names = (f"{tower}_attentions", *["language_attentions"] * (tower == "text"))
        for name in names:
            maps[tower] = maps[tower] or list(getattr(outputs, name, None) or ())
    maps = {block: some for block, some in maps.items() if some}
    if module.config.is_encoder_decoder and set(maps) == {"self", "cross"}:
        maps = {"decoder": maps["self"], "cross": maps["cross"]}
    has_other_tower = any(str(name).startswith("video_") for name in outputs)
    if len(maps) == 1 and not maps.keys() & set(BLOCKS.values()) and not has_other_tower:
        maps = {"self": next(iter(maps.values()))}
    if isinstance(outputs, BlipForConditionalGenerationModelOutput):  # its own maps are the image's
        maps = {"vision": maps["self"], "self": _of_blips_text(module, inputs)}
    return maps, main_output(outputs)


def _of_blips_text(module: PreTrainedModel, inputs: Mapping[str, Any]) -> list[Tensor]:
    """The maps of BLIP's text decoder, which it keeps to itself."""
    decoder = module.get_submodule("text_decoder")
    given: dict[str, Any] = {}

    def note(_: nn.Module, _args: object, kwargs: dict[str, Any]) -> None:
        given.update(kwargs)

    with torch.no_grad(), eager_attention(module):
        hook = decoder.register_forward_pre_hook(note, with_kwargs=True)
        module(**inputs)
        hook.remove()
        return list(decoder(**given | {"output_attentions": True}).attentions)


def tapped(model: Model, inputs: Mapping[str, Any], **options: object) -> tuple[Maps, Tensor]:
    """The same through the tap."""
    maps: _Seen = {}
    outputs = model.run(inputs, _keeping(maps), **options)
    return _in_order(maps), main_output(outputs)


def left_early(model: Model, inputs: Mapping[str, Any]) -> Maps:
    """The same maps, of a forward pass that need not go on after the last of them."""
    maps: _Seen = {}
    model.read(inputs, _keeping(maps))
    return _in_order(maps)


_Seen = dict[str, dict[int, Tensor]]


def _keeping(maps: _Seen) -> LayerReader:
    def read(attention: Attention) -> None:
        maps.setdefault(attention.block, {})[attention.layer] = attention.weights.clone()

    return read


def _in_order(maps: _Seen) -> Maps:
    return {block: [seen[layer] for layer in sorted(seen)] for block, seen in maps.items()}


def main_output(outputs: Any) -> Tensor:
    """Logits, the last hidden state, or the first tensor there is."""
    for key in ("logits", "last_hidden_state"):
        if isinstance(getattr(outputs, key, None), Tensor):
            tensor: Tensor = getattr(outputs, key)
            return tensor
    flat = [y for x in outputs.to_tuple() for y in (x if isinstance(x, tuple | list) else [x])]
    return next(x for x in flat if isinstance(x, Tensor) and x.is_floating_point())


def gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference; of a map returned before the softmax, after taking it; of a map that
    is one for all heads, from their average. Rows that are NaN in both are equal.
    """
    if ours.numel() != theirs.numel() or ours.shape[-2:] != theirs.shape[-2:]:
        return float("inf")
    theirs = theirs.reshape(ours.shape)
    if ours.ndim == 4 and torch.equal(theirs[:, 1:], theirs[:, :-1]):
        ours = ours.mean(1, keepdim=True).expand_as(theirs)
    candidates = [theirs, theirs.softmax(-1)] if bool((theirs < 0).any()) else [theirs]
    return min(
        float((ours - one).masked_fill(ours.isnan() & one.isnan(), 0).abs().nan_to_num(9e9).max())
        for one in candidates
    )


def text_inputs(module: PreTrainedModel, n: int, *, pad: str = "") -> dict[str, Tensor]:
    """Two rows of random ids, the second padded on one side where asked."""
    generator = torch.Generator().manual_seed(n)
    config = module.config.get_text_config()
    top = min(getattr(config, "vocab_size", 88), 88)
    ids = torch.randint(5, top, (2, n), generator=generator)
    mask = torch.ones_like(ids)
    if pad:
        mask[1, : n // 2 - 1] = int(pad == "right")
        mask[1, n // 2 :] = int(pad == "left")
    token = getattr(config, "pad_token_id", None)
    ids[mask == 0] = token if isinstance(token, int) and token >= 0 else 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if module.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(5, top, (2, 6), generator=generator)
    return inputs


def padded_inputs(module: PreTrainedModel, *, left: bool) -> dict[str, Tensor]:
    """Two rows of different length, padded on one side."""
    return text_inputs(module, 9, pad="left" if left else "right")
