"""Passes that differ in one layer only: the layers before it are not computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import nn

from headscope.model.model import Model


def layer_modules(model: Model) -> dict[int, nn.Module]:
    """The module of each layer of the main attention.

    It is the member of a `ModuleList` that holds the layer's attention. Empty where layers are
    not in a `ModuleList`, or share a module (ALBERT).
    """
    modules: dict[int, nn.Module] = {}
    for site in model.wiring.of_block(model.info.blocks[0]):
        module: nn.Module = model.module
        for name in site.module.split("."):
            parent, module = module, module.get_submodule(name)
            if isinstance(parent, nn.ModuleList):
                break
        else:
            return {}
        if module in modules.values():
            return {}
        modules[site.layer] = module
    return modules


@contextmanager
def recorded(layers: Mapping[int, nn.Module]) -> Iterator[dict[int, object]]:
    """Within the `with` block, each pass stores every layer's output in the dictionary."""
    kept: dict[int, object] = {}
    with ExitStack() as stack:
        for number, module in layers.items():

            def keep(_: nn.Module, __: object, output: object, number: int = number) -> None:
                kept[number] = output

            stack.callback(module.register_forward_hook(keep).remove)
        yield kept


@contextmanager
def replayed(
    layers: Mapping[int, nn.Module], kept: Mapping[int, object], before: int
) -> Iterator[None]:
    """Within the `with` block, layers below `before` return their kept output and do not run."""
    with ExitStack() as stack:
        for number, module in layers.items():
            if number < before and number in kept:

                def give(*_: object, number: int = number, **__: object) -> object:
                    return kept[number]

                module.forward = give  # type: ignore[method-assign, unused-ignore]
                stack.callback(delattr, module, "forward")
        yield
