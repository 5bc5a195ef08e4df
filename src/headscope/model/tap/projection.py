"""The output projection of each head, W_O^h, found by value and proved.

A head adds z W_O^h to the residual stream: its output z through its slice of the output projection.
Families differ in the module and its weight layout, so names are not used. The projection is the
outermost affine module whose input is the concatenation of the head outputs. Then W_O^h =
module(E_h) − module(0), for linear layers, transposed ones (GPT-2) and low-rank adapters alike.
Three properties are proved on captured activations. The module is affine there. Its output has the
width of the residual stream. Head outputs have no other route: with the module's output held fixed,
the model's output does not depend on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from headscope.attention import Attention, BlockName, LayerReader
from headscope.errors import TapUnsupported
from headscope.model.edits import Edit, Positions
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.example import examples
from headscope.model.tap.interrupts import held
from headscope.model.tap.reference import main_output

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.trace import Block


@dataclass(slots=True)
class Call:
    """One call of a module: its first input and its output."""

    name: str
    module: nn.Module
    given: Tensor
    returned: Tensor
    is_plain: bool
    """True if this input is the only tensor argument."""
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)


@contextmanager
@held
def recorded_calls(root: nn.Module) -> Iterator[list[Call]]:
    """Within the block, record every call with a tensor as input and output."""
    calls: list[Call] = []
    with ExitStack() as stack:
        for name, module in root.named_modules():

            def keep(module: Any, args: Any, kwargs: Any, output: object, name: str = name) -> None:
                tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
                result = output[0] if isinstance(output, tuple) and output else output
                if tensors and isinstance(result, Tensor):
                    is_plain = len(tensors) == 1
                    calls.append(Call(name, module, tensors[0], result, is_plain, args, kwargs))

            stack.callback(module.register_forward_hook(keep, with_kwargs=True).remove)
        yield calls


def run_module(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return a module's output for a tensor, in float64."""
    result = module(tensor)
    output = result[0] if isinstance(result, tuple) else result
    return torch.as_tensor(output).double()


