"""The package's public names, each imported when it is first used.

The stub `__init__.pyi` is the one table of them: type checkers, the site and this module
read it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

from headscope.deferred import importing


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
    package: str, homes: Mapping[str, tuple[str, str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The package's `__getattr__` and `__dir__`."""

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

    return get, lambda: sorted([*homes, "__version__"])
