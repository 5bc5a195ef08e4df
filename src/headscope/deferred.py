"""Libraries that are imported when something of them is first used.

Metrics measure with torch, and finish their sums with NumPy: whoever opens, compares or reports
what was measured needs the second half alone and should not wait seconds for the first. Tests and
intervals need `scipy.special`; a page of one text has neither.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
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
