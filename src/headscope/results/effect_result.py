"""Effects of heads over a corpus, as a result that cards, maps and reports read."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.results.result import Result

DESCRIPTION = {
    "title": "Effect on the loss",
    "short_title": "Effect",
    "units": "nats per token",
    "format": "+.4f",
    "equation": r"L_{\setminus h} - L",
    "paper": "Michel et al. 2019, section 3; Voita et al. 2019",
    "long_name": "By how much the loss per predicted token rises without the head.",
    "order": 330,
}


def result_of_effects(effects: xr.DataArray) -> Result:
    """What `headscope.effects(model, corpus)` measured, as a result with the variable `effect`.

    Args:
        effects: over layer and head, of a corpus: it knows its model and its documents.

    Raises:
        InputError: effects on one prediction, or of sets of heads: they say nothing of a corpus.
    """
    if "provenance" not in effects.attrs or effects.dims != ("layer", "head"):
        raise InputError(
            "Only effects of single heads over a corpus stand in cards, maps and reports: what one "
            "text shows is about that text. Give headscope.effects(model, headscope.read(path))."
        )
    bounds = np.stack((effects["low"].values, effects["high"].values))
    plain = effects.drop_vars(["low", "high", "p"])
    data = xr.Dataset(
        {
            "effect": plain.assign_attrs(DESCRIPTION),
            "effect_interval": (("bound", "layer", "head"), bounds),
            "effect_p": (("layer", "head"), effects["p"].values),
            "tokens_per_document_count": ((), float(effects.attrs["texts"])),
        },
        coords={"bound": ["low", "high"]},
    )
    data["effect"].attrs.pop("provenance")
    return Result({str(effects.attrs["block"]): data}, {}, json.loads(effects.attrs["provenance"]))
