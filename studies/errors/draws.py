"""Samples of documents, many at a time: what every count of the study begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

__all__ = ["N_PARTS", "Draws", "draw", "summed"]

N_PARTS = 64
CELLS = 1 << 17
"""So many numbers of an array fit into the fast memory of a processor."""


@dataclass(frozen=True)
class Draws:
    """Some samples: the documents of each, and the part that a hash would deal each one into."""

    first: int
    """The number of the first sample."""
    documents: np.ndarray
    """`sample document`."""
    parts: np.ndarray
    """`sample document`."""

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The number, the documents and the parts of each sample."""
        yield from zip(
            range(self.first, self.first + len(self)), self.documents, self.parts, strict=True
        )

    def every(self, step: int) -> np.ndarray:
        """Which of these samples have a number that is a multiple of `step`."""
        return np.arange(-self.first % step, len(self), step)

    def pooled(self, *sums: np.ndarray) -> list[np.ndarray]:
        """`part sample head`: of sums, `document head`, those of the documents drawn.

        Parts that got no document are left out as far as all samples have any: they change
        nothing.
        """
        units = np.stack([np.unique(row, return_inverse=True)[1] for row in self.parts])
        n = int(units.max()) + 1
        rows = (units * len(self) + np.arange(len(self))[:, None]).ravel()
        ones = np.ones(rows.size)
        shape = (n * len(self), len(sums[0]))
        deal = sparse.csr_matrix((ones, (rows, self.documents.ravel())), shape)
        return [np.asarray(deal @ of).reshape(n, len(self), -1) for of in sums]


def draw(size: int, n: int, repetitions: int, seed: int, width: int = 1) -> Iterator[Draws]:
    """Samples of `n` documents with replacement, as many at a time as are quick to work on.

    Args:
        size: documents of the population.
        n: documents of a sample.
        repetitions: how many samples.
        seed: of the samples, which are the same however many come at a time.
        width: numbers that each document has.
    """
    generator = np.random.default_rng(seed)
    at_once = max(1, min(256, CELLS // (min(n, N_PARTS) * width)))
    for first in range(0, repetitions, at_once):
        pairs = [
            (generator.integers(0, size, n), generator.integers(0, N_PARTS, n))
            for _ in range(min(at_once, repetitions - first))
        ]
        documents, parts = (np.stack(side) for side in zip(*pairs, strict=True))
        yield Draws(first, documents, parts)


def summed(values: np.ndarray, units: np.ndarray, n: int = N_PARTS) -> np.ndarray:
    """`unit …`: the sums of the documents of each unit.

    Args:
        values: `document …`.
        units: `document`, the unit that each belongs to.
        n: how many units there are.
    """
    deal = (np.arange(n)[:, None] == units).astype(np.float64)
    sums: np.ndarray = (deal @ values.reshape(len(values), -1)).reshape(n, *values.shape[1:])
    return sums
