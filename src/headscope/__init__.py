"""headscope: see and measure what every attention head of a Transformer does.

    import headscope as hs

    model = hs.load("minilm")
    trace = model.trace("The cat sat on the mat.", pair="The cat lay on the rug.")
    trace.attention  # layer head query key

Names are imported when they are first used: `import headscope` alone loads neither torch
nor any optional library, prints nothing and touches no network.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headscope import errors

if TYPE_CHECKING:
    from headscope.model.edit import ablate, scale_neurons, set_attention
    from headscope.model.load import load
    from headscope.model.model import Model
    from headscope.results.files import open_file as open
    from headscope.results.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "Model",
    "Trace",
    "__version__",
    "ablate",
    "errors",
    "load",
    "open",
    "scale_neurons",
    "set_attention",
]

_HOMES = {
    "Model": "headscope.model.model:Model",
    "Trace": "headscope.results.trace:Trace",
    "ablate": "headscope.model.edit:ablate",
    "load": "headscope.model.load:load",
    "open": "headscope.results.files:open_file",
    "scale_neurons": "headscope.model.edit:scale_neurons",
    "set_attention": "headscope.model.edit:set_attention",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
