"""Writes tests/page/golden/payload.json, which the tests of Python and TypeScript both read.

Run it (`python -m tests.page.golden_payload`) after a deliberate change of the payload.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headscope.page.payload import Contents, Evidence, make_payload
from headscope.results.effect_data import HeadEffects
from headscope.results.predictions import Predictions
from headscope.results.trace import Block, Trace
from headscope.text.tokens import Tokens

GOLDEN = Path(__file__).parent / "golden" / "payload.json"
CARD = {
    "sentences": ["Reads the previous token: 61.0 % of its attention over 40 documents."],
    "relations": [
        {
            "name": "det",
            "value": 0.8,
            "low": 0.7,
            "high": 0.9,
            "baseline": 0.5,
            "baseline_name": "best offset (1)",
        }
    ],
    "looks": [
        {
            "name": "offset_share/-1",
            "title": "the previous token",
            "value": 0.61,
            "low": 0.55,
            "high": 0.67,
            "unit": "share",
        }
    ],
    "numbers": [
        {
            "name": "distance",
            "title": "Mean distance",
            "value": 1.5,
            "low": 1.25,
            "high": 1.75,
            "unit": "tokens",
        }
    ],
    "exemplars": [{"tokens": ["a", "b"], "links": [[1, 0, 0.95]]}],
    "neighbors": ["L1H0"],
}


def golden_trace() -> Trace:
    """Two layers, two heads of one group, three tokens, numbers that can be checked by hand."""
    weights = np.array(
        [
            [[[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]],
            [[[1, 0, 0], [0.9, 0.1, 0], [0.123, 0.456, 0.421]], [[np.nan] * 3] * 3],
        ],
        dtype=np.float32,
    )
    steps = np.arange(2 * 2 * 3 * 4, dtype=np.float32)
    data = xr.Dataset(
        {
            "attention": (("layer", "head", "query", "key"), weights),
            "queries": (("layer", "head", "query", "neuron"), (steps / 16 - 1).reshape(2, 2, 3, 4)),
            "keys": (("layer", "group", "key", "neuron"), (1 - steps[:24] / 8).reshape(2, 1, 3, 4)),
            "scale": (("layer",), [0.5, 0.25]),
        },
        coords={"layer": [0, 1], "head": [0, 1], "group_of_head": ("head", [0, 0])},
    )
    tokens = Tokens.of(
        ["<s>", "un", "seen"], special=[True, False, False], segments=[0, 0, 1], words=[-1, 0, 0]
    )
    hidden = xr.DataArray(
        np.arange(18, dtype=np.float32).reshape(3, 3, 2), dims=("state", "query", "unit")
    )
    logits = np.array([[2.0, 1.0], [1.0, 0.0], [3.0, 2.0]], dtype=np.float32)
    predictions = Predictions.of(
        "next",
        positions=[0, 1, 2],
        at=tokens.tokens,
        tokens=[["un", "seen"], ["seen", " and"], [" things", "."]],
        ids=np.array([[1, 2], [2, 3], [4, 5]]),
        logits=logits,
        probabilities=np.array([[0.5, 0.25], [0.75, 0.125], [0.625, 0.25]]),
    )
    effects = HeadEffects.of_prediction(
        [" things", "."],
        np.log([0.625, 0.25]),
        np.log([[[0.5, 0.25], [0.25, 0.5]], [[0.625, 0.25], [0.625, 0.25]]]),
        [0, 1],
        {"block": "self", "position": 2, "ablation": "zero"},
    )
    return Trace(
        {"self": Block("self", data, tokens, tokens, is_causal=True)},
        {"self": tokens},
        {"self": hidden},
        {"model": "golden", "changed": "without L1 H1"},
        predictions,
        effects,
    )


def golden_encoder() -> Trace:
    """A plain encoder on four tokens, two of which are equal words of two texts."""
    weights = np.full((1, 1, 4, 4), 0.25, dtype=np.float32)
    tokens = Tokens.of(["[CLS]", "cat", "cat", "."], special=[True, False, False, False],
                       segments=[0, 0, 1, 1])  # fmt: skip
    vectors = np.array([[[3.0, 4.0]]])
    effects = HeadEffects.of_vector(
        np.array([1.0, 0.0]), vectors, [0], {"block": "self", "pooling": "mean", "ablation": "zero"}
    )
    data = xr.Dataset(
        {"attention": (("layer", "head", "query", "key"), weights)},
        coords={"layer": [0], "head": [0]},
    )
    block = Block("self", data, tokens, tokens, is_causal=False)
    return Trace({"self": block}, {"self": tokens}, {}, {"model": "plain"}, None, effects)


WIRE: dict[str, Any] = {
    "source": "L0 H1", "reader": "q of L1 H0", "by": "q", "source_layer": 0, "source_head": 1,
    "layer": 1, "reader_heads": [0], "share": 0.5, "low": 0.25, "high": 0.75, "stability": 0.75,
    "p": 0.03125, "at": 2, "part": 1.0, "by_head": {}, "values": [0.25, 0.75],
}  # fmt: skip
WIRES: dict[str, Any] = {
    "model": "golden", "task": "things", "holds": "2 pairs of 2 templates", "changed": [1],
    "tokens": [["<s>", "un", "seen"], ["<s>", "fore", "seen"]], "answers": ["things", "."],
    "position": 2, "total": 21, "exact": 4, "templates": [0, 1],
    "pairs": [["unseen", "foreseen"], ["unsaid", "foresaid"]],
    "wires": [
        WIRE,
        WIRE | {"source": "embedding", "source_head": -1, "source_layer": -1, "at": 1,
                "reader": "k of L1 H0-1", "by": "k", "reader_heads": [0, 1], "share": -0.25,
                "low": -0.625, "high": 0.125, "stability": 0.5, "p": None,
                "by_head": {"H0": -0.5, "H1": 0.25}, "values": [-0.5, 0.0]},
        WIRE | {"reader": "logits", "by": "logits", "reader_heads": [], "share": 0.125},
        WIRE | {"source": "L1 MLP", "source_layer": 1, "source_head": -1, "reader": "logits",
                "by": "logits", "reader_heads": [], "share": 0.0625, "stability": None},
    ],
    "curve": {"k": [0.001, 0.01, 1.0], "faithfulness": [0.25, 0.75, 1.0], "cpr": 0.875,
              "cmd": 0.125, "pairs": 2},
}  # fmt: skip


def golden_payload() -> dict[str, Any]:
    contents = Contents(
        titles=["unseen", "cat", "cat again"],
        examples=[[0], [1, 2]],
        selection="head=L1H0",
        story=[
            ("It rests.", {"layer": 0, "head": 0, "word": 2}),
            ("Two cats.", {"example": 1, "tab": "matrix"}),
        ],
        evidence=Evidence(
            {
                "about": "demo, 40 documents",
                "meanings": {"distance": "How far it looks."},
                "cards": {"L0H0": CARD},  # type: ignore[dict-item]
            }
        ),
        wires=WIRES,
    )
    payload = make_payload([golden_trace(), golden_encoder(), golden_encoder()], contents)
    buffers = [base64.b64encode(buffer).decode("ascii") for buffer in payload.buffers]
    return {"header": payload.header, "buffers": buffers}


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden_payload(), indent=1) + "\n")