DTYPE_REL_TOLS = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Maximum difference relative to the size of what is compared, by precision."""
HALF_REL_TOL = 3e-2
SiteKey = tuple[BlockName, int]


@dataclass(frozen=True, eq=False)
class Projection:
    """The output projection of one layer, head by head: W_O^h (`head neuron unit`) and what the
    module adds for head outputs of 0 (`unit`), float64.

    `lengths` (`head neuron neuron`, float32) give ‖v W_O^h‖ = ‖v R‖, with Rᵀ of the QR
    decomposition of W_O^hᵀ in float64, because a Gram matrix squares the condition.
    """

    module: str
    weights: Tensor
    bias: Tensor
    lengths: Tensor = field(repr=False)

    def through(self, outputs: Tensor) -> Tensor:
        """Return what heads (`… head query neuron`) add to the stream: `… head query unit`."""
        return outputs.double() @ self.weights.to(outputs.device)

    def value_lengths(self, values: Tensor) -> Tensor:
        """Return ‖v W_O^h‖ of values `batch group key neuron`: `batch head key`."""
        lengths = self.lengths.to(values.device, torch.promote_types(values.dtype, torch.float32))
        n_heads, n_groups = lengths.shape[0], values.shape[1]
        spread = values.to(lengths).repeat_interleave(n_heads // n_groups, 1)
        moved: Tensor = torch.linalg.vector_norm(spread @ lengths, dim=-1)
        return moved


def find_projections(
    model: Model, example: Mapping[str, object] | None = None
) -> dict[SiteKey, Projection]:
    """Find and prove the output projection of every layer; TapUnsupported if one is unproven."""
    inputs = dict(example or next(examples(model.module)))
    outputs: dict[SiteKey, Tensor] = {}

    def read(attention: Attention) -> None:
        if attention.outputs is None:
            raise _refusal(model, attention.layer, "the tap does not see the outputs of its heads")
        outputs[attention.block, attention.layer] = attention.outputs

    with torch.inference_mode(), recorded_calls(model.module) as calls:
        with model.tapped(read):
            result = model.module(**model.to_device(inputs))
        reference = main_output(result).double()
    chosen: dict[SiteKey, Call] = {}
    projections: dict[SiteKey, Projection] = {}
    for site, by_head in outputs.items():
        joined = by_head.transpose(1, 2).flatten(2)  # `batch query head·neuron`
        chosen[site] = _outermost_affine(model, site, joined, calls)
        projections[site] = _projection(model, site, chosen[site], *by_head.shape[1::2])
    _prove_only_route(model, inputs, reference, chosen)
    return projections


def _outermost_affine(model: Model, site: SiteKey, joined: Tensor, calls: list[Call]) -> Call:
    """Return the outermost module with parameters that is affine in the head outputs."""
    attention = model.wiring.find(site[0], site[1], None).module
    widths = {call.given.shape[-1] for call in calls if call.name == attention}
    seen = []
    matching = [
        call
        for call in calls
        if call.given.numel() == joined.numel()
        and call.given.shape[-1] == joined.shape[-1]
        and torch.equal(call.given.reshape(joined.shape).to(joined), joined)
        and next(call.module.parameters(), None) is not None
    ]
    for call in sorted(matching, key=lambda call: call.name.count(".")):
        if not call.is_plain:
            seen.append(f"{call.name} takes more than the head outputs")
        elif not torch.isfinite(call.returned).all():
            seen.append(f"{call.name} puts out NaN or infinity: look at its weights")
        elif not _is_affine(call):
            seen.append(f"{call.name} ({type(call.module).__name__}) is not affine in them")
        elif widths and call.returned.shape[-1] not in widths:
            width = call.returned.shape[-1]
            seen.append(f"{call.name} returns {width} units, the stream has {min(widths)}")
        else:
            return call
    reasons = "; ".join(seen) or "no module with parameters takes them as its input"
    raise _refusal(model, site[1], f"of the modules that take its head outputs, {reasons}")


def _is_affine(call: Call) -> bool:
    """True if f(x + y) − f(y) is the same for every y, on captured activations and scaled."""
    captured = call.given
    shuffled = captured.flip(1)
    with torch.inference_mode():
        nothing = run_module(call.module, torch.zeros_like(captured))
        pairs = ((captured, shuffled), (captured, -3 * shuffled), (8 * captured, captured))
        for left, right in pairs:
            both, first, second = (run_module(call.module, x) for x in (left + right, left, right))
            size = max(float(first.abs().max()) + float(second.abs().max()), 1e-6)
            difference = float((both - first - second + nothing).abs().max())
            if not difference <= _rel_tol(captured.dtype) * size:
                return False
    return True


def _rel_tol(dtype: torch.dtype) -> float:
    return DTYPE_REL_TOLS.get(dtype, HALF_REL_TOL)


def _projection(model: Model, site: SiteKey, call: Call, n_heads: int, size: int) -> Projection:
    width = n_heads * size
    identity = torch.eye(width, dtype=call.given.dtype, device=call.given.device)
    with torch.inference_mode():
        rows = identity[None] if call.given.ndim == 3 else identity
        bias = run_module(call.module, torch.zeros_like(rows))[..., :1, :].reshape(-1)
        weights = (run_module(call.module, rows).reshape(width, -1) - bias).cpu()
        expected = call.returned.double().cpu().reshape(-1, weights.shape[1])
        computed = call.given.double().cpu().reshape(-1, width) @ weights + bias.cpu()
    size_of = max(float(expected.abs().max()), 1e-6)
    difference = float((computed - expected).abs().max())
    if not difference <= _rel_tol(call.given.dtype) * size_of:
        raise _refusal(
            model,
            site[1],
            f"{call.name} does not act on its input as on unit vectors: outputs differ by "
            f"{difference:.2g} of {size_of:.2g} (is it quantized dynamically?)",
        )
    by_head = weights.reshape(n_heads, size, -1).clone()
    _, triangles = torch.linalg.qr(by_head.transpose(1, 2), mode="r")
    return Projection(call.name, by_head, bias.cpu().clone(), triangles.transpose(1, 2).float())


@dataclass(frozen=True, slots=True, kw_only=True)
class _HalveAll(Edit):
    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        return weights * 0.5


def _prove_only_route(
    model: Model, inputs: Mapping[str, object], reference: Tensor, chosen: Mapping[SiteKey, Call]
) -> None:
    """Prove that head outputs reach the model's output only through the projections (no gate)."""
    changed = _held(model, inputs, chosen, list(chosen))
    size = max(float(reference.abs().max()), 1e-6)
    allowed = _rel_tol(model.module.dtype) * size
    leak = float((changed - reference).abs().max())
    if leak <= allowed:
        return
    for site, call in chosen.items():
        changed = _held(model, inputs, chosen, [site])
        difference = float((changed - reference).abs().max())
        if not difference <= allowed:
            raise _refusal(
                model,
                site[1],
                f"its head outputs reach the rest of the model past {call.name}: with that "
                "module's output held fixed, the model's output still changes by "
                f"{difference:.2g} of {size:.2g}",
            )
    first = min(layer for _, layer in chosen)
    raise _refusal(model, first, f"head outputs leak past it by {leak:.2g}")


