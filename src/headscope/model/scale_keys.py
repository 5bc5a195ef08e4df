"""The edit that takes attention away from a class of keys, for whole batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from headscope.model.edit import Edit, Positions

__all__ = ["ScaleKeys"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleKeys(Edit):
    """Scale a head's attention to some keys of each document.

    Renormalized, the other keys of a row share what was taken away (or pay for what was
    added) in proportion; a row that has no others stays as it is.
    """

    members: Tensor = field(repr=False)
    """`document key`: 1 for the keys that are meant."""
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
            # A softmax leaves traces where there should be nothing: 1e-6 of a row is none.
            is_some = left > 1e-6
            grown = after * before.sum(-1, keepdim=True) / torch.where(is_some, left, 1.0)
            after = torch.where(is_some, grown, before)
        weights[:, self.head] = after
        return weights
