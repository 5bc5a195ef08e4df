"""Still picture of all heads, drawn without a browser, for closed notebooks and link previews."""

from __future__ import annotations

import base64
import html
import io

import numpy as np
from PIL import Image

from headscope.results.trace import Trace

CELL = 30
"""Pixels of a head's thumbnail."""
GAP = 3
PAPER = np.array([252, 252, 250], dtype=np.float32)
INK = np.array([12, 44, 77], dtype=np.float32)


def sheet_of(trace: Trace) -> bytes:
    """A PNG picture with one heat map per head of the main block, layers down, heads across."""
    weights = trace.attention.transpose("layer", "head", "query", "key").values
    n_layers, n_heads = weights.shape[:2]
    pitch = CELL + GAP
    sheet = np.full((n_layers * pitch, n_heads * pitch, 3), 255, dtype=np.uint8)
    for layer in range(n_layers):
        for head in range(n_heads):
            top, left = layer * pitch, head * pitch
            sheet[top : top + CELL, left : left + CELL] = _heat(weights[layer, head])
    return png(sheet)


def picture_of(trace: Trace, *, css_class: str = "") -> str:
    """The picture as an HTML figure."""
    n_layers, n_heads = trace.attention.sizes["layer"], trace.attention.sizes["head"]
    pitch = CELL + GAP
    data = base64.b64encode(sheet_of(trace)).decode("ascii")
    model = html.escape(str(trace.provenance.get("model", "")))
    text = f"Attention of {model}: {n_layers} layers down, {n_heads} heads across"
    return (
        f'<figure class="{css_class}" style="margin:0"><img alt="{text}" '
        f'width="{n_heads * pitch}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}. Run the cell again for the explorer.</figcaption></figure>"
    )


def _heat(weights: np.ndarray) -> np.ndarray:
    """`CELL × CELL` colors: the strongest weight under each pixel."""
    pooled = cell_maxima(np.nan_to_num(weights), CELL)
    across = np.arange(CELL) * pooled.shape[1] // CELL
    down = np.arange(CELL) * pooled.shape[0] // CELL
    share = np.sqrt(np.clip(pooled[np.ix_(down, across)], 0, 1))[..., None]
    colors: np.ndarray = np.rint(PAPER + (INK - PAPER) * share).astype(np.uint8)
    return colors


def cell_maxima(weights: np.ndarray, most: int) -> np.ndarray:
    """The last two axes cut into at most `most` cells each: the largest number of each cell."""
    for axis in (-2, -1):
        n = weights.shape[axis]
        if n > most:
            edges = np.arange(1, most) * n // most
            cells = np.split(weights, edges, axis=axis)
            weights = np.stack([cell.max(axis=axis) for cell in cells], axis=axis)
    return weights


def png(pixels: np.ndarray) -> bytes:
    """`row column rgb` bytes as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()
