"""The demo: what the heads of the two packaged models do with a few words, to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.app import options
from headscope.app.answer import Answer, say

if TYPE_CHECKING:
    from headscope.results.trace import Trace

__all__ = ["demo"]


def demo(out: options.Out = Path("demo")) -> Answer:
    """Trace a sentence with both packaged models, and say what their heads do with it."""
    import headscope as hs

    out.mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[str, dict[str, Any]]] = [
        ("minilm", {"text": "The cat sat on the mat.", "pair": "The cat lay on the rug."}),
        ("smollm2", {"text": "The doctor asked the nurse a question. She", "generate": 12}),
    ]
    lines = []
    for alias, job in jobs:
        say(f"Loading {alias} …")
        model = hs.load(alias)
        trace = model.trace(**job)
        trace.save(out / f"{alias}.nc")
        hs.save_page(trace, out / f"{alias}.html")
        lines += [
            f"{model.info.name}: {model.info.n_layers} layers × {model.info.n_heads} heads, "
            f"read by the {model.info.route} route ({model.info.check})",
            f"  text      {' / '.join(trace.text.texts)}",
            *(f"  {line}" for line in notable_heads(trace)),
            f"  arrays    {out / alias}.nc (headscope.open reads it)",
            f"  look at   {out / alias}.html (any browser opens it)",
            "",
        ]
    return Answer({"folder": str(out)}, "\n".join(lines[:-1]))


def notable_heads(trace: Trace) -> list[str]:
    """The head that looks most like each of a few well-known patterns."""
    weights = trace.attention.values
    n = weights.shape[-1]
    text = trace.text
    ordinary = np.array([not s for s in text.special])
    sink = np.array(text.special) if any(text.special) else np.arange(n) == 0
    rows = weights[:, :, ordinary] if any(text.special) else weights[:, :, 1:]
    segments = np.array(text.segments)
    across = segments[:, None] != segments[None, :]
    patterns = {
        "previous": _mean_diagonal(weights, -1),
        "next": _mean_diagonal(weights, 1),
        "sink": rows[..., sink].sum(-1).mean(-1),
        "broad": -np.sum(rows * np.log(np.maximum(rows, 1e-12)), -1).mean(-1),
    }
    if across.any():
        ordinary_pairs = across & ordinary[:, None] & ordinary[None, :]
        patterns["across"] = (weights * ordinary_pairs).sum(-1)[:, :, ordinary].mean(-1)
    meanings = {
        "previous": "of its attention goes to the previous token",
        "next": "of its attention goes to the next token",
        "sink": "of its attention rests on special tokens or the first token",
        "across": "of its attention goes to the other sentence",
        "broad": "nats of entropy: it looks everywhere",
    }
    lines = []
    for name, values in patterns.items():
        if np.nanmax(values) <= 0:
            continue
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        value = float(values[layer, head])
        shown = f"{value:.2f} " if name == "broad" else f"{value:.0%} "
        place = f"L{trace.layers[layer]} H{head}"
        lines.append(f"{name:<9} {place:<8} {shown}{meanings[name]}")
    return lines


def _mean_diagonal(weights: np.ndarray, offset: int) -> np.ndarray:
    diagonal: np.ndarray = np.diagonal(weights, offset, axis1=2, axis2=3)
    return diagonal.mean(-1) if diagonal.shape[-1] else np.full(weights.shape[:2], np.nan)
