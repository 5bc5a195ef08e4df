"""Norm-weighted attention: attention weighted by the norm of the projected value.

n[i,j] = a[i,j] · ‖v_j W_O^h‖. The value includes its bias; the output projection's own bias is left
out. Each row is divided by its sum, so that every query counts as under plain attention and
formulas of metrics do not change. Kobayashi et al. 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from headscope.attention import Attention, LayerReader
from headscope.errors import TapUnsupported
from headscope.model.model import Model
from headscope.results.trace import Block


class NormWeights:
    """A reader that weights each layer's attention by norms and passes it on. `n_empty` counts rows
    of real queries whose norms are all 0; they stay 0 and add nothing to sums.
    """

    def __init__(self, model: Model, reader: LayerReader) -> None:
        self._model = model
        self._projections = model.projections
        self._reader = reader
        self.n_empty = 0

    def __call__(self, attention: Attention) -> None:
        """Weight one layer and pass it on."""
        if attention.values is None:
            raise TapUnsupported(
                f"The tap does not see the values of {self._model.info.family}, so over='norm' "
                "cannot be measured."
            )
        projection = self._projections[attention.block, attention.layer]
        moved = attention.weights * projection.value_lengths(attention.values)[:, :, None]
        total = moved.sum(-1, keepdim=True)
        is_empty = total <= 0
        if bool(is_empty.any()):
            mask = attention.query_mask
            real = is_empty[..., 0] if mask is None else is_empty[..., 0] & mask[:, None]
            self.n_empty += int(real.sum())
        weights = moved / torch.where(is_empty, 1.0, total)
        self._reader(replace(attention, weights=weights))


def add_lengths(model: Model, block: Block) -> Block:
    """Add `lengths` (`layer head key`) to the block of a trace: ‖v_j W_O^h‖."""
    values = block.values.transpose("layer", "group", "key", "value_neuron").values
    lengths = [
        model.projections[block.name, int(layer)]
        .value_lengths(torch.from_numpy(np.nan_to_num(layer_values))[None])[0]
        .numpy()
        for layer, layer_values in zip(block.data["layer"].values, values, strict=True)
    ]
    return replace(
        block, data=block.data.assign(lengths=(("layer", "head", "key"), np.stack(lengths)))
    )
