"""Digests: the few small tensors of a layer that metrics are made of.

A layer's weights are large and gone when the model goes on; sums over them are small. A
metric that names its digests reads nothing else of the weights. The fold takes the digests
layer by layer, while the weights are still in the cache, and hands the metric those of all
layers at once, heads side by side: with small models calls cost more than sums.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

import torch
from torch import Tensor

from headscope.attention import Attention

__all__ = ["Digest", "JoinedLayers", "Small", "read_digests"]

Small = tuple[Tensor, ...]
"""Tensors with the heads along their second axis: `document head …`."""


class Digest:
    """A function of a layer whose result is small and is made once. A decorator."""

    def __init__(self, function: Callable[[Any], Small]) -> None:
        self.function = function
        update_wrapper(self, function)

    def __call__(self, attention: Attention) -> Small:
        """The result."""
        return attention.once(self, lambda: self.read_all(attention, [self])[self])

    @classmethod
    def read_all(cls, attention: Attention, digests: Sequence[Digest]) -> dict[Digest, Small]:
        """Several of this kind, which may share their work."""
        return {digest: digest.function(attention) for digest in digests}


def read_digests(attention: Attention, digests: Collection[Digest]) -> dict[Digest, Small]:
    """Several digests of a layer."""
    found: dict[Digest, Small] = {}
    kinds: dict[type[Digest], None] = dict.fromkeys(type(digest) for digest in digests)
    for kind in kinds:
        found |= kind.read_all(attention, [d for d in digests if type(d) is kind])
    return found


class JoinedLayers:
    """The digests of layers of one shape, heads side by side as if of one layer.

    In memory that is taken at once for all layers there will be: what is kept of each by
    itself would lie strewn among the model's own memory, and leave gaps in it.
    """

    def __init__(self, first: Attention, n_layers: int) -> None:
        self.layers: list[int] = []
        self._shape = first.weights.shape
        self._room = n_layers
        self._kept: dict[Digest, Small] = {}
        self._first = replace(
            first.without_vectors(), weights=first.weights.new_empty(0), gradients=None, derived={}
        )

    def add(self, layer: int, digests: Mapping[Digest, Small]) -> None:
        """One more layer."""
        if len(self.layers) == self._room or not self._kept:
            self._make_room(digests)
        n_heads = self._shape[1]
        start = len(self.layers) * n_heads
        for digest, tensors in digests.items():
            for kept, tensor in zip(self._kept[digest], tensors, strict=True):
                kept[:, start : start + n_heads] = tensor
        self.layers.append(layer)

    def _make_room(self, digests: Mapping[Digest, Small]) -> None:
        """At first for the layers expected, then for twice as many as there are."""
        before = self._kept
        self._room = max(self._room, 2 * len(self.layers))
        self._kept = {d: tuple(map(self._take, tensors)) for d, tensors in digests.items()}
        for digest, tensors in before.items():
            for kept, tensor in zip(self._kept[digest], tensors, strict=True):
                kept[:, : tensor.shape[1]] = tensor

    def _take(self, tensor: Tensor) -> Tensor:
        n, n_heads, *rest = tensor.shape
        return tensor.new_empty((n, n_heads * self._room, *rest))

    def joined(self) -> Attention:
        """All of them as one layer, whose weights nobody should read: they are not numbers,
        in the shape of all of them.
        """
        n_documents, n_heads, *pairs = self._shape
        n = n_heads * len(self.layers)
        return replace(
            self._first,
            weights=self._first.weights.new_full((1,), torch.nan).expand(n_documents, n, *pairs),
            derived={d: tuple(t[:, :n] for t in tensors) for d, tensors in self._kept.items()},
        )
