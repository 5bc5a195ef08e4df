"""Lazy imports of public names and of heavy libraries.

The stub `__init__.pyi` lists the public names for type checkers, the site and this module. Metrics
measure with torch but finalize with NumPy, so opening or reporting a result does not import torch.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch as torch
    from scipy import special as special  # type: ignore[import-untyped, unused-ignore]
    from torch import Tensor as Tensor
else:

    class _Later:
        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> object:
            module = importlib.import_module(self._module)
            # Public names are found without this method from now on.
            vars(self).update({key: value for key, value in vars(module).items() if key[0] != "_"})
            return getattr(module, name)

    torch = _Later("torch")
    Tensor = object  # for annotations
    special = _Later("scipy.special")


@contextmanager
def importing() -> Iterator[None]:
    """Switch off garbage collection within the block: imports create a million objects and no
    garbage.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_stub(text: str) -> dict[str, tuple[str, str]]:
    """Return module and name there of each public name: one import line of the stub each."""
    homes = {}
    for line in text.splitlines():
        if line.startswith("from "):
            _, module, _, name, _, public = line.split()
            homes[public] = (module, name)
    return homes


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, str]], *others: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package. `homes` has the module of each public
    name, and its name there; `others` are names that the package defines itself.
    """

    def get(name: str) -> object:
        namespace = sys.modules[package]
        if name not in homes:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=namespace)
        module, attribute = homes[name]
        if module == package:
            return importlib.import_module(f"{package}.{attribute}")
        with importing():
            value = getattr(importlib.import_module(module), attribute)
        setattr(namespace, name, value)
        return value

    return get, lambda: sorted([*homes, *others])
