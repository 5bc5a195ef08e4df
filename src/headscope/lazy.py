"""The package's public names, each imported when it is first used.

The stub `__init__.pyi` is the one table of them: type checkers, the site and this module
read it.

Libraries that are imported when something of them is first used.

Metrics measure with torch, and finish their sums with NumPy: whoever opens, compares or reports
what was measured needs the second half alone and should not wait seconds for the first. Tests and
intervals need `scipy.special`; a page of one text has neither.
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
else:

    class _Later:
        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> object:
            value = getattr(importlib.import_module(self._module), name)
            setattr(self, name, value)  # found without this method from now on
            return value

    torch = _Later("torch")
    special = _Later("scipy.special")


@contextmanager
def importing() -> Iterator[None]:
    """Within the block Python collects no garbage.

    Imports leave none, but make a million objects, which Python would search again and again: that
    takes a seventh of the time in which torch and transformers are imported.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_stub(text: str) -> dict[str, tuple[str, str]]:
    """Public name → its module and its name there.

    Each import of the stub is a line of its own: `from MODULE import NAME as PUBLIC`.
    """
    homes = {}
    for line in text.splitlines():
        if line.startswith("from "):
            _, module, _, name, _, public = line.split()
            homes[public] = (module, name)
    return homes


def lazy_names(
    package: str, homes: Mapping[str, tuple[str, str]], *others: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        homes: the module of each public name, and the name there.
        others: public names that the package defines itself.
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
