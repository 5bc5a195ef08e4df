"""The residual stream of a text as a sum of named parts, proved where the architecture allows it.

What enters the first layer, what each head adds (z W_O^h), the bias of each output projection and
what each MLP adds: together they are what enters a later layer. This holds where every layer adds
the output of its attention and of one other module to its input as they are, and hands the sum
on; norms behind the attention (Gemma 2, OLMo 2, BERT) or scaled residuals (Granite) break it, and
are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.attention import Attention
from headscope.causal.norms import Norm, fit_norm
from headscope.causal.passes import Pass
from headscope.causal.replay import layer_modules
from headscope.errors import TapUnsupported
from headscope.model.model import Model
from headscope.model.tap.calls import Call, recorded_calls

TOLERANCE = 1e-4
ROUNDINGS = 4


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the residual stream."""

    name: str
    kind: str
    """`embedding`, `head`, `bias` or `mlp`."""
    layer: int
    """−1 for what enters the first layer."""
    head: int = -1


@dataclass(frozen=True, eq=False)
class Stream:
    """One text's residual stream.

    Attributes:
        parts: what it is made of.
        values: `part position unit`, float64.
        before: by layer, `position unit`: what enters it.
        after: what leaves the last layer.
        calls: all calls of modules in the pass.
        outputs: of the model.
        attentions: by layer, what the tap read.
    """

    parts: tuple[Part, ...]
    values: Tensor
    before: Mapping[int, Tensor]
    after: Tensor
    calls: list[Call]
    outputs: ModelOutput
    attentions: Mapping[int, Attention]

    def below(self, layer: int) -> tuple[tuple[Part, ...], Tensor]:
        """The parts of what enters a layer."""
        chosen = [i for i, part in enumerate(self.parts) if part.layer < layer]
        return tuple(self.parts[i] for i in chosen), self.values[chosen]


def read_stream(model: Model, inputs: Mapping[str, Tensor]) -> Stream:
    """Run a text and take its residual stream apart, with proof that the parts sum.

    Raises:
        TapUnsupported: the architecture does not add its parts up, with what was seen.
    """
    refuse_half_precision(model)
    layers = layer_modules(model)
    if not layers:
        raise refusal(model, "its layers share a module, or are no list of modules")
    attentions: dict[int, Attention] = {}
    block = model.wiring.main_block()

    def keep(attention: Attention) -> None:
        if attention.block == block:
            attentions[attention.layer] = attention

    projections = model.projections
    with (
        torch.inference_mode(),
        model.tapped(keep, scores=True),
        recorded_calls(model.module) as calls,
    ):
        outputs, _ = Pass(model, inputs, None).run()
    names = {module: name for name, module in model.module.named_modules()}
    by_name = {call.name: call for call in calls}
    parts: list[Part] = []
    values: list[Tensor] = []
    before: dict[int, Tensor] = {}
    after: Tensor | None = None
    for layer, module in layers.items():
        call = by_name.get(names[module])
        projection = projections[block, layer]
        attended = by_name.get(projection.module)
        heads = attentions[layer].outputs
        if call is None or attended is None or heads is None:
            raise refusal(model, f"layer {layer} does not take and return one tensor")
        entering, leaving = _rows(call.given), _rows(call.returned)
        if after is None:
            parts.append(Part("embedding", "embedding", -1))
            values.append(entering)
        elif not _is_close(entering, after):
            raise refusal(model, f"what enters layer {layer} is not what left the layer before it")
        before[layer], after = entering, leaving
        rest = leaving - entering - _rows(attended.returned)
        # Where the stream is large (SmolLM2's first token), so is what its sums round away.
        rounded = ROUNDINGS * torch.finfo(call.given.dtype).eps * (entering.abs() + leaving.abs())
        if not any(_is_close(_rows(other.returned), rest, rounded) for other in calls
                   if other.name.startswith(f"{names[module]}.")
                   and other.returned.numel() == rest.numel()):  # fmt: skip
            raise refusal(
                model,
                f"layer {layer} does not add the output of its attention ({projection.module}) and "
                "of one other module to its input as they are (a norm behind them, or a factor)",
            )
        n_heads = heads.shape[1]
        parts += [Part(f"L{layer} H{head}", "head", layer, head) for head in range(n_heads)]
        values += list(projection.through(heads[0]).cpu())
        parts += [Part(f"L{layer} bias", "bias", layer), Part(f"L{layer} MLP", "mlp", layer)]
        values += [projection.bias.expand_as(rest), rest]
    assert after is not None
    stacked = torch.stack(values)
    if not _is_close(stacked.sum(0), after):
        off = float((stacked.sum(0) - after).abs().max())
        raise refusal(model, f"its parts miss the residual stream by {off:.2g}")
    return Stream(tuple(parts), stacked, before, after, calls, outputs, attentions)


def find_norm(
    model: Model, stream: Stream, given: Tensor, returned: Tensor, where: str
) -> tuple[Norm | None, Tensor]:
    """The one norm between two tensors of a pass, with `position unit` of its output; None where
    they are equal.
    """
    entering, leaving = _rows(given), _rows(returned)
    if entering.shape == leaving.shape and _is_close(entering, leaving):
        return None, leaving
    for call in stream.calls:
        if call.given.numel() != entering.numel() or call.returned.numel() != leaving.numel():
            continue
        if _is_close(_rows(call.given), entering) and _is_close(_rows(call.returned), leaving):
            norm = fit_norm(call.module, call.given)
            if norm is not None:
                return norm, leaving
    raise refusal(model, f"{where} there is not one plain norm (LayerNorm or RMSNorm)")


def refuse_half_precision(model: Model) -> None:
    """Refuse a model whose numbers round more than sums can be proved to."""
    dtype = model.module.dtype
    if torch.finfo(dtype).eps > TOLERANCE:
        name = str(dtype).removeprefix("torch.")
        raise refusal(
            model, f"it computes in {name}, which rounds too much to prove a sum; load it with "
            "dtype='float32'"
        )  # fmt: skip


def refusal(model: Model, reason: str) -> TapUnsupported:
    """The error of an architecture whose stream cannot be taken apart."""
    return TapUnsupported(
        f"{model.name} ({model.info.family}) cannot be taken apart into what each part adds: "
        f"{reason}. hs.effects, which runs the model without a head, works for it."
    )


def _rows(tensor: Tensor) -> Tensor:
    """`position unit`, float64, of one text."""
    return tensor.detach().double().cpu().reshape(-1, tensor.shape[-1])


def _is_close(left: Tensor, right: Tensor, rounded: Tensor | float = 0.0) -> bool:
    if left.shape != right.shape:
        return False
    size = max(float(right.abs().max()), 1e-6)
    return bool(((left - right).abs() <= TOLERANCE * size + rounded).all())
