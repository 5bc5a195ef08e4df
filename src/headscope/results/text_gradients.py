"""Gradients of a model's loss with respect to its attention, for one input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from headscope.text.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Gradients:
    """∂L/∂a for every layer and head: how much the loss would change with each weight.

    Attributes:
        loss: mean cross-entropy, in nats, of the predicted tokens.
        blocks: `layer head query key` for each block, in the shape of the attention.
        stack_tokens: the token sequence of each stack, as the model saw it (masked).
        predicted: positions whose token the loss is about, in the predicting stack.
        about: objective, seed and model.
    """

    loss: float
    blocks: Mapping[str, xr.DataArray]
    stack_tokens: Mapping[str, Tokens]
    predicted: tuple[int, ...]
    about: Mapping[str, Any]

    @property
    def attention(self) -> xr.DataArray:
        """`layer head query key`: ∂L/∂a of the main block."""
        return next(iter(self.blocks.values()))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The main token sequence, as the model saw it."""
        return next(iter(self.stack_tokens.values())).tokens
