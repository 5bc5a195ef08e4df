"""What the model made of the text, as parts of the payload: predictions, and effects on them."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from headscope.page.buffers import Buffers
from headscope.results.head_effects import HeadEffects
from headscope.results.predictions import WHOLE_TEXT, Predictions

MOST_POSITIONS = 64
"""Of a language model: all of a text up to so many tokens, else its last ones."""
MOST_ANSWERS = 10


def predictions_part(predictions: Predictions | None) -> dict[str, object] | None:
    """The likeliest answers by position; None where there is none, or none has a probability."""
    if predictions is None or not len(predictions):
        return None
    positions = predictions.positions[-MOST_POSITIONS:]
    if math.isnan(predictions.top(positions[-1])[0][1]):  # a score, not a choice
        return None
    return {
        "kind": "label" if predictions.kind == "token_label" else predictions.kind,
        "positions": [
            {
                "position": None if position == WHOLE_TEXT else position,
                "top": [
                    {"text": text, "probability": float(f"{probability:.5g}")}
                    for text, probability in predictions.top(position)[:MOST_ANSWERS]
                ],
            }
            for position in positions
        ],
    }


def effects_part(
    effects: HeadEffects | None, other: HeadEffects | None, buffers: Buffers
) -> dict[str, object] | None:
    """What each head does to the prediction, or to the text's vector.

    Args:
        effects: of this trace.
        other: of the trace it is compared with, for the likeness of the two.
        buffers: what to store arrays in.
    """
    if effects is None:
        return None
    data = effects.data
    if effects.kind == "prediction":
        after = data["after"].transpose("layer", "head", "candidate").values
        return {
            "kind": "prediction",
            "position": effects.position,
            "replace": str(data.attrs["replace"]),
            "candidates": [str(text) for text in data["candidate"].values],
            "before": [round(float(value), 5) for value in data["before"].values],
            "after": buffers.add_numbers(after, 2),
        }
    likeness = None if other is None else effects.likeness(other)
    return {
        "kind": "turn",
        "pooling": str(data.attrs["pooling"]),
        "turn": _table(effects.values),
        "likeness": None
        if likeness is None
        else {"before": round(likeness[0], 5), "after": _table(likeness[1])},
    }


def _table(array: xr.DataArray) -> list[list[float | None]]:
    rows = np.asarray(array.transpose("layer", "head").values, dtype=np.float64)
    return [[float(f"{v:.5g}") if math.isfinite(v) else None for v in row] for row in rows]
