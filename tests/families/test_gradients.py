"""∂L/∂a agrees with finite differences, in float64, through every family's own attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import headscope as hs
from headscope.model.edits import Edit, Positions
from headscope.model.model import Model
from headscope.model.objective import LossInputs, backward, loss_of
from headscope.model.tap.sites import Site
from tests.families.reference import padded_inputs
from tests.families.zoo import SUPPORTED, build

FAMILIES = [
    "bert", "roberta", "albert", "modernbert", "deberta-v2", "gpt2", "gptj", "bloom", "llama",
    "gemma2", "gpt_oss", "falcon", "bart", "t5",
]  # fmt: skip
STEP = 1e-4


class Double(TorchFunctionMode):
    """Float64 throughout: models have float32 islands in norms, softmax and rotary tables,
    which would drown a finite difference."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudge(Edit):
    """Add a little to one weight of the first row."""

    query: int
    key: int
    by: float

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        weights = weights.clone()
        weights[0, self.head, self.query, self.key] += self.by
        return weights


def question_for(model: Model) -> LossInputs:
    inputs = {name: tensor[:1] for name, tensor in padded_inputs(model.module, left=False).items()}
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])
    labels = torch.cat([ids[:, 1:], torch.full((1, 1), -100)], dim=1)
    return LossInputs(inputs, labels, tuple(range(1, ids.shape[1])), {})


def loss_with(model: Model, question: LossInputs, nudge: Edit) -> float:
    with torch.no_grad(), model.edit(nudge):
        return loss_of(model.module(**question.inputs), question).item()


@pytest.mark.parametrize("name", FAMILIES)
def test_equals_finite_differences(name: str) -> None:
    member = next(m for m in SUPPORTED if m.name == name)
    module = build(member).double()
    if name == "gpt_oss":
        module.set_experts_implementation("eager")  # the grouped kernel has no float64
    model = hs.load(module)
    question = question_for(model)
    found: dict[tuple[str, int], Tensor] = {}

    def keep(site: Site, gradient: Tensor) -> None:
        found[site.block, site.layer] = gradient[0]

    with Double():
        backward(model, question, keep)
        assert found.keys() == {(site.block, site.layer) for site in model.wiring.sites}
        generator = torch.Generator().manual_seed(3)
        for site in model.wiring.sites:
            gradient = found[site.block, site.layer]
            assert gradient.dtype == torch.float64
            scale = float(gradient.abs().max())
            assert scale > 0
            for _ in range(3):
                head, query = (
                    int(torch.randint(n, (), generator=generator)) for n in gradient.shape[:2]
                )
                key = int(torch.randint(query + 1, (), generator=generator))
                key = min(key, gradient.shape[2] - 1)
                up, down = (
                    loss_with(
                        model,
                        question,
                        Nudge(
                            block=site.block,
                            layer=site.layer,
                            head=head,
                            query=query,
                            key=key,
                            by=by,
                        ),
                    )
                    for by in (STEP, -STEP)
                )
                expected = (up - down) / (2 * STEP)
                actual = float(gradient[head, query, key])
                assert actual == pytest.approx(expected, rel=1e-6, abs=1e-6 * scale)


def test_parameters_keep_asking_for_gradients(tiny_llama: Model) -> None:
    frozen = tiny_llama.module.model.embed_tokens.weight
    frozen.requires_grad_(False)
    before = {name: p.requires_grad for name, p in tiny_llama.module.named_parameters()}
    tiny_llama.gradients("the cat sat")
    assert before == {name: p.requires_grad for name, p in tiny_llama.module.named_parameters()}
    assert all(p.grad is None for p in tiny_llama.module.parameters())
    frozen.requires_grad_(True)
