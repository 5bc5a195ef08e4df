"""The edit that takes attention away from a class of keys, for whole batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from headscope.model.edit import Edit, Positions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleKeys(Edit):
    """Scale a head's attention to some keys of each document.

    Renormalized, every row keeps its sum: its other keys are scaled up or down together. A
    row without other keys stays as it is.
    """

    members: Tensor = field(repr=False)
    """`document key`: 1 for the keys to scale, 0 for the others."""
    factor: float = 0.0
    renormalized: bool = False

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """The weights with those columns scaled."""
        weights = weights.clone()
        before = weights[:, self.head]
        members = self.members.to(weights)[:, None, : weights.shape[-1]]
        after = before * (1 - (1 - self.factor) * members)
        if self.renormalized:
            left = after.sum(-1, keepdim=True)
            # After a softmax no weight is quite 0: below 1e-6 nothing is left of a row.
            is_some = left > 1e-6
            grown = after * before.sum(-1, keepdim=True) / torch.where(is_some, left, 1.0)
            after = torch.where(is_some, grown, before)
        weights[:, self.head] = after
        return weights
