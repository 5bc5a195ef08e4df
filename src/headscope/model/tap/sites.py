"""Where in a model attention happens: a table of the block and layer of every call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from headscope.attention import BLOCKS, BlockName
from headscope.errors import InputError

Route = Literal["interface", "fallback"]
"""How the tap reaches the weights: through transformers' attention interface (the
family's own eager function runs inside the tap), or by watching hand-written attention."""
Stops = Literal["uncached", "as is"]


@dataclass(frozen=True, slots=True)
class Site:
    """One attention computation of a forward pass.

    A module alone does not tell the layer: ALBERT runs one module for all its layers, so
    `occurrence` counts the calls within a forward. Nor does a call: a module may take
    several softmaxes, so `computation` counts those.
    """

    block: BlockName
    layer: int
    module: str
    occurrence: int
    computation: int
    n_heads: int
    n_groups: int | None
    """Heads of keys and values in this layer; None where the tap does not see them."""
    head_size: int | None
    """Neurons of a query or key vector; None where the tap does not see them."""
    value_size: int | None
    """Neurons of a value vector; None where weights times values are not what the head hands
    on (it is gated, or the tap does not see them)."""
    scale: float | None
    """The factor on q·k in the scores; None where it is not a plain factor."""
    is_dot_product: bool
    """Are the scores `scale · q·k` and a mask, with no bias, cap or position term?"""
    can_edit_vectors: bool
    """Does the score depend on the queries and keys through their product alone?"""
    has_scores: bool = True
    """Is the softmax of the scores, with the sink's where there is one, the attention?"""
    is_copy: bool = False
    """Does the module compute the same map once more here, for other values? Edits act on it
    too; readers have seen it."""


@dataclass(frozen=True)
class Wiring:
    """All sites of a model, and how they are reached."""

    route: Route
    sites: tuple[Site, ...]
    causal_blocks: frozenset[BlockName]
    """Blocks in which no query ever attends to a later key."""
    media: frozenset[str] = frozenset()
    """Names of the pictures and sounds that the checked forward pass was given."""
    copies: tuple[Site, ...] = ()
    """Where a module computes one of the maps once more."""
    may_cache: bool = True
    """Does the model attend the same whether or not it keeps a cache?"""
    stops: Stops | None = None
    """How a forward pass may be left after the last layer's attention, which stays the same to the
    last bit: without a cache, or else as the model runs by itself. None: it was not proved."""
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
        """How often a module is called in one forward pass."""
        return max(self._by_module[module]) + 1

    def at(self, module: str, occurrence: int) -> dict[int, Site]:
        """Computation → site, for one call of one module."""
        return self._by_module[module].get(occurrence, {})

    @property
    def blocks(self) -> tuple[BlockName, ...]:
        """The blocks the model has, in a fixed order."""
        present = {site.block for site in self.sites}
        return tuple(block for block in BLOCKS if block in present)

    def of_block(self, block: BlockName) -> tuple[Site, ...]:
        """The sites of one block, by layer."""
        return tuple(sorted((s for s in self.sites if s.block == block), key=lambda s: s.layer))

    def main_block(self) -> BlockName:
        """The block of the text itself: `self`, or `encoder` in encoder-decoders; `text`
        where there are towers only.
        """
        return self.blocks[0]

    def find(self, block: BlockName | None, layer: int, head: int | None) -> Site:
        """The site of a layer, after checking that it (and the head) exists."""
        block = self.main_block() if block is None else block
        sites = {site.layer: site for site in self.of_block(block)}
        if not sites:
            raise InputError(
                f"No {block!r} attention was seen in this model, but {', '.join(self.blocks)}. If "
                "it shows only with an image or a recording, trace one first."
            )
        if layer not in sites:
            known = ", ".join(map(str, sites))
            raise InputError(f"There is no layer {layer!r}; layers with attention: {known}.")
        site = sites[layer]
        if head is not None and not 0 <= head < site.n_heads:
            raise InputError(f"Layer {layer} has heads 0 to {site.n_heads - 1}, not {head!r}.")
        return site
