"""Interception of transformers' attention interface, eager attention, and module locks.

Families that follow the interface call `AttentionInterface.get_interface(implementation, default)`,
where `default` is the family's eager function. Intercepting this call yields that function for
every attention call. The implementation must be `"eager"`, so that masks have the form the eager
function expects.

Several models may share modules. A tap locks all modules of its model at once and holds them until
it detaches. A thread may lock a module repeatedly; other threads wait. A waiting thread holds
no lock, so a model and its base model cannot deadlock.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_utils import AttentionInterface

from headscope.model.private_api import ATTENTION_IMPLEMENTATION
from headscope.model.tap.interrupts import held

_freed = threading.Condition()
_locks: dict[int, tuple[threading.Thread, int]] = {}
"""Id of a module → the thread that locked it, and how often."""


@contextmanager
@held
def locked_modules(modules: Collection[nn.Module]) -> Iterator[None]:
    """Within the block, no other thread locks any of these modules."""
    thread = threading.current_thread()
    keys = [id(module) for module in modules]
    with _freed:
        _freed.wait_for(lambda: all(_locks[key][0] is thread for key in keys if key in _locks))
        for key in keys:
            _, times = _locks.get(key, (thread, 0))
            _locks[key] = (thread, times + 1)
    try:
        yield
    finally:
        with _freed:
            for key in keys:
                _, times = _locks.pop(key)
                if times > 1:
                    _locks[key] = (thread, times - 1)
            _freed.notify_all()


def modules_of(root: nn.Module) -> list[nn.Module]:
    """Return all modules, each once; faster than `root.modules()`, which builds every name."""
    modules: dict[int, nn.Module] = {}
    ahead = [root]
    while ahead:
        module = ahead.pop()
        if id(module) not in modules:
            modules[id(module)] = module
            ahead += module.children()
    return list(modules.values())


EagerFunction = Callable[..., tuple[Tensor, Tensor | None]]
Handler = EagerFunction

_original = AttentionInterface.get_interface
_handlers: dict[int, tuple[Handler, ...]] = {}
"""Id of an attention module → its handlers; the last one is called."""
_lock = threading.RLock()


def _get_interface(
    self: AttentionInterface, attn_implementation: str, default: EagerFunction
) -> EagerFunction:
    return functools.partial(_dispatch, _original(self, attn_implementation, default))


def _dispatch(
    function: EagerFunction, module: nn.Module, *args: object, **kwargs: object
) -> tuple[Tensor, Tensor | None]:
    """Call the handler of an intercepted module, or the function itself for others."""
    if handlers := _handlers.get(id(module)):
        return handlers[-1](function, module, *args, **kwargs)
    return function(module, *args, **kwargs)


@contextmanager
@held
def intercepted(modules: Iterable[nn.Module], handler: Handler) -> Iterator[None]:
    """Send the attention calls of these modules, from every thread, to `handler`, innermost first.
    It gets the original function, then its arguments.
    """
    keys = [id(module) for module in modules]
    with _lock:
        for key in keys:
            _handlers[key] = (*_handlers.get(key, ()), handler)
        AttentionInterface.get_interface = _get_interface  # type: ignore[method-assign]
    try:
        yield
    finally:
        with _lock:
            for key in keys:
                # In one step: other threads dispatch without the lock.
                if others := tuple(x for x in _handlers[key] if x is not handler):
                    _handlers[key] = others
                else:
                    del _handlers[key]
            if not _handlers:
                AttentionInterface.get_interface = _original  # type: ignore[method-assign]


@contextmanager
@held
def eager_attention(root: nn.Module) -> Iterator[None]:
    """Run the model with eager attention and in eval mode; the last block to end restores both."""
    modules = modules_of(root)
    eager = _set(_configs(modules), ATTENTION_IMPLEMENTATION, "eager")
    with eager, _set(modules, "training", value=False):
        yield


_saved: dict[tuple[int, str], tuple[object, int]] = {}
"""Id of an object and attribute → its own value, and the blocks that set it. The blocks keep the
objects alive."""


@contextmanager
@held
def _set(objects: Iterable[object], attribute: str, value: object) -> Iterator[None]:
    """Set an attribute within the block; the last block to end restores the original."""
    changed: dict[tuple[int, str], object] = {}
    with _lock:
        for owner in objects:
            key = id(owner), attribute
            own, n_blocks = _saved.get(key, (getattr(owner, attribute), 0))
            if key not in changed and (n_blocks or own != value):
                _saved[key] = own, n_blocks + 1
                changed[key] = owner
                setattr(owner, attribute, value)
    try:
        yield
    finally:
        with _lock:
            for key, owner in changed.items():
                own, n_blocks = _saved.pop(key)
                if n_blocks > 1:
                    _saved[key] = own, n_blocks - 1
                else:
                    setattr(owner, attribute, own)


def _configs(modules: Iterable[nn.Module]) -> Iterator[PretrainedConfig]:
    """Yield every configuration of the model: submodels and modules have their own."""
    ahead = [vars(module).get("config") for module in modules]
    for config in ahead:  # which grows by their parts
        if isinstance(config, PretrainedConfig):
            yield config
            ahead += [getattr(config, name, None) for name in config.sub_configs]
