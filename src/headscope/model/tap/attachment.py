"""What someone wants of the tap: to read, to change, to hear of gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from headscope.attention import LayerReader
from headscope.model.edit import Edit
from headscope.model.tap.sites import Site


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """One use of the tap: who reads, what is changed, what else is wanted."""

    reader: LayerReader | None = None
    edits: tuple[Edit, ...] = ()
    on_gradient: Callable[[Site, Tensor], None] | None = None
    """Called during the backward pass with ∂L/∂a, `batch head query key`, layer by layer."""
    wants_scores: bool = False
    returns_weights: bool = True
    """Hand the weights back to the model, so that `output_attentions=True` still works.
    Off, a layer's attention is freed as soon as its reader returns."""
    stops: bool = False
    """Leave the forward pass by `AllRead` once the reader has seen every layer."""


class AllRead(Exception):
    """Every layer was read, and nobody asked for what the model would still compute."""
