"""A first-order estimate of every head's effect, from one backward pass.

For zero it is −Σ a·∂m/∂a over the head's attention, which equals −Σ z·∂m/∂z over its output z;
for a mean z̄, Σ (z̄ − z)·∂m/∂z. Michel et al. 2019, equation 3; attribution patching.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention, Block
from headscope.causal.passes import Pass
from headscope.causal.readout import Readout, Turn, refuse_nonsense
from headscope.causal.replacement import Replacement
from headscope.causal.rows import HeadSet, MakeReadout
from headscope.errors import InputError
from headscope.model.objective import frozen
from headscope.model.row_edits import WatchOutputs
from headscope.model.tap.attachment import Attachment
from headscope.model.tap.sites import Site


def estimate_effects(
    text: Pass, make: MakeReadout, sets: Sequence[HeadSet], replacement: Replacement
) -> tuple[Readout, float, np.ndarray]:
    """What was read, its value, and for each set the sum of its heads' first-order effects."""
    block = replacement.block
    if replacement.means is None:
        readout, value, by_layer = _of_attention(text, make, block)
    else:
        readout, value, outputs, gradients = output_gradients(text, make, block)
        by_layer = {}
        for layer, output in outputs.items():
            change = replacement.means[layer][:, None].to(output) - output
            change[:, 0] = 0  # the first position is kept
            by_layer[layer] = (change * gradients[layer]).sum((-1, -2)).double().cpu().numpy()
    sums = np.array([sum(by_layer[layer][head] for layer, head in heads) for heads in sets])
    return readout, value, sums


def _of_attention(
    text: Pass, make: MakeReadout, block: Block
) -> tuple[Readout, float, dict[int, np.ndarray]]:
    """By layer, `head`: −Σ a·∂m/∂a."""
    kept: dict[int, Tensor] = {}
    estimates: dict[int, np.ndarray] = {}

    def keep(attention: Attention) -> None:
        if attention.block == block:
            kept[attention.layer] = attention.weights.detach()

    def hear(site: Site, gradient: Tensor) -> None:
        if site.block == block:
            product = kept.pop(site.layer)[0].double() * gradient[0].double()
            estimates[site.layer] = -product.sum((-1, -2)).cpu().numpy()

    tap = Attachment(keep, on_gradient=hear, returns_weights=False)
    return *_backward(text, make, tap), estimates


def output_gradients(
    text: Pass, make: MakeReadout, block: Block
) -> tuple[Readout, float, dict[int, Tensor], dict[int, Tensor]]:
    """What was read, its value, and by layer `head query neuron`: head outputs z and ∂m/∂z."""
    outputs: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}

    def keep(layer: int, value: Tensor) -> None:
        outputs[layer] = value[0]

    def hear(layer: int, gradient: Tensor) -> None:
        gradients[layer] = gradient[0]

    edits = tuple(
        WatchOutputs(layer=site.layer, head=0, block=block, on_value=keep, on_gradient=hear)
        for site in text.model.wiring.of_block(block)
    )
    tap = Attachment(edits=edits, returns_weights=False)
    return *_backward(text, make, tap), outputs, gradients


def _backward(text: Pass, make: MakeReadout, tap: Attachment) -> tuple[Readout, float]:
    with torch.enable_grad(), text.model.attached(tap), frozen(text.model.module):
        outputs, logits = text.run()
        readout = make(outputs, None if logits is None else logits.detach())
        if isinstance(readout, Turn):
            raise InputError(
                "1 − cosine has a gradient of 0 where nothing is changed: method='gradient' needs "
                "a model with logits, or a function of the output as target."
            )
        value = readout.read(outputs, logits)[0]
        refuse_nonsense(text.model, readout, value.detach().double().cpu().numpy())
        value.backward()
    return readout, value.item()
