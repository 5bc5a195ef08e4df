"""Identity of a model: description, weight hash, and copies for other processes.

Hooks of transformers and of an active tap do not pickle. A model is sent as a copy of its
structure without these hooks, around the same weights. The receiver installs them again.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from headscope.model.private_api import (
    COMMIT_HASH,
    GLOBAL_HOOKS,
    OUTPUT_HOOKS_INSTALLED,
    Hook,
    forward_hooks,
    tensor_version,
)

if TYPE_CHECKING:
    from headscope.model.model import Model


SHAPE = ("family", "architecture", "n_layers", "n_heads", "is_causal", "dtype", "n_parameters")


def describe_model(model: Model) -> dict[str, object]:
    """Describe the model for a plan."""
    info = model.info
    return {
        "name": model.name,
        "source": info.source,
        "revision": getattr(model.module.config, COMMIT_HASH, None),
        **{name: getattr(info, name) for name in SHAPE},
        "weights_sha256": weights_sha256(model.module),
        "route": info.route,
        "notes": list(info.notes),
        "edits": [repr(edit) for edit in model.edits],
    }


def weights_sha256(module: torch.nn.Module) -> str:
    """Return the SHA-256 of names, shapes and bytes of all weights, as they are in memory."""
    content = hashlib.sha256()
    for name, tensor in sorted(module.state_dict(keep_vars=False).items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(bytes_of(tensor))
    return content.hexdigest()


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor, row by row."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def versions(*names: str) -> dict[str, str]:
    """Return the versions of these packages; default: those that affect results."""
    packages = names or ("headscope", "torch", "transformers", "numpy")
    return {name: importlib.metadata.version(name) for name in packages}


Module = TypeVar("Module", bound=nn.Module)


def structure_of(module: Module) -> Module:
    """Copy a module around the same tensors, with only the user's hooks."""
    shared: dict[int, object] = {id(t): t for t in (*module.parameters(), *module.buffers())}
    for part in module.modules():
        shared.update((id(hook), hook) for hooks in forward_hooks(part) for hook in hooks.values())
    copied = copy.deepcopy(module, shared)
    for part in copied.modules():
        part.__dict__.pop(OUTPUT_HOOKS_INSTALLED, None)
        for hooks in forward_hooks(part):
            for number in [n for n, hook in hooks.items() if _is_installed_on_use(hook)]:
                del hooks[number]
    return copied


def _is_installed_on_use(hook: Hook) -> bool:
    """True if transformers or headscope installs this hook when needed."""
    is_transformers = "output_capturing_hook" in getattr(hook, "__qualname__", "")
    return is_transformers or str(getattr(hook, "__module__", "")).startswith("headscope.")


def has_own_code(modules: Sequence[nn.Module]) -> bool:
    """True if a module has a user's hook or a replaced forward method (as offloading does)."""
    hooks = [x for part in modules for some in forward_hooks(part) for x in some.values()]
    is_replaced = any("forward" in vars(part) for part in modules)
    return is_replaced or any(GLOBAL_HOOKS) or not all(map(_is_installed_on_use, hooks))


def weights_version(module: nn.Module) -> int:
    """Return a number that changes when a weight is replaced or changed in place."""
    tensors = (*module.parameters(), *module.buffers())
    return hash(tuple((id(x), 0 if x.is_inference() else tensor_version(x)) for x in tensors))
