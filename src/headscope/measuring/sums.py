"""Sums by part of the corpus, of many arrays at once.

The rows of all ratio metrics of a layer lie side by side in one table `part × number`. Adding
each array on its own would take longer: with small models, calls cost more than sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from headscope.batch import Batch
from headscope.deferred import torch

if TYPE_CHECKING:
    from torch import Tensor


def side_by_side(arrays: Sequence[Tensor], n_layers: int = 1) -> Tensor:
    """`document layer number`: several arrays as one table, float64 on the CPU.

    Args:
        arrays: `document …`; for several layers, `document head …` with the heads of all.
        n_layers: how many layers the arrays hold.
    """
    rows = [array.reshape(len(array), n_layers, -1).double() for array in arrays]
    return torch.cat(rows, dim=2).cpu()


def row_shape(array: Tensor, n_layers: int = 1) -> tuple[int, ...]:
    """The shape of one document's row of one layer."""
    shape = tuple(array.shape[1:])
    return shape if n_layers == 1 else (shape[0] // n_layers, *shape[1:])


class Sums:
    """Running sums of the rows of one layer, by the part that each document belongs to."""

    def __init__(self, n_parts: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = list(shapes)
        width = sum(prod(shape) for shape in self._shapes)
        self._table = torch.zeros((n_parts, width), dtype=torch.float64)

    def add(self, rows: Tensor, batch: Batch) -> None:
        """Add rows, `document number`."""
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
