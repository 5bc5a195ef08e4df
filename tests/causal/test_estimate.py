"""First-order estimates, against small steps, in every family of the zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import headscope as hs
from headscope.causal.ablation import Replacement
from headscope.causal.batched_forward import ForwardPass
from headscope.causal.effects import estimate_effects, output_gradients
from headscope.causal.readout import CustomScalar
from headscope.errors import TapUnsupported
from headscope.model.edits import ReplaceRows, ScaleKeys
from tests.families.zoo import DECODERS, ENCODERS, build

if TYPE_CHECKING:
    from transformers.utils.generic import ModelOutput

    from headscope.model.edits import Edit
    from headscope.model.model import Model

STEP = 2e-3
N_TOKENS = 9


def last(output: ModelOutput) -> torch.Tensor:
    first = next(x for x in output.to_tuple() if isinstance(x, torch.Tensor))
    return first.flatten(1)[:, -3:].sum(1)


def slope(model: Model, text: ForwardPass, edits: list[Edit]) -> float:
    """What the number gains per step, between a step forward and one back."""
    values = []
    for edit in edits:
        with torch.inference_mode(), model.edit(edit):
            values.append(float(last(text.run()[0])[0]))
    return (values[0] - values[1]) / (2 * STEP)


@pytest.mark.parametrize("family", [*ENCODERS, *DECODERS], ids=lambda family: family.name)
def test_every_layer_has_a_gradient(family: object) -> None:
    """Of the attention, and of the head outputs where the tap sees them."""
    module = build(family)  # type: ignore[arg-type]
    model = hs.load(module)
    block = model.wiring.main_block()
    ids = torch.randint(5, 90, (1, N_TOKENS), generator=torch.Generator().manual_seed(1))
    text = ForwardPass(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, None)
    sites = model.wiring.of_block(block)
    sets = [((site.layer, 1),) for site in sites]
    make = lambda *_: CustomScalar(last)  # noqa: E731
    if family.name == "diffllama":  # type: ignore[attr-defined]
        with pytest.raises(TapUnsupported, match="same attention with several values"):
            estimate_effects(text, make, sets, Replacement(block))
        return
    _, _, estimates = estimate_effects(text, make, sets, Replacement(block))
    members = torch.ones((1, N_TOKENS))
    for site, estimate in zip(sites, estimates, strict=True):
        at = {"layer": site.layer, "head": 1, "block": block, "members": members}
        steps: list[Edit] = [ScaleKeys(factor=1 - by, **at) for by in (STEP, -STEP)]  # type: ignore[arg-type]
        assert estimate == pytest.approx(slope(model, text, steps), rel=0.03, abs=5e-3)
    seen: list[object] = []
    model.read(text.inputs, lambda attention: seen.append(attention.outputs))
    if any(outputs is None for outputs in seen):
        return
    _, _, outputs, gradients = output_gradients(text, make, block)
    assert set(gradients) == {site.layer for site in sites}
    for site in sites:
        z = outputs[site.layer][1]
        towards = torch.randn(z.shape, generator=torch.Generator().manual_seed(2)).to(z)
        where = {"layer": site.layer, "head": 1, "block": block}
        rows = {"rows": torch.tensor([0]), "heads": torch.tensor([1])}
        steps = [
            ReplaceRows(values=(z + by * towards)[None], **where, **rows)  # type: ignore[arg-type]
            for by in (STEP, -STEP)
        ]
        estimate = float((towards * gradients[site.layer][1]).sum())
        assert estimate == pytest.approx(slope(model, text, steps), rel=0.03, abs=5e-3)
