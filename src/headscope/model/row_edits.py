"""Edits for batches whose rows are one text: each row has other heads silenced or replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from headscope.model.edit import Edit, Positions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SilenceRows(Edit):
    """In row `rows[i]` of the batch, head `heads[i]` adds nothing."""

    rows: Tensor = field(repr=False)
    heads: Tensor = field(repr=False)

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Zero attention makes a zero output, in every family."""
        weights = weights.clone()
        weights[self.rows.to(weights.device), self.heads.to(weights.device)] = 0
        return weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplaceRows(Edit):
    """In row `rows[i]` of the batch, head `heads[i]` puts out `values[i]`."""

    rows: Tensor = field(repr=False)
    heads: Tensor = field(repr=False)
    values: Tensor = field(repr=False)
    """`i query neuron`, or `i 1 neuron` for the same at every position."""
    keeps_first: bool = False
    """Leave the first position as it is."""

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """The outputs with those rows replaced."""
        outputs = outputs.clone()
        rows, heads = self.rows.to(outputs.device), self.heads.to(outputs.device)
        start = int(self.keeps_first)
        values = self.values.to(outputs).expand(-1, outputs.shape[2], -1)
        outputs[rows, heads, start:] = values[:, start:]
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WatchOutputs(Edit):
    """Changes nothing: hands over a layer's head outputs, and their gradient when it is known."""

    on_value: Callable[[int, Tensor], None] = field(repr=False)
    on_gradient: Callable[[int, Tensor], None] | None = field(default=None, repr=False)

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """The outputs themselves, with a hook on them."""
        self.on_value(self.layer, outputs.detach())
        if self.on_gradient is not None and torch.is_grad_enabled():
            if not outputs.requires_grad:  # with frozen parameters, those of the first layer
                outputs = outputs.detach().requires_grad_()
            outputs.register_hook(partial(self.on_gradient, self.layer))
        return outputs
