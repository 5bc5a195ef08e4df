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
from dataclasses import dataclass

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

    def are_free() -> bool:
        return all(_locks[key][0] is thread for key in keys if key in _locks)

    with _freed:
        _freed.wait_for(are_free)
        for key in keys:
            _, times = _locks.get(key, (thread, 0))
            _locks[key] = (thread, times + 1)
    try:
        yield
    finally:
        with _freed:
            for key in keys:
                times = _locks[key][1] - 1
                if times:
                    _locks[key] = (thread, times)
                else:
                    del _locks[key]
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
Handler = Callable[..., tuple[Tensor, Tensor | None]]

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
    handlers = _handlers.get(id(module))
    if handlers is None:
        return function(module, *args, **kwargs)
    return handlers[-1](function, module, *args, **kwargs)


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
                others = tuple(other for other in _handlers[key] if other is not handler)
                if others:
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
    with _EAGER.set_on(_configs(modules)), _EVAL.set_on(modules):
        yield


@dataclass(slots=True)
class _Saved:
    value: object
    n_blocks: int


class _Setting:
    """An attribute that is fixed while any block needs it."""

    def __init__(self, attribute: str, value: object) -> None:
        self._attribute = attribute
        self._value = value
        self._saved: dict[int, _Saved] = {}
        """By the id of the object; the blocks keep the objects alive."""

    @contextmanager
    @held
    def set_on(self, objects: Iterable[object]) -> Iterator[None]:
        """Set the attribute within the block; the last block to end restores the original."""
        changed: dict[int, object] = {}
        with _lock:
            for owner in objects:
                saved = self._saved.get(id(owner))
                if id(owner) in changed:
                    continue
                if saved is not None:
                    saved.n_blocks += 1
                elif (value := getattr(owner, self._attribute)) != self._value:
                    self._saved[id(owner)] = _Saved(value, 1)
                else:
                    continue
                changed[id(owner)] = owner
                setattr(owner, self._attribute, self._value)
        try:
            yield
        finally:
            with _lock:
                for key, owner in changed.items():
                    saved = self._saved[key]
                    saved.n_blocks -= 1
                    if not saved.n_blocks:
                        del self._saved[key]
                        setattr(owner, self._attribute, saved.value)


_EAGER = _Setting(ATTENTION_IMPLEMENTATION, "eager")
_EVAL = _Setting("training", False)


def _configs(modules: Iterable[nn.Module]) -> Iterator[PretrainedConfig]:
    """Yield every configuration of the model: submodels and modules have their own."""
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
