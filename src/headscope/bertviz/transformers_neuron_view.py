"""The classes that BertViz's neuron view vendors, under the same names, as transformers has them.

BertViz carries copies of old model code because its neuron view reads queries and keys out of
them. headscope reads them out of any model, so `BertModel` here is transformers' own.
"""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    """The class of this name in the installed transformers."""
    if name.startswith("_"):
        raise AttributeError(name)
    transformers = importlib.import_module("transformers")
    try:
        return getattr(transformers, name)
    except AttributeError as error:
        raise AttributeError(
            f"{name} is not in transformers {transformers.__version__}: the families that BertViz "
            "copied and transformers has dropped are gone here too. neuron_view.show takes any "
            "model: load one with transformers.AutoModel.from_pretrained(…)."
        ) from error
