"""Who takes part in an attention computation, and how their edits are carried out."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from headscope.attention import Block
from headscope.errors import TapUnsupported
from headscope.model.edit import Edit, Positions, Vectors
from headscope.model.tap.attachment import Attachment
from headscope.model.tap.circuit import Circuit, Inputs
from headscope.model.tap.sites import Site

USE_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """An attachment through one model's circuit."""

    circuit: Circuit
    attachment: Attachment
    thread: threading.Thread | None
    """The thread whose calls are meant; None for those of every thread."""
    number: int = field(default_factory=lambda: next(USE_NUMBERS))
    """Uses are numbered in the order they were attached."""


class Part(NamedTuple):
    """The part that one use has in one attention computation."""

    use: Use
    site: Site
    inputs: Inputs
    """What the forward pass under way was given."""
    block: Block
    """The block of the computation in the model whose forward pass that is."""

    def positions(self, n_queries: int, n_keys: int) -> Positions:
        """Where the call's first query and key stand in the whole sequence."""
        return self.inputs.positions(self.block, n_queries, n_keys)


class Parts(tuple[Part, ...]):
    """All parts in one computation."""

    __slots__ = ()

    @property
    def edits(self) -> list[tuple[Part, Edit]]:
        """The edits that apply here, in order."""
        return [
            (part, edit)
            for part in self
            for edit in part.use.attachment.edits
            if edit.touches(part.site, part.use.circuit.wiring.main_block())
        ]

    @property
    def wants_scores(self) -> bool:
        """Does anyone read scores?"""
        return any(part.use.attachment.wants_scores for part in self)

    @property
    def wants_gradient(self) -> bool:
        """Does anyone hear of gradients?"""
        return any(part.use.attachment.on_gradient is not None for part in self)

    @property
    def returns_weights(self) -> bool:
        """Are the weights handed back to the model?"""
        return all(part.use.attachment.returns_weights for part in self)


def edit_vectors(edits: Sequence[tuple[Part, Edit]], vectors: Vectors) -> Vectors:
    """The vectors after all edits, in order."""
    for part, edit in edits:
        vectors = edit.on_vectors(vectors, part.site)
    return vectors


def edit_outputs(edits: Sequence[tuple[Part, Edit]], outputs: Tensor) -> Tensor:
    """The head outputs after all edits, in order."""
    for _, edit in edits:
        outputs = edit.on_outputs(outputs)
    return outputs


def change_weights_of(
    parts: Parts,
    edits: Sequence[tuple[Part, Edit]],
    weights: Tensor,
    lengths: tuple[int, int],
) -> Tensor:
    """The weights to use instead, with a hook where their gradient is wanted.

    With frozen parameters nothing upstream asks for a gradient, so the weights of the
    first layer become a leaf of the graph themselves.
    """
    for part, edit in edits:
        weights = edit.on_weights(weights, part.positions(*lengths))
    for part in parts:
        on_gradient = part.use.attachment.on_gradient
        if on_gradient is not None and torch.is_grad_enabled():
            if part.site.is_copy:
                raise TapUnsupported(
                    f"{part.site.module} multiplies the same attention with several values, so "
                    "its gradient is not seen in one place."
                )
            if not weights.requires_grad:
                weights = weights.detach().requires_grad_()
            weights.register_hook(functools.partial(on_gradient, part.site))
    return weights
