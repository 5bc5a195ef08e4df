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

__all__ = ["Digest", "Small", "join_layers", "read_digests"]

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
    kinds: set[type[Digest]] = {type(digest) for digest in digests}
    for kind in kinds:
        found |= kind.read_all(attention, [d for d in digests if type(d) is kind])
    return found


def join_layers(
    shape: Sequence[int], taken: Sequence[tuple[Attention, Mapping[Digest, Small]]]
) -> Attention:
    """The heads of several layers as if of one, of which only the digests are left.

    Args:
        shape: that of each layer's weights.
        taken: for each layer what else is known of it, and its digests.
    """
    first, found = taken[0]
    n_documents, n_heads, *pairs = shape
    # Weights that are not a number, in the shape of all of them: nobody should read them.
    nothing = first.weights.new_full((1,), torch.nan)
    return replace(
        first,
        weights=nothing.expand(n_documents, n_heads * len(taken), *pairs),
        derived={digest: _side_by_side([own[digest] for _, own in taken]) for digest in found},
    )


def _side_by_side(layers: Sequence[Small]) -> Small:
    return tuple(torch.cat(tensors, dim=1) for tensors in zip(*layers, strict=True))
