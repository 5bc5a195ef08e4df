"""One layer of one batch: the object that passes from a model to whoever measures it.

Models and metrics never meet; both know only `Attention`. It is what the tap hands to a
reader at each layer, and it must not be kept beyond the call: its tensors are the
model's own, and holding them is what makes extraction expensive.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor

BlockName = Literal["self", "encoder", "decoder", "cross", "text", "vision", "audio"]
"""Which attention of the model.

`self`: the only stack, or the one that writes the text. `encoder`, `decoder` and `cross`
(decoder tokens attending to encoder tokens): the attentions of an encoder-decoder. `text`,
`vision` and `audio`: a further tower, as in CLIP or beside the language model of LLaVA. Beside
`self`, `cross` is the text's attention to what a tower made (Mllama).
"""
BLOCKS: tuple[BlockName, ...] = get_args(BlockName)
"""All blocks, in the order in which models and traces list theirs; the first is the main one."""


def query_stack(block: str, stacks: Container[str]) -> str:
    """The stack whose tokens attend in a block.

    Each block but `cross` is a stack of its own name.

    Args:
        block: the block.
        stacks: the stacks there are: names of token sequences.
    """
    if block != "cross":
        return block
    return "decoder" if "decoder" in stacks else "self"


def key_stack(block: str, stacks: Container[str]) -> str:
    """The stack whose tokens are attended to in a block.

    Where no encoder is among the stacks, the keys of `cross` are a stack of their own, also
    called `cross`: what a tower hands over need not be its tokens one by one.
    """
    return "encoder" if block == "cross" and "encoder" in stacks else block


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """The attention of one layer for one batch, and the vectors it was made of.

    A head is always a *query* head. With grouped queries, keys and values have fewer
    heads: head `h` uses group `h * n_groups // n_heads`.

    Rows of padded queries are garbage in every implementation (a softmax over nothing but
    masked scores is uniform): weight by `query_mask`. Rows may sum to less than 1 in
    models with attention sinks, and to 0 in an ablated head.
    """

    weights: Tensor
    """`batch head query key`, after the softmax (and after any edit)."""
    block: BlockName
    layer: int
    is_causal: bool
    query_mask: Tensor | None = None
    """`batch query`, true for real tokens; None where nothing is padded."""
    key_mask: Tensor | None = None
    """`batch key`, likewise."""
    queries: Tensor | None = None
    """`batch head query neuron`, after norms and rotary embedding."""
    keys: Tensor | None = None
    """`batch group key neuron`, likewise."""
    values: Tensor | None = None
    """`batch group key neuron`"""
    outputs: Tensor | None = None
    """`batch head query neuron`: what each head adds, before the output projection."""
    scores: Tensor | None = None
    """`batch head query key`, what the softmax was taken of; only where asked for."""
    sink_logits: Tensor | None = None
    """`batch head query`: the score that takes part in the softmax beside those of the keys, in
    models with attention sinks; only where scores are asked for."""
    gradients: Tensor | None = None
    """`batch head query key`, ∂L/∂a of each document's own loss; only where a backward pass ran."""

    def without_vectors(self) -> Attention:
        """The weights alone, for those who must keep several layers: scores go too."""
        return replace(
            self, queries=None, keys=None, values=None, outputs=None, scores=None, sink_logits=None
        )

    @property
    def n_heads(self) -> int:
        """Number of (query) heads."""
        return int(self.weights.shape[1])


LayerReader = Callable[[Attention], None]
"""Called once per layer during a forward pass, in the order the model computes."""
