"""Norms held fixed: with its scale frozen, a norm is linear, and passes on a sum part by part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headscope.model.tap.calls import run_module

TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Norm:
    """y = w · c(x) / √(mean c(x)² + ε) + b; c takes the mean away (LayerNorm) or not (RMSNorm).

    Attributes:
        weight: w.
        bias: b.
        epsilon: ε.
        is_centered: is the mean taken away?
    """

    weight: Tensor
    bias: Tensor
    epsilon: float
    is_centered: bool

    def apply(self, x: Tensor) -> Tensor:
        """Y of `… unit`."""
        return self.frozen(x, x) + self.bias

    def frozen(self, part: Tensor, at: Tensor) -> Tensor:
        """What a part of `at` contributes to y − b, with the scale that `at` has."""
        scale = (self._centered(at).square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return self._centered(part) * scale * self.weight

    def _centered(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if self.is_centered else x


def fit_norm(module: nn.Module, captured: Tensor) -> Norm | None:
    """The norm that a module is, proved on captured activations and on random ones at several
    scales; None where it is none.
    """
    rows = captured.detach().reshape(-1, captured.shape[-1])
    generator = torch.Generator().manual_seed(0)
    random = torch.randn((32, rows.shape[-1]), generator=generator).to(rows)
    tried = [rows, random, 0.01 * random + 0.003, 30 * random - 1.0]
    with torch.inference_mode():
        bias = run_module(module, torch.zeros_like(rows[:1]))[0]
        wanted = [run_module(module, x) for x in tried]
    stated = {v for v in vars(module).values() if isinstance(v, float) and 0 < v < 1e-2}
    for is_centered in (False, True):
        for epsilon in (*sorted(stated), 0.0):
            plain = Norm(torch.ones_like(bias), torch.zeros_like(bias), epsilon, is_centered)
            unit = plain.apply(random.double())
            weight = (unit * (wanted[1] - bias)).sum(0) / unit.square().sum(0)
            norm = Norm(weight.clone(), bias.clone(), epsilon, is_centered)
            if all(
                _is_close(norm.apply(x.double()), y) for x, y in zip(tried, wanted, strict=True)
            ):
                return norm
    return None


def _is_close(made: Tensor, expected: Tensor) -> bool:
    size = max(float(expected.abs().max()), 1e-6)
    return float((made - expected).abs().max()) <= TOLERANCE * size