def _held(
    model: Model, inputs: Mapping[str, object], chosen: Mapping[SiteKey, Call], sites: list[SiteKey]
) -> Tensor:
    """Return the model's output with the heads of these layers halved, their projections held."""
    outputs: dict[nn.Module, deque[Tensor]] = {}
    for site in sites:
        outputs.setdefault(chosen[site].module, deque()).append(chosen[site].returned)
    edits = tuple(_HalveAll(block=block, layer=layer, head=0) for block, layer in sites)

    def hold(module: nn.Module, _args: object, output: object) -> object:
        if not outputs[module]:
            return output
        fixed = outputs[module].popleft()
        return (fixed, *output[1:]) if isinstance(output, tuple) else fixed

    with torch.inference_mode(), ExitStack() as stack:
        for module in outputs:
            stack.callback(module.register_forward_hook(hold).remove)
        stack.enter_context(model.attached(Attachment(edits=edits)))
        return main_output(model.module(**model.to_device(inputs))).double()


def _refusal(model: Model, layer: int, reason: str) -> TapUnsupported:
    return TapUnsupported(
        f"The output projection of {model.info.family}'s layer {layer} is not known: {reason}. "
        "Norm-weighted attention and attribution need it; attention itself and hs.effects do not."
    )


class NormWeights:
    """A reader that weights each layer's attention by norms and passes it on.

    n[i,j] = a[i,j] · ‖v_j W_O^h‖. The value includes its bias; the output projection's own bias is
    left out. Each row is divided by its sum, so that every query counts as under plain attention
    and formulas of metrics do not change. Kobayashi et al. 2020.

    `n_empty` counts rows of real queries whose norms are all 0; they stay 0, so they add nothing to
    sums of attention.
    """

    def __init__(self, model: Model, reader: LayerReader) -> None:
        self._model = model
        self._projections = model.projections
        self._reader = reader
        self.n_empty = 0

    def __call__(self, attention: Attention) -> None:
        """Weight one layer and pass it on."""
        if attention.values is None:
            raise TapUnsupported(
                f"The tap does not see the values of {self._model.info.family}, so over='norm' "
                "cannot be measured."
            )
        projection = self._projections[attention.block, attention.layer]
        moved = attention.weights * projection.value_lengths(attention.values)[:, :, None]
        total = moved.sum(-1, keepdim=True)
        is_empty = total <= 0
        if bool(is_empty.any()):
            mask = attention.query_mask
            real = is_empty[..., 0] if mask is None else is_empty[..., 0] & mask[:, None]
            self.n_empty += int(real.sum())
        weights = moved / torch.where(is_empty, 1.0, total)
        self._reader(replace(attention, weights=weights))


def add_lengths(model: Model, block: Block) -> Block:
    """Add `lengths` (`layer head key`) to the block of a trace: ‖v_j W_O^h‖."""
    values = block.values.transpose("layer", "group", "key", "value_neuron").values
    lengths = [
        model.projections[block.name, int(layer)]
        .value_lengths(torch.from_numpy(np.nan_to_num(layer_values))[None])[0]
        .numpy()
        for layer, layer_values in zip(block.data["layer"].values, values, strict=True)
    ]
    return replace(
        block, data=block.data.assign(lengths=(("layer", "head", "key"), np.stack(lengths)))
    )
