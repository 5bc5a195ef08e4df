"""What a model is, for plans and provenance: names, counts, and a hash of its weights."""

from __future__ import annotations

import hashlib
import importlib.metadata
from typing import TYPE_CHECKING

import torch

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
