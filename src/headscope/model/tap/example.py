"""Small random inputs for the self-check, made from a model's signature and configuration."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

N_QUERIES = 11
"""Long enough for causal and windowed patterns to show; prime, so no other axis has it."""
N_DECODER = 7
N_ROWS = 2
N_SAMPLES = 4000
PER_TOKEN = (
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "bbox",
    "cross_attention_mask",
)
"""Inputs with one entry per token; a decoder's have its name as a prefix."""

Example = dict[str, Tensor]


def examples(root: PreTrainedModel) -> Iterator[Example]:
    """Yield two random rows of each input the model may accept, seeded and without padding."""
    maker = _Maker(root)
    main = root.main_input_name
    reads_text = "input_ids" in maker.parameters or "inputs_embeds" in maker.parameters
    if "grid_thw" in maker.parameters or (main == "pixel_values" and not maker.needs("input_ids")):
        yield from maker.pictures()
    elif main in ("input_features", "input_values", "audio_values"):
        yield from maker.sounds(main)
    elif reads_text or "kwargs" in maker.parameters:
        yield maker.text()
    if reads_text and "pixel_values" in maker.parameters:
        for picture in maker.pictures():
            yield maker.text() | picture
            yield maker.text(maker.placeholders()) | picture
        yield maker.text()
    for name in ("input_features", "input_values", "audio_values"):
        if name in maker.parameters and name != main:
            for sound in maker.sounds(name):
                yield (maker.text() if reads_text else {}) | sound
    if "pixel_values" in maker.parameters and main != "pixel_values":
        yield from maker.pictures()


def lengthened(inputs: Mapping[str, object]) -> dict[str, object]:
    """Repeat a single token: alone, its attention is 1 in every layer, so layers look equal."""
    longer = dict(inputs)
    for before, n in (("", N_QUERIES), ("decoder_", N_DECODER)):
        for name in (before + after for after in PER_TOKEN):
            value = inputs.get(name)
            if isinstance(value, Tensor) and value.ndim > 1 and value.shape[1] == 1:
                longer[name] = value.repeat_interleave(n, 1)
    return longer


