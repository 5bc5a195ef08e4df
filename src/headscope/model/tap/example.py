"""A small input that most models accept, for the self-check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

N_QUERIES = 11
"""Long enough for causal and windowed patterns to show; prime, so no other axis has it."""
N_DECODER = 7


def example_inputs(root: PreTrainedModel) -> dict[str, Tensor]:
    """Two random rows of the model's main input, seeded, without padding."""
    config = root.config
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(root.device, root.dtype)

    name = root.main_input_name
    inputs: dict[str, Tensor] = {}
    if name == "pixel_values":
        height, width = _pair(_deep(config, "image_size", 224))
        inputs[name] = random(2, _deep(config, "num_channels", 3), height, width)
    elif name == "input_features":
        frames = 2 * _deep(config, "max_source_positions", 50)
        inputs[name] = random(2, _deep(config, "num_mel_bins", 80), frames)
    elif name == "input_values":
        inputs[name] = random(2, 4000)
    else:
        inputs["input_ids"] = _ids(root, config.get_text_config(), N_QUERIES, generator)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if config.is_encoder_decoder:
        decoder = config.get_text_config(decoder=True)
        inputs["decoder_input_ids"] = _ids(root, decoder, N_DECODER, generator)
    return inputs


def media_of(inputs: Mapping[str, object]) -> frozenset[str]:
    """Names of the inputs that are pictures or sounds: numbers that are no ids and no mask."""
    return frozenset(
        name
        for name, value in inputs.items()
        if isinstance(value, Tensor)
        and value.is_floating_point()
        and not name.endswith(("mask", "embeds"))
    )


def _ids(
    root: PreTrainedModel, config: PretrainedConfig, n: int, generator: torch.Generator
) -> Tensor:
    """Random ids that mean nothing special to the model (padding would be masked)."""
    special = {
        getattr(config, f"{kind}_token_id", None) for kind in ("pad", "bos", "eos", "mask", "sep")
    }
    ordinary = [i for i in range(min(config.vocab_size, 1000)) if i not in special]
    choice = torch.randint(len(ordinary), (2, n), generator=generator)
    return torch.tensor(ordinary)[choice].to(root.device)


def _deep(config: PretrainedConfig, name: str, default: Any) -> Any:
    """A setting of the configuration or of its vision, audio or encoder part."""
    for part in (config, *(getattr(config, key, None) for key in config.sub_configs)):
        value = getattr(part, name, None)
        if value is not None:
            return value
    return default


def _pair(size: int | tuple[int, int] | list[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
