"""Cache passed self-checks on disk, keyed by weights, code and library versions.

Only models that equal their files are cached: a live model is always checked. The files are in
`checks` in the cache folder and can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from headscope.atomic import atomic_path, cache_folder, check_seal, read_sealed, sealed
from headscope.errors import FileFormatError
from headscope.model.identity import bytes_of, has_own_code, versions, weights_sha256
from headscope.model.private_api import NAME_OR_PATH
from headscope.model.tap import check as tap_check
from headscope.model.tap.check import Check
from headscope.model.tap.interface import modules_of
from headscope.model.tap.sites import Site, Wiring

PLAIN_TYPES = (bool, int, float, str, type(None))
"""Types of module attributes that can affect the computation, such as the scale of scores."""


def check_key(root: PreTrainedModel) -> str | None:
    """Return the key of a model's check, or None if the check must not be cached."""
    modules = modules_of(root)
    libraries = ("transformers.", "torch.")
    if has_own_code(modules) or not all(type(m).__module__.startswith(libraries) for m in modules):
        return None
    config = {k: v for k, v in root.config.to_dict().items() if k != NAME_OR_PATH}
    content = {
        "environment": environment(),
        "device": str(root.device),
        "dtypes": sorted({str(p.dtype) for p in root.parameters()}),
        "config": config,
        "modules": [(name, *_described(module)) for name, module in root.named_modules()],
        "weights": weights_sha256(root),
        "buffers": _bytes_of(buffer for _, buffer in root.named_buffers()),
    }
    plain = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(plain.encode()).hexdigest()


@cache
def environment() -> str:
    """Describe the machine, the libraries and headscope's tap as far as a check depends on them."""
    folder = Path(tap_check.__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    machine = platform.node(), platform.machine(), platform.python_version()
    libraries = versions("torch", "transformers", "headscope")
    tap = hashlib.sha256(sources).hexdigest()
    return json.dumps({"machine": machine, "versions": libraries, "tap": tap})


def load_check(key: str) -> tuple[Wiring, Check] | None:
    """Return the check cached under this key; None if missing, damaged or of another user."""
    try:
        if not check_seal(_file(key)):
            return None
        content = json.loads(read_sealed(_file(key)))
        if content["key"] != key:
            return None
        wiring, check = content["wiring"], content["check"]
        for name in ("sites", "copies"):
            wiring[name] = tuple(Site(**site) for site in wiring[name])
        for name in ("causal_blocks", "media"):
            wiring[name] = frozenset(wiring[name])
        check["unread"] = tuple(check["unread"])
        return Wiring(**wiring), replace(Check(**check), is_cached=True)
    except (OSError, FileFormatError, ValueError, KeyError, TypeError, RecursionError):
        return None


def store_check(key: str, wiring: Wiring, check: Check) -> None:
    """Write a check to the cache; do nothing if the cache is not writable."""
    plain = {field.name: getattr(wiring, field.name) for field in fields(wiring) if field.init}
    for name in ("sites", "copies"):
        plain[name] = [asdict(site) for site in plain[name]]
    for name in ("causal_blocks", "media"):
        plain[name] = sorted(plain[name])
    content = json.dumps({"key": key, "wiring": plain, "check": asdict(check)}, indent=1)
    with contextlib.suppress(OSError):
        _file(key).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError), atomic_path(_file(key)) as temporary:
        temporary.write_bytes(sealed(content.encode()))


def _file(key: str) -> Path:
    return cache_folder() / "checks" / f"{key}.json"


def _described(module: nn.Module) -> tuple[str, list[tuple[str, object]]]:
    plain: list[tuple[str, object]] = [
        (name, value)
        for name, value in sorted(vars(module).items())
        if isinstance(value, PLAIN_TYPES) and name != "training" and not name.startswith("_")
    ]
    return f"{type(module).__module__}.{type(module).__qualname__}", plain


def _bytes_of(tensors: Iterable[torch.Tensor]) -> str:
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(bytes_of(tensor))
    return content.hexdigest()
