"""A still picture of all heads, drawn without a browser: what a closed notebook shows."""

from __future__ import annotations

import base64
import html
import struct
import zlib

import numpy as np

from headscope.results.trace import Trace

CELL = 30
"""Pixels of a head's thumbnail."""
GAP = 3
PAPER = np.array([252, 252, 250], dtype=np.float32)
INK = np.array([12, 44, 77], dtype=np.float32)


def picture_of(trace: Trace, *, css_class: str = "") -> str:
    """An HTML figure with one heat map per head of the main block, layers down, heads across."""
    weights = np.nan_to_num(trace.attention.transpose("layer", "head", "query", "key").values)
    n_layers, n_heads = weights.shape[:2]
    pitch = CELL + GAP
    sheet = np.full((n_layers * pitch, n_heads * pitch, 3), 255, dtype=np.uint8)
    for layer in range(n_layers):
        for head in range(n_heads):
            top, left = layer * pitch, head * pitch
            sheet[top : top + CELL, left : left + CELL] = _heat(weights[layer, head])
    data = base64.b64encode(png(sheet)).decode("ascii")
    model = html.escape(str(trace.about.get("model", "")))
    text = f"Attention of {model}: {n_layers} layers down, {n_heads} heads across"
    return (
        f'<figure class="{css_class}" style="margin:0"><img alt="{text}" '
        f'width="{n_heads * pitch}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}. Run the cell again for the explorer.</figcaption></figure>"
    )


def _heat(weights: np.ndarray) -> np.ndarray:
    """`CELL × CELL` colors: the strongest weight under each pixel."""
    n_queries, n_keys = weights.shape
    rows = np.arange(n_queries) * min(CELL, n_queries) // n_queries
    columns = np.arange(n_keys) * min(CELL, n_keys) // n_keys
    pooled = np.zeros((rows[-1] + 1, columns[-1] + 1), dtype=np.float32)
    np.maximum.at(pooled, (rows[:, None], columns[None, :]), weights)
    across = np.arange(CELL) * pooled.shape[1] // CELL
    down = np.arange(CELL) * pooled.shape[0] // CELL
    share = np.sqrt(np.clip(pooled[np.ix_(down, across)], 0, 1))[..., None]
    colors: np.ndarray = np.rint(PAPER + (INK - PAPER) * share).astype(np.uint8)
    return colors


def png(pixels: np.ndarray) -> bytes:
    """`row column rgb` bytes as a PNG file."""
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + width * 3), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", size),
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )
