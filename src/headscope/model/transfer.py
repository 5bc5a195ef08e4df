"""A model for another process: pickled, with its weights shared where the pickler can.

Transformers installs hooks on a model to collect its outputs, and a tap in use has its own:
they do not pickle. A model therefore travels as a copy of its structure without them,
around the very same weights; the copy installs them anew.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

__all__ = ["structure_of"]

INSTALLED = "_output_capturing_hooks_installed"


def structure_of(module: torch.nn.Module) -> Any:
    """A copy of a module that has the same tensors, and of its hooks only the user's."""
    shared: dict[int, Any] = {id(t): t for t in (*module.parameters(), *module.buffers())}
    for part in module.modules():
        shared.update((id(hook), hook) for hooks in _hooks(part) for hook in hooks.values())
    copied = copy.deepcopy(module, shared)
    for part in copied.modules():
        part.__dict__.pop(INSTALLED, None)
        for hooks in _hooks(part):
            for number in [n for n, hook in hooks.items() if _is_passing(hook)]:
                del hooks[number]
    return copied


def _hooks(part: torch.nn.Module) -> tuple[dict[int, Any], dict[int, Any]]:
    return part._forward_hooks, part._forward_pre_hooks


def _is_passing(hook: Any) -> bool:
    """Was it installed for as long as something lasts, and will be again?"""
    is_collecting = "output_capturing_hook" in getattr(hook, "__qualname__", "")
    return is_collecting or str(getattr(hook, "__module__", "")).startswith("headscope.")
