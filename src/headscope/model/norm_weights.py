"""Norm-weighted attention: what is really moved, in place of where it is looked.

n[i,j] = a[i,j] · ‖v_j W_O^h‖, the attention times the length of what it fetches: the key's value,
its bias included, through the head's slice of the output projection, whose own bias is left out.
Each row is divided by its sum, so that every query counts as much as it does under plain
attention, and every metric's formula stays as it is. Kobayashi et al. 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention, LayerReader
from headscope.errors import TapUnsupported
from headscope.model.model import Model
from headscope.results.trace import Block


class NormWeights:
    """A reader that hands on each layer's attention weighted by norms.

    Args:
        model: whose output projections are known (`Model.projections`).
        reader: who reads the weighted attention.

    Attributes:
        n_empty: rows of real queries without any length (a head whose values are all 0); they stay
            0, so they add nothing to sums of attention.
    """

    def __init__(self, model: Model, reader: LayerReader) -> None:
        self._model = model
        self._projections = model.projections
        self._reader = reader
        self.n_empty = 0

    def __call__(self, attention: Attention) -> None:
        """Weigh one layer and hand it on."""
        moved = attention.weights * self._lengths(attention)[:, :, None]
        total = moved.sum(-1, keepdim=True)
        is_empty = total <= 0
        self._count(is_empty[..., 0], attention.query_mask)
        weights = moved / torch.where(is_empty, 1.0, total)
        self._reader(replace(attention, weights=weights))

    def _count(self, is_empty: Tensor, query_mask: Tensor | None) -> None:
        if bool(is_empty.any()):
            real = is_empty if query_mask is None else is_empty & query_mask[:, None]
            self.n_empty += int(real.sum())

    def _lengths(self, attention: Attention) -> Tensor:
        """`batch head key`, in the precision of the weights or better."""
        if attention.values is None:
            raise TapUnsupported(
                f"The tap does not see the values of {self._model.info.family}, so over='norm' "
                "cannot be measured."
            )
        return self._projections[attention.block, attention.layer].value_lengths(attention.values)


def add_lengths(model: Model, block: Block) -> Block:
    """The block of a trace with `lengths` (`layer head key`): ‖v_j W_O^h‖."""
    values = block.values.transpose("layer", "group", "key", "value_neuron").values
    lengths = [
        model.projections[block.name, int(layer)]
        .value_lengths(torch.from_numpy(np.nan_to_num(of_layer))[None])[0]
        .numpy()
        for layer, of_layer in zip(block.data["layer"].values, values, strict=True)
    ]
    return replace(
        block, data=block.data.assign(lengths=(("layer", "head", "key"), np.stack(lengths)))
    )
