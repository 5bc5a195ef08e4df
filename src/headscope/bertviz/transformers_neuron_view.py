"""Classes of transformers under the names of BertViz's `transformers_neuron_view`.

BertViz vendors old model code to read queries and keys. headscope reads them from any model, so
`BertModel` here is the class of transformers.
"""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    """Return the class of this name from transformers."""
    if name.startswith("_"):
        raise AttributeError(name)
    transformers = importlib.import_module("transformers")
    try:
        return getattr(transformers, name)
    except AttributeError as error:
        raise AttributeError(
            f"{name} is not in transformers {transformers.__version__}. neuron_view.show takes any "
            "model: load one with transformers.AutoModel.from_pretrained(…)."
        ) from error
