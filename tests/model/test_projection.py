"""The output projection of heads: found by value in every family, or refused with a reason."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import headscope as hs
from headscope.errors import TapUnsupported
from headscope.model.tap.projection import find_projections
from tests.families.zoo import DECODERS, ENCODER_DECODERS, ENCODERS, Family, build

if TYPE_CHECKING:
    from headscope.model.model import Model

FAMILIES = [*ENCODERS, *DECODERS, *ENCODER_DECODERS]
REFUSED = {
    "bitnet": "attn_sub_norm .* is not affine",  # a norm before the projection
    "convbert": "no module with parameters",  # convolutions beside the heads
    "diffllama": "does not see the outputs of its heads",  # halves are subtracted, then normed
    "ibert": "",  # rounds its activations
    "qwen3_next": "no module with parameters",  # a gate before the projection
    "squeezebert": "",  # units before positions
    "xlnet": "no module with parameters",  # its projection is a parameter, not a module
}


def _member(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_found_or_refused(family: Family) -> None:
    model = hs.load(build(family))
    if family.name in REFUSED:
        with pytest.raises(TapUnsupported, match=f"is not known: .*{REFUSED[family.name]}") as seen:
            find_projections(model)
        assert str(pickle.loads(pickle.dumps(seen.value))) == str(seen.value)
        return
    projections = find_projections(model)
    assert set(projections) == {(site.block, site.layer) for site in model.wiring.sites}


def test_parts_of_heads_sum_to_the_layer(tiny_llama: Model) -> None:
    seen: list[Tensor] = []
    module = tiny_llama.module.model.layers[1].self_attn
    hook = module.register_forward_hook(lambda _m, _a, out: seen.append(out[0].detach()))
    trace = tiny_llama.trace("the cat sat")
    hook.remove()
    projection = tiny_llama.projections["self", 1]
    outputs = torch.from_numpy(trace.outputs.sel(layer=1).values)
    parts = projection.through(outputs)
    torch.testing.assert_close(
        parts.sum(0) + projection.bias, seen[-1][0].double(), atol=1e-5, rtol=1e-4
    )
    values = torch.from_numpy(trace.values.sel(layer=1).values)[None]
    lengths = projection.value_lengths(values)[0]
    groups = trace.main.data["group_of_head"].values
    for head, group in enumerate(groups):
        slow = (values[0, group].double() @ projection.weights[head]).norm(dim=-1)
        torch.testing.assert_close(lengths[head].double(), slow, atol=1e-6, rtol=1e-5)


def test_bert_takes_the_dense_layer_not_the_norm(tiny_bert: Model) -> None:
    assert tiny_bert.projections["self", 0].module.endswith("attention.output.dense")


class _LowRank(nn.Module):
    """A linear layer and a low-rank change to it, as adapters have it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.up(self.down(x))  # type: ignore[no-any-return]


class _Rounded(nn.Module):
    """Quantizes its input dynamically: not linear, though nearly."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.weight = base.weight

    def forward(self, x: Tensor) -> Tensor:
        step = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 15
        return nn.functional.linear((x / step).round() * step, self.weight)


class _Gated(nn.Module):
    """A layer whose head outputs reach the stream past the affine module too."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.gate = nn.Linear(base.in_features, base.out_features)
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(x)) * self.base(x)


def _with(wrap: type[nn.Module]) -> Model:
    module = build(_member("llama"))
    for layer in module.model.layers:
        layer.self_attn.o_proj = wrap(layer.self_attn.o_proj)
    return hs.load(module.eval())


def test_an_adapter_counts_with_its_base() -> None:
    model = _with(_LowRank)
    projection = model.projections["self", 0]
    assert projection.module == "model.layers.0.self_attn.o_proj"
    wrapper = model.module.model.layers[0].self_attn.o_proj
    whole = wrapper.base_layer.weight + wrapper.up.weight @ wrapper.down.weight
    torch.testing.assert_close(
        projection.weights.flatten(0, 1), whole.T.double(), atol=1e-6, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("wrap", "reason"),
    [(_Rounded, "is not affine in them"), (_Gated, "reach the rest of the model past")],
)
def test_what_is_not_linear_is_refused(wrap: type[nn.Module], reason: str) -> None:
    model = _with(wrap)
    with pytest.raises(TapUnsupported, match=reason):
        _ = model.projections
    with pytest.raises(TapUnsupported, match=r"hs\.effects do not"):
        _ = model.projections


def test_trained_weights_are_read_anew() -> None:
    model = hs.load(build(_member("llama")))
    before = model.projections["self", 0].weights
    assert model.projections["self", 0].weights is before
    with torch.no_grad():
        model.module.model.layers[0].self_attn.o_proj.weight.mul_(2)
    torch.testing.assert_close(model.projections["self", 0].weights, 2 * before)
