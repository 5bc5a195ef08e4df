"""First-order estimates, against small steps, in every family of the zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import transformers as tf
from torch.utils._python_dispatch import TorchDispatchMode

import headscope as hs
from headscope.causal.ablation import Replacement
from headscope.causal.batched_forward import ForwardPass
from headscope.causal.effects import estimate_effects, output_gradients
from headscope.causal.readout import CustomScalar
from headscope.errors import TapUnsupported
from headscope.model.edits import ReplaceRows, ScaleKeys
from headscope.model.objective import frozen
from headscope.model.tap.dispatch import Attachment
from tests.conftest import byte_tokenizer
from tests.families.zoo import DECODERS, ENCODERS, build

if TYPE_CHECKING:
    from transformers.utils.generic import ModelOutput

    from headscope.attention import Attention
    from headscope.model.edits import Edit
    from headscope.model.model import Model
    from headscope.model.tap.sites import Site

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


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_bert"])
def test_outputs_give_the_numbers_of_all_weights(name: str, request: pytest.FixtureRequest) -> None:
    """−Σ z·∂m/∂z over fused attention is −Σ a·∂m/∂a over every weight."""
    model: Model = request.getfixturevalue(name)
    block = model.wiring.main_block()
    inputs = dict(model.require_tokenizer()("the cat sat on", return_tensors="pt"))
    text = ForwardPass(model, inputs, None)
    sets = [((site.layer, head),) for site in model.wiring.of_block(block) for head in range(2)]
    _, _, found = estimate_effects(text, lambda *_: CustomScalar(last), sets, Replacement(block))
    weights: dict[int, torch.Tensor] = {}
    expected: dict[int, torch.Tensor] = {}

    def keep(attention: Attention) -> None:
        weights[attention.layer] = attention.weights.detach()

    def multiply(site: Site, gradient: torch.Tensor) -> None:
        expected[site.layer] = -(weights[site.layer] * gradient)[0].double().sum((1, 2))

    attachment = Attachment(keep, on_gradient=multiply, returns_weights=False)
    with torch.enable_grad(), model.attached(attachment), frozen(model.module):
        last(text.run()[0]).sum().backward()
    np.testing.assert_allclose(found, [expected[n][h] for ((n, h),) in sets], atol=1e-5)


class Sizes(TorchDispatchMode):
    """Number of values in the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, torch.Tensor):
                self.largest = max(self.largest, part.numel())
        return result


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_memory_is_linear_in_the_text(ablation: str) -> None:
    torch.manual_seed(0)
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = tf.LlamaConfig(vocab_size=300, max_position_embeddings=2048, **small, **heads)
    tokenizer = byte_tokenizer()
    tokenizer.model_max_length = 2048
    model = hs.load(tf.LlamaForCausalLM(config), tokenizer)
    reference = {"reference": ["a cat sat on it", "so he said"]} if ablation == "mean" else {}
    options = {"method": "gradient", "ablation": ablation, **reference}
    words = " ".join(["the cat sat on a mat"] * 60)
    n = tokenizer(words, return_tensors="pt")["input_ids"].shape[1]
    assert n > 600
    hs.effects(model, words, **options)  # type: ignore[arg-type]  # checks, then measures
    with Sizes() as sizes:
        hs.effects(model, words, **options)  # type: ignore[arg-type]
    assert 0 < sizes.largest < n * n
    with Sizes() as sizes:
        hs.effects(model, words, heads=[(0, 0)])
    assert sizes.largest >= n * n  # exact effects read whole layers
