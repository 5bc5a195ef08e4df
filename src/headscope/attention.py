"""Attention of one layer and batch, as the tap passes it to metrics.

Models and metrics share only `Attention`. Do not keep it beyond the call: its tensors belong to the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Literal, get_args

from headscope.lazy import Tensor

BlockName = Literal["self", "encoder", "decoder", "cross", "text", "vision", "audio"]
"""Attention block of the model.

`self`: the only stack, or the one that generates text. `encoder`, `decoder` and `cross` (decoder
tokens attending to encoder tokens): blocks of an encoder-decoder. `text`, `vision` and `audio`:
another tower, as in CLIP or LLaVA. With `self`, `cross` is the text's attention to a tower
(Mllama).
"""
BLOCKS: tuple[BlockName, ...] = get_args(BlockName)
"""All blocks, in the order of models and traces; the first is the main one."""


def query_stack(block: str, stacks: Container[str]) -> str:
    """Return the stack whose tokens attend: each block but `cross` is a stack of its name."""
    if block != "cross":
        return block
    return "decoder" if "decoder" in stacks else "self"


def key_stack(block: str, stacks: Container[str]) -> str:
    """Return the stack whose tokens are attended to in a block. Without an encoder, the keys of
    `cross` are a stack named `cross`: a tower's output need not be its tokens.
    """
    return "encoder" if block == "cross" and "encoder" in stacks else block


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Attention of one layer for one batch, with the vectors behind it.

    A head is always a *query* head. With grouped queries, keys and values have fewer heads: head
    `h` uses group `h * n_groups // n_heads`.

    Rows of padded queries are garbage in every implementation: weight by `query_mask`. Rows may sum
    to less than 1 in models with sink logits, and to 0 in an ablated head.
    """

    weights: Tensor
    """`batch head query key`, after the softmax (and after any edit)."""
    block: BlockName
    layer: int
    is_causal: bool
    query_mask: Tensor | None = None
    """`batch query`, true for real tokens; None without padding."""
    key_mask: Tensor | None = None
    """`batch key`, true for real tokens; None without padding."""
    queries: Tensor | None = None
    """`batch head query neuron`, after norms and rotary embedding."""
    keys: Tensor | None = None
    """`batch group key neuron`, after norms and rotary embedding."""
    values: Tensor | None = None
    """`batch group key neuron`"""
    outputs: Tensor | None = None
    """`batch head query neuron`: output of each head before the output projection."""
    scores: Tensor | None = None
    """`batch head query key`: input of the softmax; only on request."""
    sink_logits: Tensor | None = None
    """`batch head query`: learned sink logit of the softmax, in models that have one; only on
    request."""
    gradients: Tensor | None = None
    """`batch head query key`: ∂L/∂a of each document's loss; only after a backward pass."""
    rows: slice | None = None
    """Queries of these weights, if they come in blocks of rows; None for all. In a causal block
    the keys end with the last of these queries."""
    n_rows: int = 0
    """Number of queries in all blocks; 0 for a whole layer."""
    are_scores: bool = False
    """True if `weights` holds q·k. The reader then replaces it by softmax(scale · q·k)."""
    scale: float = 1.0
    """Factor on q·k; only with `are_scores`."""
    n_visible: Tensor | None = None
    """`batch`: keys before the padding; None without padding. Only with `are_scores`."""
    again: Callable[[slice], Tensor] | None = None
    """Function that computes the weights of some rows once more, also after the forward pass; only
    with blocks of rows."""

    @property
    def is_last(self) -> bool:
        """True for a whole layer, and for its last block of rows."""
        return self.rows is None or self.rows.stop == self.n_rows

    def in_float32(self) -> Attention:
        """Return float16 and bfloat16 weights as float32: sums of distances overflow."""
        weights = self.weights
        return replace(self, weights=weights if weights.element_size() >= 4 else weights.float())

    def without_vectors(self) -> Attention:
        """Return the weights alone, for callers that keep several layers."""
        return replace(
            self, queries=None, keys=None, values=None, outputs=None, scores=None, sink_logits=None
        )

    @property
    def n_heads(self) -> int:
        """Number of (query) heads."""
        return int(self.weights.shape[1])


LayerReader = Callable[[Attention], None]
"""Function called once per layer during a forward pass, in the order of the model."""
