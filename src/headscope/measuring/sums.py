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


def side_by_side(arrays: Sequence[Tensor], n_layers: int = 1) -> Tensor:
    """`document layer number`: arrays of one row per document as one table, float64 on the
    CPU.

    Args:
        arrays: `document …`; of several layers, `document head …` with the heads of all.
        n_layers: how many.
    """
    rows = [array.reshape(len(array), n_layers, -1).double() for array in arrays]
    return torch.cat(rows, dim=2).cpu()


def row_shape(array: Tensor, n_layers: int = 1) -> tuple[int, ...]:
    """The shape of one document's row of one layer."""
    shape = tuple(array.shape[1:])
    return shape if n_layers == 1 else (shape[0] // n_layers, *shape[1:])


class Sums:
    """Running sums of such rows, of one layer, by the part each document was dealt into."""

    def __init__(self, n_parts: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = list(shapes)
        width = sum(prod(shape) for shape in self._shapes)
        self._table = torch.zeros((n_parts, width), dtype=torch.float64)

    def add(self, rows: Tensor, batch: Batch) -> None:
        """Count these rows too, `document number`."""
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
