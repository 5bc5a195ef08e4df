"""What a model is, for plans and provenance: names, counts, and a hash of its weights.

Models on their way to another process: pickled, with their weights shared where possible.

Two kinds of hooks do not pickle: those by which transformers collects a model's outputs, and
those of a tap in use. So a model travels as a copy of its structure without them, around the
very same weights. Both kinds are installed again where the copy arrives and is used.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

if TYPE_CHECKING:
    from headscope.model.model import Model


def describe_model(model: Model) -> dict[str, object]:
    """The model as a plan knows it."""
    info = model.info
    return {
        "name": model.name,
        "source": info.source,
        "revision": getattr(model.module.config, "_commit_hash", None),
        "family": info.family,
        "architecture": info.architecture,
        "n_layers": info.n_layers,
        "n_heads": info.n_heads,
        "is_causal": info.is_causal,
        "dtype": info.dtype,
        "n_parameters": info.n_parameters,
        "weights_sha256": weights_sha256(model.module),
        "route": info.route,
        "notes": list(info.notes),
        "edits": [repr(edit) for edit in model.edits],
    }


def weights_sha256(module: torch.nn.Module) -> str:
    """SHA-256 over names, shapes and bytes of all weights, as they are in memory."""
    content = hashlib.sha256()
    for name, tensor in sorted(module.state_dict(keep_vars=False).items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(bytes_of(tensor))
    return content.hexdigest()


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor, row by row."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def versions(*names: str) -> dict[str, str]:
    """Of these packages; by default, of those that the numbers of a run depend on."""
    wanted = names or ("headscope", "torch", "transformers", "numpy")
    return {name: importlib.metadata.version(name) for name in wanted}


INSTALLED = "_output_capturing_hooks_installed"
"""The attribute by which transformers remembers that its hooks are installed."""

Hook = Callable[..., object]
Module = TypeVar("Module", bound=nn.Module)


def structure_of(module: Module) -> Module:
    """A copy of a module that has the same tensors, and of its hooks only the user's."""
    shared: dict[int, object] = {id(t): t for t in (*module.parameters(), *module.buffers())}
    for part in module.modules():
        shared.update((id(hook), hook) for hooks in _hooks(part) for hook in hooks.values())
    copied = copy.deepcopy(module, shared)
    for part in copied.modules():
        part.__dict__.pop(INSTALLED, None)
        for hooks in _hooks(part):
            for number in [n for n, hook in hooks.items() if _is_installed_on_use(hook)]:
                del hooks[number]
    return copied


def _hooks(part: nn.Module) -> tuple[dict[int, Hook], dict[int, Hook]]:
    return part._forward_hooks, part._forward_pre_hooks


def _is_installed_on_use(hook: Hook) -> bool:
    """Is this a hook of transformers or headscope, which install theirs when they need them?"""
    is_transformers = "output_capturing_hook" in getattr(hook, "__qualname__", "")
    return is_transformers or str(getattr(hook, "__module__", "")).startswith("headscope.")


def has_own_code(modules: Iterable[nn.Module]) -> bool:
    """Did anyone add a hook to a module, or replace its forward pass (as offloading does)?

    Hooks that transformers and headscope install themselves do not count.
    """
    return any(
        "forward" in vars(part)
        or any(not _is_installed_on_use(hook) for hooks in _hooks(part) for hook in hooks.values())
        for part in modules
    ) or bool(_global_forward_hooks or _global_forward_pre_hooks)


def weights_version(module: nn.Module) -> int:
    """Another number whenever a weight was replaced or changed in place, as training does."""
    return hash(
        tuple(
            (id(p), 0 if p.is_inference() else p._version)
            for tensors in (module.parameters(), module.buffers())
            for p in tensors
        )
    )
