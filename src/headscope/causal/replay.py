"""Passes that differ in one layer only: what comes before it need not be computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from headscope.model.model import Model


def layer_modules(model: Model) -> dict[int, nn.Module]:
    """The module of each layer of the main attention: a member of a `ModuleList` that
    computes attention once in a pass. Empty where layers share one (ALBERT).
    """
    found: dict[int, nn.Module] = {}
    for site in model.wiring.of_block(model.info.blocks[0]):
        module: nn.Module = model.module
        for name in site.module.split("."):
            parent, module = module, module.get_submodule(name)
            if isinstance(parent, nn.ModuleList):
                break
        else:
            return {}
        if module in found.values():
            return {}
        found[site.layer] = module
    return found


@contextmanager
def recorded(layers: Mapping[int, nn.Module]) -> Iterator[dict[int, Any]]:
    """Within the block, a pass leaves what each layer gives in the dictionary."""
    kept: dict[int, Any] = {}
    with ExitStack() as stack:
        for number, module in layers.items():

            def keep(_: nn.Module, __: Any, output: Any, number: int = number) -> None:
                kept[number] = output

            stack.callback(module.register_forward_hook(keep).remove)
        yield kept


@contextmanager
def replayed(
    layers: Mapping[int, nn.Module], kept: Mapping[int, Any], before: int
) -> Iterator[None]:
    """Within the block, layers before one give what they gave, without being run."""
    with ExitStack() as stack:
        for number, module in layers.items():
            if number < before and number in kept:

                def give(*_: Any, number: int = number, **__: Any) -> Any:
                    return kept[number]

                module.forward = give  # type: ignore[method-assign, unused-ignore]
                stack.callback(delattr, module, "forward")
        yield
