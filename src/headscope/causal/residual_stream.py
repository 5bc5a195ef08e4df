"""Residual stream of a text as a sum of components, and `headscope.attribute`.

The input of the first layer, the outputs of heads (z W_O^h), the biases of output projections and
the outputs of MLPs sum to the input of a later layer. The sum requires layers that add the output
of their attention and of one other module to their input. Norms after the attention (Gemma 2,
OLMo 2, BERT) or scaled residuals (Granite) break it, and are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from headscope.attention import Attention
from headscope.causal.batched_forward import ForwardPass, layer_modules
from headscope.causal.effects import read_text
from headscope.causal.readout import find_answers, find_position
from headscope.errors import InputError, TapUnsupported
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.tap.projection import Call, recorded_calls, run_module
from headscope.model.tap.recording import REL_TOL, is_close
from headscope.results.effect_data import EffectArray


@dataclass(frozen=True, eq=False)
class Norm:
    """y = w · c(x) / √(mean c(x)² + ε) + b; c takes the mean away (LayerNorm) or not (RMSNorm)."""

    weight: Tensor
    bias: Tensor
    epsilon: float
    is_centered: bool

    def apply(self, x: Tensor) -> Tensor:
        """Return y of `… unit`."""
        return self.frozen(x, x) + self.bias

    def frozen(self, part: Tensor, total: Tensor) -> Tensor:
        """Return the contribution of a part to y − b, with the scale of `total`."""
        scale = (self._centered(total).square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return self._centered(part) * scale * self.weight

    def _centered(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if self.is_centered else x


def fit_norm(module: nn.Module, captured: Tensor) -> Norm | None:
    """Return the norm that a module computes, checked at several scales; None if it is none."""
    rows = captured.detach().reshape(-1, captured.shape[-1])
    generator = torch.Generator().manual_seed(0)
    random = torch.randn((32, rows.shape[-1]), generator=generator).to(rows)
    tried = [rows, random, 0.01 * random + 0.003, 30 * random - 1.0]
    with torch.inference_mode():
        bias = run_module(module, torch.zeros_like(rows[:1]))[0]
        expected = [run_module(module, x) for x in tried]
    stated = {v for v in vars(module).values() if isinstance(v, float) and 0 < v < 1e-2}
    for is_centered in (False, True):
        for epsilon in (*sorted(stated), 0.0):
            plain = Norm(torch.ones_like(bias), torch.zeros_like(bias), epsilon, is_centered)
            unit = plain.apply(random.double())
            weight = (unit * (expected[1] - bias)).sum(0) / unit.square().sum(0)
            norm = Norm(weight.clone(), bias.clone(), epsilon, is_centered)
            if all(
                _is_close(norm.apply(x.double()), y) for x, y in zip(tried, expected, strict=True)
            ):
                return norm
    return None


STREAM_ROUNDINGS = 4


@dataclass(frozen=True, slots=True)
class StreamTerm:
    """Component of the residual stream."""

    name: str
    kind: str
    """`embedding`, `head`, `bias` or `mlp`."""
    layer: int
    """−1 for the input of the first layer."""
    head: int = -1


@dataclass(frozen=True, eq=False)
class Stream:
    """Residual stream of one text: components, and the calls, output and attention of the pass.
    `values` are `part position unit`, float64. By layer, `before` is its input (`position unit`),
    and `mlps` names the module whose output is its MLP term.
    """

    parts: tuple[StreamTerm, ...]
    values: Tensor
    before: Mapping[int, Tensor]
    after: Tensor
    calls: list[Call]
    outputs: ModelOutput
    attentions: Mapping[int, Attention]
    mlps: Mapping[int, str]


def read_stream(model: Model, inputs: Mapping[str, Tensor]) -> Stream:
    """Run a text, decompose its residual stream, and check that the components sum to it."""
    refuse_half_precision(model)
    layers = layer_modules(model)
    if not layers:
        raise refusal(model, "its layers share a module, or are not a list of modules")
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
        outputs, _ = ForwardPass(model, inputs, None).run()
    names = {module: name for name, module in model.module.named_modules()}
    by_name = {call.name: call for call in calls}
    parts: list[StreamTerm] = []
    values: list[Tensor] = []
    before: dict[int, Tensor] = {}
    after: Tensor | None = None
    mlps: dict[int, str] = {}
    for layer, module in layers.items():
        call = by_name.get(names[module])
        projection = projections[block, layer]
        attended = by_name.get(projection.module)
        heads = attentions[layer].outputs
        if call is None or attended is None or heads is None:
            raise refusal(model, f"layer {layer} does not take and return one tensor")
        entering, leaving = _rows(call.given), _rows(call.returned)
        if after is None:
            parts.append(StreamTerm("embedding", "embedding", -1))
            values.append(entering)
        elif not _is_close(entering, after):
            raise refusal(model, f"what enters layer {layer} is not what left the layer before it")
        before[layer], after = entering, leaving
        rest = leaving - entering - _rows(attended.returned)
        # Where the stream is large (SmolLM2's first token), so are the roundings of its sums.
        eps = torch.finfo(call.given.dtype).eps
        rounded = STREAM_ROUNDINGS * eps * (entering.abs() + leaving.abs())
        matching = [
            other.name
            for other in calls
            if other.name.startswith(f"{names[module]}.")
            and other.returned.numel() == rest.numel()
            and _is_close(_rows(other.returned), rest, rounded)
        ]
        if not matching:
            raise refusal(
                model,
                f"layer {layer} does not add the output of its attention ({projection.module}) and "
                "of one other module to its input as they are (a norm behind them, or a factor)",
            )
        attention_name = f"{model.wiring.find(block, layer, None).module}."
        outside = [name for name in matching if not name.startswith(attention_name)]
        mlps[layer] = min(outside or matching, key=lambda name: name.count("."))
        n_heads = heads.shape[1]
        parts += [StreamTerm(f"L{layer} H{head}", "head", layer, head) for head in range(n_heads)]
        values += list(projection.through(heads[0]).cpu())
        parts += [
            StreamTerm(f"L{layer} bias", "bias", layer),
            StreamTerm(f"L{layer} MLP", "mlp", layer),
        ]
        values += [projection.bias.expand_as(rest), rest]
    assert after is not None
    stacked = torch.stack(values)
    if not _is_close(stacked.sum(0), after):
        off = float((stacked.sum(0) - after).abs().max())
        raise refusal(model, f"its parts miss the residual stream by {off:.2g}")
    return Stream(tuple(parts), stacked, before, after, calls, outputs, attentions, mlps)


def find_norm(
    model: Model, stream: Stream, source: Tensor, returned: Tensor, place: str
) -> Norm | None:
    """Return the norm between two tensors of a pass; None if they are equal."""
    entering, leaving = _rows(source), _rows(returned)
    if entering.shape == leaving.shape and _is_close(entering, leaving):
        return None
    for call in stream.calls:
        if call.given.numel() != entering.numel() or call.returned.numel() != leaving.numel():
            continue
        if _is_close(_rows(call.given), entering) and _is_close(_rows(call.returned), leaving):
            norm = fit_norm(call.module, call.given)
            if norm is not None:
                return norm
    raise refusal(model, f"{place} there is not one plain norm (LayerNorm or RMSNorm)")


def refuse_half_precision(model: Model) -> None:
    """Raise TapUnsupported if the dtype is too coarse to check a sum."""
    dtype = model.module.dtype
    if torch.finfo(dtype).eps > REL_TOL:
        name = str(dtype).removeprefix("torch.")
        raise refusal(
            model, f"it computes in {name}, which rounds too much to prove a sum; load it with "
            "dtype='float32'"
        )  # fmt: skip


def refusal(model: Model, reason: str) -> TapUnsupported:
    """Return the error for an architecture whose stream cannot be decomposed."""
    return TapUnsupported(
        f"{model.name} ({model.info.family}) cannot be decomposed into contributions: "
        f"{reason}. hs.effects, which runs the model without a head, works for it."
    )


def _rows(tensor: Tensor) -> Tensor:
    """Return `position unit` of one text, float64."""
    return tensor.detach().double().cpu().reshape(-1, tensor.shape[-1])


def _is_close(left: Tensor, right: Tensor, rounded: Tensor | float = 0.0) -> bool:
    if left.shape != right.shape:
        return False
    size = max(float(right.abs().max()), 1e-6)
    return bool(((left - right).abs() <= REL_TOL * size + rounded).all())


NOT_ONE_STACK = {
    "label": "a classifier",
    "token_label": "a classifier of tokens",
    "seq2seq": "an encoder-decoder",
}


def attribute(
    model: Model | str,
    text: str,
    target: str | int | None = None,
    foil: str | int | Literal[False] | None = None,
    *,
    position: int = -1,
) -> EffectArray:
    """Decompose the logit difference of a prediction into direct contributions.

    logit(target) − logit(foil) = Σ over components of norm(component) · (u_target − u_foil) + a
    constant, with the final norm's scale frozen at this text and u the rows of the unembedding.
    Contributions through later layers are not included. Direct contributions do not replace
    ablation (`headscope.effects`): over SmolLM2's heads the two correlate at about .5.

    Direct logit attribution: Elhage et al. 2021; Wang et al. 2023.

    Args:
        model: language model whose layers add up (GPT-2, Llama, Qwen 2, Gemma, NeoX, Phi, OPT,
            Mixtral and others), or an argument of `headscope.load`.
        text: the text.
        target: token; by default the top prediction.
        foil: token; by default the next prediction, False for the target's logit alone.
        position: position of the prediction; the last token by default.

    Returns:
        Over `component`, with coordinates `kind` (`embedding`, `head`, `bias`, `mlp`,
        `constant`), `layer` and `head` (−1 for none). The sum is checked against the logit
        difference: `attrs["difference"]` is the absolute error.

    Raises:
        TapUnsupported: the architecture does not allow it, with the reason.
    """
    model = as_model(model)
    objective = model.require_objective("Attribution of a prediction")
    if objective not in ("causal", "masked"):
        raise InputError(
            "Attribution is of the tokens that a language model with one stack predicts; "
            f"{model.name} is {NOT_ONE_STACK[objective]}. hs.effects works for it."
        )
    stacks, inputs = read_text(model, text, None, None)
    index = find_position(model, stacks, position)
    assert index is not None
    stream = read_stream(model, inputs)
    unembedding = model.module.get_output_embeddings()
    call = next((c for c in reversed(stream.calls) if c.module is unembedding), None)
    logits: Tensor = stream.outputs["logits"][0].double().cpu()
    if call is None or not isinstance(getattr(unembedding, "weight", None), Tensor):
        raise refusal(model, "it has no unembedding that is one linear module")
    if not _is_close(call.returned[0].double().cpu(), logits):
        raise refusal(model, "its logits are changed (scaled or capped) after the unembedding")
    place = "between the last layer and the unembedding"
    norm = find_norm(model, stream, stream.after, call.given, place)
    answer = find_answers(model, logits[index], target, foil, "logit", index)
    signs = {answer.target: 1.0} | ({} if answer.foil is None else {answer.foil: -1.0})
    weight, bias = unembedding.weight.detach(), getattr(unembedding, "bias", None)
    direction = torch.stack([sign * weight[token].double().cpu() for token, sign in signs.items()])
    direction = direction.sum(0)
    constant = 0.0
    if bias is not None:
        constant = sum(sign * float(bias[token].detach()) for token, sign in signs.items())
    parts = stream.values[:, index]
    if norm is None:
        contributions = parts @ direction
    else:
        contributions = norm.frozen(parts, stream.after[index]) @ direction
        constant += float(norm.bias @ direction)
    values = np.append(contributions.numpy(), constant)
    value = sum(sign * float(logits[index, token]) for token, sign in signs.items())
    difference = abs(float(values.sum()) - value)
    if not is_close(difference, float(logits[index].abs().max())):
        raise refusal(model, f"its parts sum to {values.sum():.6g} and the logits give {value:.6g}")
    return EffectArray(
        values,
        dims="component",
        coords={
            "component": [*(part.name for part in stream.parts), "constant"],
            "kind": ("component", [*(part.kind for part in stream.parts), "constant"]),
            "layer": ("component", [*(part.layer for part in stream.parts), -1]),
            "head": ("component", [*(part.head for part in stream.parts), -1]),
        },
        name="attribution",
        attrs={
            "long_name": "direct contribution to the logit difference",
            "model": model.name,
            "text": text,
            **answer.describe(),
            "sum": float(values.sum()),
            "with": value,
            "difference": difference,
        },
    )
