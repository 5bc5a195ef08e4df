"""Every call of every module of a forward pass, for finding modules by what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class Call:
    """One call of a module: its first input and its output."""

    name: str
    module: nn.Module
    given: Tensor
    returned: Tensor
    is_plain: bool
    """Was that input all it was given?"""
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)


@contextmanager
def recorded_calls(root: nn.Module) -> Iterator[list[Call]]:
    """Within the block, every call that maps a tensor to one is recorded."""
    calls: list[Call] = []
    with ExitStack() as stack:
        for name, module in root.named_modules():

            def keep(
                module: nn.Module,
                args: tuple[object, ...],
                kwargs: dict[str, object],
                output: object,
                name: str = name,
            ) -> None:
                given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
                result = output[0] if isinstance(output, tuple) and output else output
                if given and isinstance(result, Tensor):
                    calls.append(
                        Call(name, module, given[0], result, len(given) == 1, args, kwargs)
                    )

            stack.callback(module.register_forward_hook(keep, with_kwargs=True).remove)
        yield calls


def run_module(module: nn.Module, given: Tensor) -> Tensor:
    """What a module makes of a tensor, in float64."""
    result = module(given)
    output = result[0] if isinstance(result, tuple) else result
    return torch.as_tensor(output).double()
