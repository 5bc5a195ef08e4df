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
from headscope.model.edit import Vectors
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


class Parts:
    """All parts in one computation, in the order they were attached.

    Attributes:
        parts: one or more.
        site: where the computation is, as the model has it that was attached first.
        edits: those that apply here, each with whose it is, in order.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.site = parts[0].site
        self.edits = [
            (part, edit)
            for part in parts
            for edit in part.use.attachment.edits
            if edit.touches(part.site, part.use.circuit.wiring.main_block())
        ]

    @property
    def wants_scores(self) -> bool:
        """Does anyone read scores?"""
        return any(part.use.attachment.wants_scores for part in self.parts)

    @property
    def wants_gradient(self) -> bool:
        """Does anyone hear of gradients?"""
        return any(part.use.attachment.on_gradient is not None for part in self.parts)

    @property
    def returns_weights(self) -> bool:
        """Are the weights handed back to the model?"""
        return all(part.use.attachment.returns_weights for part in self.parts)

    def edit_vectors(self, vectors: Vectors) -> Vectors:
        """The vectors after all edits."""
        for part, edit in self.edits:
            vectors = edit.on_vectors(vectors, part.site)
        return vectors

    def edit_outputs(self, outputs: Tensor) -> Tensor:
        """The head outputs after all edits."""
        for _, edit in self.edits:
            outputs = edit.on_outputs(outputs)
        return outputs

    def edit_weights(self, weights: Tensor, n_queries: int, n_keys: int) -> Tensor:
        """The weights after all edits, with a hook where their gradient is wanted.

        With frozen parameters nothing upstream asks for a gradient, so the weights of the
        first layer become a leaf of the graph themselves.
        """
        for part, edit in self.edits:
            positions = part.inputs.positions(part.block, n_queries, n_keys)
            weights = edit.on_weights(weights, positions)
        for part in self.parts:
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
