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

from headscope.page.payload import make_payload
from headscope.results.trace import Block, Trace
from headscope.text.tokens import Tokens

GOLDEN = Path(__file__).parent / "golden" / "payload.json"


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
    return Trace(
        {"self": Block("self", data, tokens, tokens, is_causal=True)},
        {"self": tokens},
        {"self": hidden},
        {"model": "golden"},
    )


def golden_payload() -> dict[str, Any]:
    payload = make_payload([golden_trace()], titles=["unseen"], selection="layer=1")
    buffers = [base64.b64encode(buffer).decode("ascii") for buffer in payload.buffers]
    return {"header": payload.header, "buffers": buffers}


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden_payload(), indent=1) + "\n")
