"""Record every attention computation of a forward pass, to compare it with the official maps."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from headscope.model.tap.interface import EagerFunction, intercepted
from headscope.model.tap.watch import (
    MANY_HEADS,
    SDPA,
    SOFTMAX,
    Args,
    Kwargs,
    TorchFunction,
    Watch,
    ending_watches,
    watching,
)


@dataclass(slots=True)
class Recording:
    """One attention computation, as it happened.

    Vectors are as `attention.Attention` has them, or with `batch·head` on one axis.
    """

    module: str
    occurrence: int
    computation: int
    weights: Tensor
    scores: Tensor | None
    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    output: Tensor | None
    scale: float | None
    n_products: int
    """Batched products that went into the scores."""

    @property
    def is_complete(self) -> bool:
        """Were the weights multiplied with values, as attention is?"""
        return self.value is not None and self.weights.ndim >= 3


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded forward pass."""

    recordings: list[Recording]
    outputs: ModelOutput
    n_softmaxes: int
    """Softmaxes over at least three axes that were taken, recorded or not."""


class _Count(TorchFunctionMode):
    """Counts softmaxes, whoever takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.n += func in (SDPA, MANY_HEADS) or (func in SOFTMAX and result.ndim >= 3)
        return result


def record_interface(root: PreTrainedModel, inputs: Mapping[str, object]) -> Run:
    """Run the model, recording every call that goes through transformers' interface."""
    modules = dict(root.named_modules())
    names = {id(module): name for name, module in modules.items()}
    thread = threading.current_thread()
    calls: Counter[str] = Counter()
    recordings: list[Recording] = []

    def record(
        function: EagerFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: object,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if threading.current_thread() is not thread:
            return function(module, query, key, value, *args, **kwargs)
        name = names[id(module)]
        occurrence = calls[name]
        calls[name] += 1
        with Watch() as watch:
            output, weights = function(module, query, key, value, *args, **kwargs)
        if len(watch.steps) != 1 or weights is None or watch.steps[0].value is None:
            return output, weights  # not one softmax and one product: left to the fallback
        steps = watch.steps[0]
        recordings.append(
            Recording(
                name,
                occurrence,
                0,
                weights,
                steps.scores,
                query,
                key,
                value,
                output.transpose(1, 2) if output.ndim == 4 else None,
                kwargs.get("scaling"),
                n_products=1,
            )
        )
        return output, weights

    with intercepted(modules.values(), record), _Count() as count:
        outputs = root(**inputs)
    return Run(recordings, outputs, count.n)


def record_fallback(root: PreTrainedModel, inputs: Mapping[str, object]) -> Run:
    """Run the model, recording every softmax inside any module, whoever wrote it."""
    recordings: list[Recording] = []
    calls: Counter[str] = Counter()
    thread = threading.current_thread()

    def start() -> Watch | None:
        return Watch() if threading.current_thread() is thread else None

    with ending_watches(), ExitStack() as stack:
        for name, module in root.named_modules():
            # A bare nn.Softmax is part of the module that holds it.
            if name and not type(module).__module__.startswith("torch.nn."):
                keep = partial(_keep, name, calls, recordings)
                stack.enter_context(watching(module, start, keep))
        outputs = root(**inputs)
    # Every module around a softmax records it; the innermost returns first.
    unique: dict[int, Recording] = {}
    for recording in recordings:
        unique.setdefault(id(recording.scores), recording)
    return Run([*unique.values()], outputs, len(unique))


def _keep(module: str, calls: Counter[str], recordings: list[Recording], watch: Watch) -> None:
    for index, steps in enumerate(watch.steps):
        assert steps.weights is not None
        recordings.append(
            Recording(
                module,
                calls[module],
                index,
                steps.weights,
                steps.scores,
                steps.query,
                steps.key,
                steps.value,
                steps.output,
                steps.products[0].scale if steps.products else None,
                len(steps.products),
            )
        )
    calls[module] += 1
