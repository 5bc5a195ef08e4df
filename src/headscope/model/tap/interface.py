"""The door into transformers: its eager attention switched on, and its dispatch intercepted.

Every family that follows transformers' attention interface asks
`AttentionInterface.get_interface(implementation, default)` which function to run, where
`default` is the family's own eager function. Intercepting that question hands us exactly
this function for every call, with nothing guessed from names or source code. The
implementation must be `"eager"` for the model's masks to be built in the form the eager
function expects.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import AttentionInterface

__all__ = ["EagerFunction", "eager_attention", "intercepted"]

EagerFunction = Callable[..., tuple[Tensor, Tensor | None]]
Handler = Callable[..., tuple[Tensor, Tensor | None]]

_original = AttentionInterface.get_interface
_handlers: dict[int, tuple[int, Handler]] = {}
"""Attention module → the thread that tapped it, and what to call instead."""
_lock = threading.Lock()


def _get_interface(
    self: AttentionInterface, attn_implementation: str, default: EagerFunction
) -> EagerFunction:
    return functools.partial(_dispatch, _original(self, attn_implementation, default))


def _dispatch(
    function: EagerFunction, module: nn.Module, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Call the handler of a tapped module; let every other module and thread pass."""
    thread, handler = _handlers.get(id(module), (None, None))
    if handler is None or thread != threading.get_ident():
        return function(module, *args, **kwargs)
    return handler(function, module, *args, **kwargs)


@contextmanager
def intercepted(modules: Mapping[int, str], handler: Handler) -> Iterator[None]:
    """Send the attention calls of these modules (by id), from this thread, to `handler`.

    The handler gets the function that would have run, then its arguments.
    """
    entry = (threading.get_ident(), handler)
    with _lock:
        _handlers.update(dict.fromkeys(modules, entry))
        AttentionInterface.get_interface = _get_interface  # type: ignore[method-assign]
    try:
        yield
    finally:
        with _lock:
            for module in modules:
                _handlers.pop(module, None)
            if not _handlers:
                AttentionInterface.get_interface = _original  # type: ignore[method-assign]


@contextmanager
def eager_attention(root: nn.Module) -> Iterator[None]:
    """Run the model with its eager attention and in eval mode; restore both on exit."""
    modules = _modules(root)
    configs = {id(config): config for config in _configs(modules)}.values()
    implementations = [config._attn_implementation_internal for config in configs]
    training = [module for module in modules if module.training]
    try:
        for config in configs:
            config._attn_implementation_internal = "eager"
        for module in training:
            module.training = False
        yield
    finally:
        for config, implementation in zip(configs, implementations, strict=True):
            config._attn_implementation_internal = implementation
        for module in training:
            module.training = True


def _modules(root: nn.Module) -> list[nn.Module]:
    """All modules, each once. `root.modules()` makes every name on the way, which costs a
    small model as much as reading a layer does.
    """
    found: dict[int, nn.Module] = {}
    ahead = [root]
    while ahead:
        module = ahead.pop()
        if id(module) not in found:
            found[id(module)] = module
            ahead += [child for child in module._modules.values() if child is not None]
    return list(found.values())


def _configs(modules: Iterable[nn.Module]) -> Iterator[PretrainedConfig]:
    """Every configuration object of the model: submodels and modules hold their own."""
    for module in modules:
        config = vars(module).get("config")
        if isinstance(config, PretrainedConfig):
            yield from _with_parts(config)


def _with_parts(config: PretrainedConfig) -> Iterator[PretrainedConfig]:
    yield config
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PretrainedConfig):
            yield from _with_parts(part)
