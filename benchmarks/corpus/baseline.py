"""The 2019 way: pad every sentence to 128 tokens, keep all attention, loop in NumPy.

Written as research scripts of the time were: eager attention returned by the model for
whole batches, copied to NumPy, then a loop over sentences, layers and heads. It computes
the same numbers (null share, shares by tag and relation, alignment, distance, entropy, the
highest weight, the first 10 × 10 weights) with whole-matrix operations inside the loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headscope.batch import Sequences

LENGTH = 128
BATCH = 16


def run_2019(
    module: Any,
    rows: Sequence[dict[str, list[int]]],
    labels: Sequence[Sequences],
    sizes: tuple[int, int],
) -> dict[str, np.ndarray]:
    """Numerators and denominators of all metrics, for sentences one row each."""
    n_layers, n_heads = module.config.num_hidden_layers, module.config.num_attention_heads
    n_tags, n_relations = sizes
    shape = n_layers, n_heads
    sums = {name: np.zeros(shape) for name in ("null", "all", "total", "far", "entropy", "rows")}
    sums["to"], sums["from"] = np.zeros((*shape, n_tags)), np.zeros((*shape, n_tags))
    sums["types"] = np.zeros((*shape, n_relations))
    sums["aligned"] = np.zeros((*shape, 2))
    highest: list[Any] = []
    prefixes: list[np.ndarray] = []
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        attention = _attention(module, batch)
        for number, row in enumerate(batch):
            found = labels[start + number]
            n = len(row["input_ids"])
            _add(sums, attention[:, number, :, :n, :n], found, n, highest, prefixes)
    values = np.stack(prefixes)
    deviations = np.abs(values - np.nanmean(values, axis=0))
    sums["variability"] = np.nansum(deviations, axis=(0, 3, 4)) / (
        2 * np.nansum(values, axis=(0, 3, 4))
    )
    return sums


def _attention(module: Any, batch: Sequence[dict[str, list[int]]]) -> np.ndarray:
    """`layer document head query key`, padded to 128."""
    ids = torch.zeros((len(batch), LENGTH), dtype=torch.long)
    mask = torch.zeros((len(batch), LENGTH), dtype=torch.long)
    for number, row in enumerate(batch):
        ids[number, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[number, : len(row["input_ids"])] = 1
    with torch.no_grad():
        found = module(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
    return np.stack([layer.numpy() for layer in found])


def _add(
    sums: dict[str, np.ndarray],
    attention: np.ndarray,
    found: Sequences,
    n: int,
    highest: list[Any],
    prefixes: list[np.ndarray],
) -> None:
    special = found.special[0, :n]
    is_query, is_key = ~special, ~special
    words, heads = found.words[0, :n], found.parents[0, :n]
    key_parent = (heads[:, None] == words[None, :]) & (heads[:, None] >= 0)
    query_parent = key_parent.T
    distance = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :])
    kept = np.full((*attention.shape[:2], 10, 10), np.nan)
    inside = np.flatnonzero(is_query)[:10]
    for layer in range(attention.shape[0]):
        for head in range(attention.shape[1]):
            a = attention[layer, head][is_query]
            at = layer, head
            sums["null"][at] += a[:, special].sum()
            sums["all"][at] += a.sum()
            b = a[:, is_key]
            sums["total"][at] += b.sum()
            sums["far"][at] += (b * distance[is_query][:, is_key]).sum()
            for tag in np.unique(found.tags[0, :n][is_key]):
                if tag >= 0:
                    sums["to"][(*at, tag)] += b[:, found.tags[0, :n][is_key] == tag].sum()
                    sums["from"][(*at, tag)] += b[found.tags[0, :n][is_query] == tag].sum()
            for relation in np.unique(found.relations[0, :n][is_key]):
                if relation >= 0:
                    which = found.relations[0, :n][is_key] == relation
                    sums["types"][(*at, relation)] += b[:, which].sum()
            sums["aligned"][(*at, 0)] += b[query_parent[is_query][:, is_key]].sum()
            sums["aligned"][(*at, 1)] += b[key_parent[is_query][:, is_key]].sum()
            for row in b:
                mass = row.sum()
                if mass > 0.1:
                    p = row / mass
                    sums["entropy"][at] -= (p * np.log(np.maximum(p, 1e-30))).sum()
                    sums["rows"][at] += 1
            if b.size:
                highest.append((at, float(b.max()), int(b.argmax())))
            kept[layer, head, : len(inside), : len(inside)] = attention[layer, head][inside][
                :, inside
            ]
    prefixes.append(kept)
