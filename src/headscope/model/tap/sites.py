"""Sites of attention in a model: the block and layer of every call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from headscope.attention import BLOCKS, BlockName
from headscope.errors import InputError

Route = Literal["interface", "fallback"]
"""Way to the weights: transformers' attention interface (the family's eager function runs inside
the tap), or watching hand-written attention."""
Stops = Literal["uncached", "as is"]


@dataclass(frozen=True, slots=True)
class Site:
    """One attention computation of a forward pass.

    A module alone does not identify the layer: ALBERT runs one module for all its layers, so
    `occurrence` counts the calls within a forward pass. A module may take several softmaxes, so
    `computation` counts these.
    """

    block: BlockName
    layer: int
    module: str
    occurrence: int
    computation: int
    n_heads: int
    n_groups: int | None
    """Key/value heads in this layer; None if the tap does not see them."""
    head_size: int | None
    """Neurons of a query or key vector; None if the tap does not see them."""
    value_size: int | None
    """Neurons of a value vector; None if weights times values differ from the head output (gated).
    Also None if the tap does not see them."""
    scale: float | None
    """Factor on q·k in the scores; None if the scores are not a multiple of q·k."""
    is_dot_product: bool
    """True if the scores are `scale · q·k` and a mask, without bias, cap or position term."""
    can_edit_vectors: bool
    """True if the score depends on the queries and keys through their product alone."""
    has_scores: bool = True
    """True if the attention is the softmax of the scores (with the sink logit, if any)."""
    is_plain: bool = False
    """True if the attention is softmax(scale · q·k) under the mask, also for high scores."""
    is_copy: bool = False
    """True if the module repeats a map here, for other values. Edits apply to the copy too;
    readers get only the first."""


@dataclass(frozen=True)
class Wiring:
    """All sites of a model and the route to them."""

    route: Route
    sites: tuple[Site, ...]
    causal_blocks: frozenset[BlockName]
    """Blocks in which no query ever attends to a later key."""
    media: frozenset[str] = frozenset()
    """Names of the image and audio inputs of the checked forward pass."""
    copies: tuple[Site, ...] = ()
    """Sites at which a module repeats one of the maps."""
    may_cache: bool = True
    """True if the attention is the same with and without a cache."""
    stops: Stops | None = None
    """Proven way to end a pass after the last layer with bit-equal attention: without a cache, or
    with the model's defaults. None if neither was proven."""
    has_rows: bool = False
    """True if blocks of rows gave the same attention as whole layers."""
    _by_module: dict[str, dict[int, dict[int, Site]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table: dict[str, dict[int, dict[int, Site]]] = {}
        for site in (*self.sites, *self.copies):
            calls = table.setdefault(site.module, {})
            calls.setdefault(site.occurrence, {})[site.computation] = site
        object.__setattr__(self, "_by_module", table)

    @property
    def modules(self) -> Iterable[str]:
        """Names of the modules that compute attention."""
        return self._by_module

    def calls_per_forward(self, module: str) -> int:
        """Return the number of calls of a module in one forward pass."""
        return max(self._by_module[module]) + 1

    def at(self, module: str, occurrence: int) -> dict[int, Site]:
        """Return computation → site for one call of one module."""
        return self._by_module[module].get(occurrence, {})

    @property
    def blocks(self) -> tuple[BlockName, ...]:
        """Blocks of the model, in a fixed order."""
        present = {site.block for site in self.sites}
        return tuple(block for block in BLOCKS if block in present)

    def of_block(self, block: BlockName) -> tuple[Site, ...]:
        """Return the sites of one block, by layer."""
        return tuple(sorted((s for s in self.sites if s.block == block), key=lambda s: s.layer))

    def main_block(self) -> BlockName:
        """Return the block of the text: `self`, `encoder`, or `text` if there are only towers."""
        return self.blocks[0]

    def find(self, block: BlockName | None, layer: int, head: int | None) -> Site:
        """Return the site of a layer; raise InputError if the layer or head does not exist."""
        block = block or self.main_block()
        sites = {site.layer: site for site in self.of_block(block)}
        if not sites:
            raise InputError(
                f"No {block!r} attention was seen in this model, but {', '.join(self.blocks)}. "
                "If the block needs an image or a recording, trace one first."
            )
        if (site := sites.get(layer)) is None:
            layers = ", ".join(map(str, sites))
            raise InputError(f"There is no layer {layer!r}; layers with attention: {layers}.")
        if head is not None and not 0 <= head < site.n_heads:
            raise InputError(f"Layer {layer} has heads 0 to {site.n_heads - 1}, not {head!r}.")
        return site
