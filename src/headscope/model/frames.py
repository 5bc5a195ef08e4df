"""Which part of a recording each token is of: from the lengths the model itself computes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor
from transformers import PretrainedConfig

from headscope.model.processing import SoundProcessor
from headscope.text.pieces import Frame


def find_frames(
    config: PretrainedConfig, listener: SoundProcessor, inputs: Mapping[str, Tensor], n_tokens: int
) -> list[Frame] | None:
    """The stretch of the recording that each of `n_tokens` stands for.

    From samples: the strides of the convolutions that the configuration lists, if they give this
    number of tokens. From a spectrogram: the hops that one token spans, if that is a whole number.

    Returns:
        None where neither is so: the tokens are then not known to be frames.
    """
    rate = int(listener.sampling_rate)
    step = _samples_a_token(config, listener, inputs, n_tokens)
    if step is None:
        return None
    return [Frame(i * step / rate, (i + 1) * step / rate) for i in range(n_tokens)]


def _samples_a_token(
    config: PretrainedConfig, listener: SoundProcessor, inputs: Mapping[str, Tensor], n_tokens: int
) -> int | None:
    if (samples := inputs.get("input_values")) is not None and samples.ndim == 2:
        kernels, strides = (getattr(config, f"conv_{kind}", None) for kind in ("kernel", "stride"))
        if not kernels or not strides or len(kernels) != len(strides):
            return None
        n = samples.shape[1]
        for kernel, stride in zip(kernels, strides, strict=True):
            n = (n - kernel) // stride + 1
        return math.prod(strides) if n == n_tokens else None
    features = inputs.get("input_features")
    hop = getattr(listener, "hop_length", None)
    if features is None or features.ndim != 3 or not hop:
        return None
    sizes = list(features.shape[1:])
    n_features = getattr(listener, "feature_size", None)
    if n_features in sizes:
        sizes.remove(n_features)
    n_hops = sizes[0]
    return int(hop) * (n_hops // n_tokens) if len(sizes) == 1 and n_hops % n_tokens == 0 else None