class _Maker:
    """Maker of inputs that a model's forward method and configuration name."""

    def __init__(self, root: PreTrainedModel) -> None:
        self.root = root
        self.config = root.config
        self.parameters = inspect.signature(root.forward).parameters
        self._generator = torch.Generator().manual_seed(0)

    def random(self, *shape: int) -> Tensor:
        noise = torch.randn(shape, generator=self._generator)
        return noise.to(self.root.device, self.root.dtype)

    def text(self, before: tuple[int, ...] = ()) -> Example:
        """Return token ids, after optional given ones, with the inputs that accompany them."""
        config = self.config.get_text_config()
        ids = self._ids(config, N_QUERIES)
        if before:
            prefix = torch.tensor(before, device=ids.device).expand(N_ROWS, -1)
            ids = torch.cat([prefix, ids], 1)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self.needs("qformer_input_ids"):
            inputs["qformer_input_ids"] = self._ids(config, N_QUERIES)
        if self.needs("bbox"):
            inputs["bbox"] = torch.zeros(*ids.shape, 4, dtype=torch.long, device=ids.device)
        return inputs | self._decoder()

    def pictures(self) -> Iterator[Example]:
        """Yield noise in the model's image size, or as patches with their grid."""
        height, width = _pair(self._stated("image_size", 224))
        channels = self._stated("num_channels", None) or self._stated("in_channels", 3)
        if "grid_thw" in self.parameters:
            size = self._stated("patch_size", 14)
            depth = self._stated("temporal_patch_size", 1)
            side = 2 * self._stated("spatial_merge_size", 2)
            grid = torch.tensor([[1, side, side]], device=self.root.device)  # one image a call
            patches = self.random(side * side, channels * depth * size * size)
            yield {next(iter(self.parameters)): patches, "grid_thw": grid}
            return
        yield {"pixel_values": self.random(N_ROWS, channels, height, width)} | self._decoder()
        frames = self._stated("num_frames", None)
        if frames is not None:
            video = self.random(N_ROWS, int(frames), channels, height, width)
            yield {"pixel_values": video} | self._decoder()

    def sounds(self, name: str) -> Iterator[Example]:
        """Yield samples, or features in either order of axes, with a mask if required."""
        if name != "input_features":
            n_features, n_frames = (self._stated(x, None) for x in ("num_mel_bins", "max_length"))
            if isinstance(n_features, int) and isinstance(n_frames, int):  # a spectrogram
                yield {name: self.random(N_ROWS, n_frames, n_features)} | self._decoder()
            yield {name: self.random(N_ROWS, N_SAMPLES)} | self._decoder()
            yield {name: self.random(N_ROWS, 1, N_SAMPLES)} | self._decoder()
            return
        n_features = self._stated("num_mel_bins", None) or self._stated("input_dim", 80)
        n_frames = 2 * self._stated("max_source_positions", 50)
        mask = torch.ones(N_ROWS, n_frames, dtype=torch.long, device=self.root.device)
        names = [x for x in ("input_features_mask", "attention_mask") if self.needs(x)]
        for axes in ((n_features, n_frames), (n_frames, n_features)):
            inputs = {name: self.random(N_ROWS, *axes)} | dict.fromkeys(names, mask)
            yield inputs | self._decoder()

    def placeholders(self) -> tuple[int, ...]:
        """Return the placeholder ids of an image in a text, one per image token."""
        tokens = (getattr(self.config, f"image_token_{end}", None) for end in ("id", "index"))
        token = next((token for token in tokens if isinstance(token, int)), None)
        if token is None:
            return ()
        counts = ("num_query_tokens", "mm_tokens_per_image", "image_seq_length")
        stated = [self._stated(count, None) for count in counts]
        height, width = _pair(self._stated("image_size", 224))
        size = self._stated("patch_size", 14)
        size = size if isinstance(size, int) else 14
        n = next((x for x in stated if x is not None), (height // size) * (width // size))
        return (token,) * int(n)

    def _decoder(self) -> Example:
        if not self.config.is_encoder_decoder or "decoder_input_ids" not in self.parameters:
            return {}
        config = self.config.get_text_config(decoder=True)
        return {"decoder_input_ids": self._ids(config, N_DECODER)}

    def needs(self, name: str) -> bool:
        parameter = self.parameters.get(name)
        return parameter is not None and (name == "bbox" or parameter.default is parameter.empty)

    def _ids(self, config: PretrainedConfig, n: int) -> Tensor:
        try:
            table = self.root.get_input_embeddings()
        except (NotImplementedError, AttributeError):
            table = None
        sizes = [getattr(config, "vocab_size", None), getattr(table, "num_embeddings", None)]
        special = _special_ids(self.config) | _special_ids(config)
        vocabulary = range(min([1000, *(size for size in sizes if isinstance(size, int))]))
        ordinary = [i for i in vocabulary if i not in special] or list(vocabulary)
        choice = torch.randint(len(ordinary), (N_ROWS, n), generator=self._generator)
        return torch.tensor(ordinary)[choice].to(self.root.device)

    def _stated(self, name: str, default: Any) -> Any:
        parts = (self.config, *(getattr(self.config, key, None) for key in self.config.sub_configs))
        stated = (getattr(part, name, None) for part in parts)
        return next((value for value in stated if value is not None), default)


def _special_ids(config: PretrainedConfig) -> set[int]:
    ids: set[int] = set()
    for name, value in config.to_dict().items():
        if name.endswith(("token_id", "token_index", "token_ids")):
            ids.update(x for x in (value if isinstance(value, list) else [value]) if type(x) is int)
    return ids


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        size = [size.get("height", 224), size.get("width", 224)]
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
