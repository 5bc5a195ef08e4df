"""Writes tests/page/golden/live.json: roles of heads and words of texts, which pages derive too.

Run it (`python -m tests.page.golden_live`) after a deliberate change of roles or words.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headscope.page.payload import make_payload
from headscope.results.trace import Block, Trace
from headscope.text.splitting import split_words
from headscope.text.tokens import Tokens

GOLDEN = Path(__file__).parent / "golden" / "live.json"
ENCODER = "[CLS] The STRASSE , the straße ; ΣΑΣ , σας ! the CAT sat ( on ) cat [SEP]"
LIST = " a, b, c, d. A, b, c, d. One more: a, b, c, d; the end of a list"
LETTERS = "ı i I ı i ş ß ẞ ss ẞ Σ ς ı İ i ﬁ fi"
TEXTS = [
    "Don't pay $3.50, well-known l·l a\u00adb x\u200dy ’tis rock'n'roll 3.〇 1,2,3. 4.",
    "東京都に住む。ガ か\u3099 你好，世界 한국어 문장 ภาษาไทย हिन्दी",
    "👩‍👩‍👧🏽 🇫🇷🇩🇪🇦 ❤️ e\u0301\u0327 \u0301x  tab\there\n\u200b\ufeff\x85end",
    "http://a.b/c?d=e_f#g @me ... --- '' ’’ İstanbul ﬁ ½ ² Ⅷ 𝔘𝔫𝔦 مرحبا، שלום־עולם",
]


def patterns(tokens: Tokens, causal: bool) -> list[np.ndarray]:
    """Attention that shows each role, on top of a rest that differs by query."""
    n = len(tokens)
    kinds = [token.strip().casefold() for token in tokens.tokens]
    made = [np.eye(n, k=shift) for shift in (-1, 0, 1)]
    equal = np.array([[float(a == b) for b in kinds] for a in kinds]) - np.eye(n)
    made.append(equal)
    made.append(np.roll(np.tril(equal), 1, axis=1))
    made.append(np.ones((n, n)))
    made.append(np.eye(1, n).repeat(n, 0))
    made.append(np.array([tokens.special] * n, dtype=float))
    made.append(np.array([[float(kind in ",.;!:()") for kind in kinds]] * n))
    made += [0.5 * made[6] + 0.5 * made[7], 0.6 * made[0] + 0.4 * made[3], np.zeros((n, n))]
    queries, keys = np.indices((n, n))
    heads = []
    for number, pattern in enumerate(made):
        rest = ((queries * 7 + keys * 13 + number * 5) % 11 == 0) + 0.05
        weights = pattern / np.maximum(pattern.sum(1, keepdims=True), 1e-9) + 0.2 * rest
        weights = np.tril(weights) if causal else weights
        heads.append(weights / np.maximum(weights.sum(1, keepdims=True), 1e-9))
    return heads


def golden_trace(tokens: Tokens, causal: bool) -> Trace:
    n = len(tokens)
    weights = np.array(patterns(tokens, causal), dtype=np.float32).reshape(2, -1, n, n)
    return Trace.from_arrays(weights, tokens, is_causal=causal)


def leaking(trace: Trace) -> Trace:
    """Rows that sum to less than 1, as with sink logits, and a head that is missing."""
    weights = trace.attention.values * np.linspace(0.5, 1, 6, dtype=np.float32)[:, None, None]
    weights[1, 2] = np.nan
    return changed(trace, weights, {})


def windowed(trace: Trace) -> Trace:
    """Queries of the second layer see themselves and five keys before."""
    n = len(trace.tokens)
    mask = np.tri(n, dtype=bool)
    visible = np.stack([mask, mask & ~np.tri(n, k=-6, dtype=bool)])
    weights = np.where(visible[:, None], trace.attention.values + np.float32(1 / 64), 0)
    weights = weights / weights.sum(-1, keepdims=True)
    return changed(trace, weights, {"visible": (("layer", "query", "key"), visible)})


def changed(trace: Trace, weights: np.ndarray, more: dict[str, Any]) -> Trace:
    attention = (("layer", "head", "query", "key"), weights.astype(np.float32))
    data = xr.Dataset(
        {"attention": attention, **more},
        coords={"layer": [0, 1], "head": list(range(weights.shape[1]))},
    )
    block = trace.main
    text = block.query_tokens
    return Trace({"self": Block("self", data, text, text, block.is_causal)}, {"self": text})


def golden_case(trace: Trace) -> dict[str, Any]:
    """Payload of a trace, and the roles that Python finds."""
    payload = make_payload([trace])
    roles = trace.roles()
    names = ("role", "share", "queries")
    return {
        "traces": payload.header["traces"],
        "buffers": [base64.b64encode(buffer).decode("ascii") for buffer in payload.buffers],
        "roles": [
            [
                {
                    "role": str(role) or None,
                    "share": None if math.isnan(share) else round(float(share), 4),
                    "queries": int(queries),
                }
                for role, share, queries in zip(*row, strict=True)
            ]
            for row in zip(*(roles[name].values for name in names), strict=True)
        ],
    }


def golden_live() -> dict[str, Any]:
    special = [token in ("[CLS]", "[SEP]") for token in ENCODER.split()]
    words = LIST.replace(",", " ,").replace(".", " .").replace(":", " :").replace(";", " ;").split()
    repeated = [word if word in ",.:;" else f" {word}" for word in words]
    causal = golden_trace(Tokens.of(repeated), causal=True)
    long = Tokens.of([*repeated] * 5)
    cases = [
        golden_trace(Tokens.of(ENCODER.split(), special=special), causal=False),
        causal,
        golden_trace(Tokens.of(repeated[:3]), causal=True),
        leaking(causal),
        windowed(causal),
        golden_trace(long, causal=True),
        golden_trace(Tokens.of(LETTERS.split()), causal=False),
    ]
    return {
        "cases": [golden_case(case) for case in cases],
        "words": [
            {"text": text, "words": [text[start:end] for start, end in split_words(text)]}
            for text in TEXTS
        ],
    }


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_live(), ensure_ascii=False) + "\n", encoding="utf-8")
