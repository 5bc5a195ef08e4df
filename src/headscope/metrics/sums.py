"""Sums by part, of many arrays at once.

The rows of all ratio metrics of a layer lie side by side in one table `part × number`:
with small models the calls would cost more than the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from headscope.batch import Batch

__all__ = ["Sums", "side_by_side"]


def side_by_side(arrays: Sequence[Tensor]) -> Tensor:
    """`document number`: arrays of one row per document as one table, float64 on the CPU."""
    return torch.cat([array.flatten(1).double() for array in columns(arrays)], dim=1).cpu()


def columns(arrays: Sequence[Tensor]) -> list[Tensor]:
    """The arrays with at least one axis besides `document`."""
    return [array if array.ndim > 1 else array[:, None] for array in arrays]


class Sums:
    """Running sums of such tables by the part each document was dealt into."""

    def __init__(self, n_parts: int, arrays: Sequence[Tensor]) -> None:
        self._shapes = [tuple(array.shape[1:]) for array in arrays]
        width = sum(prod(shape) for shape in self._shapes)
        self._table = torch.zeros((n_parts, width), dtype=torch.float64)

    def add(self, rows: Tensor, batch: Batch) -> None:
        """Count one table too."""
        parts = batch.once("parts", lambda: torch.from_numpy(batch.parts.astype(np.int64)))
        self._table.index_add_(0, parts, rows)

    def arrays(self) -> list[np.ndarray]:
        """`part …`: the sums of each array."""
        ends = np.cumsum([prod(shape) for shape in self._shapes])[:-1]
        return [
            np.ascontiguousarray(part).reshape(-1, *shape)
            for part, shape in zip(
                np.split(self._table.numpy(), ends, axis=1), self._shapes, strict=True
            )
        ]
