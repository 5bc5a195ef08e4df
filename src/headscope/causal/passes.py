"""Passes over one text, changed or not: the logits of one position where that is all one reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.model.model import Model

T = TypeVar("T")


class Pass:
    """Runs one text, as it is or in many rows.

    Args:
        model: the model. Whoever runs it attaches what should be read or changed.
        inputs: of one row.
        position: the only position whose logits are wanted; None for all.
    """

    def __init__(self, model: Model, inputs: Mapping[str, Tensor], position: int | None) -> None:
        self.model = model
        self.inputs = model.placed(inputs)
        self.position = position
        self.n_tokens = max(t.shape[1] for t in inputs.values() if t.ndim > 1)
        accepted = inspect.signature(model.module.forward).parameters
        self._options: dict[str, object] = {"use_cache": False} if "use_cache" in accepted else {}
        self.is_cut = position is not None and "logits_to_keep" in accepted
        if self.is_cut:
            self._options["logits_to_keep"] = torch.tensor([position], device=model.module.device)

    def run(self, n_rows: int = 1) -> tuple[ModelOutput, Tensor | None]:
        """The model's output, and `row answer`: the logits at the position."""
        inputs = {
            name: spread(tensor, n_rows) if isinstance(tensor, Tensor) else tensor
            for name, tensor in self.inputs.items()
        }
        outputs: ModelOutput = self.model.module(**inputs, **self._options)
        return outputs, self._logits(outputs)

    def _logits(self, outputs: ModelOutput) -> Tensor | None:
        logits = outputs.get("logits")
        if not isinstance(logits, Tensor):
            return None
        if logits.ndim == 2:
            return logits
        if self.position is None:
            return None
        return logits[:, 0] if self.is_cut else logits[:, self.position]


def spread(tensor: Tensor, n_rows: int) -> Tensor:
    """The one row of a tensor, so many times."""
    if tensor.ndim < 2 or tensor.shape[0] != 1 or n_rows == 1:
        return tensor
    return tensor.expand(n_rows, *tensor.shape[1:]).contiguous()


def map_tensors(tree: T, change: Callable[[Tensor], Tensor]) -> T:
    """A call's arguments or result with every tensor in it changed."""
    if isinstance(tree, Tensor):
        return change(tree)  # type: ignore[return-value]
    if isinstance(tree, dict):
        return type(tree)((name, map_tensors(part, change)) for name, part in tree.items())
    if type(tree) in (tuple, list):
        return type(tree)(map_tensors(part, change) for part in tree)  # type: ignore[call-arg, attr-defined]
    return tree
