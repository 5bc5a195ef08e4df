"""Writes tests/page/golden/live.json: numbers of heads that a live page computes itself.

Run it (`python -m tests.page.golden_live`) after a deliberate change of roles, statistics or words.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from headscope.page.codec import Buffers, cell_maxima, encode
from headscope.page.payload_blocks import THUMB_SIDE, block_part
from headscope.results.trace import Trace
from headscope.text.splitting import split_words
from headscope.text.tokens import Tokens

GOLDEN = Path(__file__).parent / "golden" / "live.json"
ENCODER = "[CLS] The STRASSE , the straße ; ΣΑΣ , σας ! the CAT sat ( on ) cat [SEP]"
LIST = " a, b, c, d. A, b, c, d. One more: a, b, c, d; the end of a list"
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
        shares = weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)
        steps = np.rint(shares * 512)  # few digits: the file stays small
        steps[np.arange(n), steps.argmax(1)] += 512 - steps.sum(1)
        heads.append(steps / 512)
    return heads


def golden_case(tokens: Tokens, causal: bool) -> dict[str, Any]:
    """Attention, tokens, and what Python makes of them."""
    n = len(tokens)
    weights = np.array(patterns(tokens, causal), dtype=np.float32).reshape(2, -1, n, n)
    block = Trace.from_arrays(weights, tokens, is_causal=causal).main
    buffers = Buffers()
    part = block_part(block, {"self": tokens}, (), None, buffers)
    thumbs = np.stack([cell_maxima(encode(layer, fine=False)[0], THUMB_SIDE) for layer in weights])
    buffers.add(np.rint(weights * 512).astype("<u2"))
    packed = base64.b64encode(buffers.packed[-1]).decode("ascii")
    return {
        "causal": causal,
        "tokens": {
            "tokens": list(tokens.tokens),
            "special": [int(flag) for flag in tokens.special],
            "segments": list(tokens.segments),
            "generated": [0] * n,
            "words": list(tokens.words),
            "word_texts": list(tokens.word_texts),
        },
        "shape": list(weights.shape),
        "weights": packed,
        "thumbs": [int(code) for code in thumbs.ravel()],
        "statistics": part["statistics"],
        "roles": part["roles"]["heads"],
    }


def golden_live() -> dict[str, Any]:
    special = [token in ("[CLS]", "[SEP]") for token in ENCODER.split()]
    words = LIST.replace(",", " ,").replace(".", " .").replace(":", " :").replace(";", " ;").split()
    repeated = [word if word in ",.:;" else f" {word}" for word in words]
    return {
        "cases": [
            golden_case(Tokens.of(ENCODER.split(), special=special), causal=False),
            golden_case(Tokens.of(repeated), causal=True),
            golden_case(Tokens.of(repeated[:3]), causal=True),
        ],
        "words": [
            {"text": text, "words": [text[start:end] for start, end in split_words(text)]}
            for text in TEXTS
        ],
    }


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_live(), ensure_ascii=False) + "\n", encoding="utf-8")
