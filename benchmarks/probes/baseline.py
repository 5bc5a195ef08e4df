"""Probing as in 2019: keep the attention of all sentences, then loop over them in NumPy.

Written after the description in Clark et al. 2019, sections 4.1 and 4.2: sentence by
sentence with `output_attentions`, word-level attention by loops over split words, then for
every head and direction the most attended word of each word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headscope.batch import Sequences

__all__ = ["run_2019"]


def run_2019(
    module: Any, rows: Sequence[dict[str, list[int]]], labels: Sequence[Sequences]
) -> dict[tuple[int, int, str], Counter[int]]:
    """Right predictions by layer, head and direction: a counter over relations."""
    kept: list[np.ndarray] = []
    for inputs in rows:
        tensors = {name: torch.tensor([values]) for name, values in inputs.items()}
        with torch.no_grad():
            found = module(**tensors, output_attentions=True).attentions
        kept.append(torch.stack(found)[:, 0].numpy())
    right: dict[tuple[int, int, str], Counter[int]] = {}
    words = [_words(label) for label in labels]
    n_layers, n_heads = kept[0].shape[:2]
    for layer in range(n_layers):
        for head in range(n_heads):
            for direction in ("dependent", "head"):
                found_right: Counter[int] = Counter()
                for attention, (groups, heads, relations) in zip(kept, words, strict=True):
                    weights = _word_level(attention[layer, head], groups)
                    np.fill_diagonal(weights, -1)
                    best = weights.argmax(1 if direction == "dependent" else 0)
                    for predicted, parent, relation in zip(best, heads, relations, strict=True):
                        found_right[relation] += int(predicted == parent)
                right[layer, head, direction] = found_right
    return right


def _word_level(attention: np.ndarray, groups: list[list[int]]) -> np.ndarray:
    """Sums over the columns of a split word, the mean over its rows."""
    columns = [attention[:, group].sum(1) for group in groups]
    to_words = np.stack(columns, axis=1)
    return np.stack([to_words[group].mean(0) for group in groups])


def _words(label: Sequences) -> tuple[list[list[int]], list[int], list[int]]:
    groups: dict[int, list[int]] = {}
    for token, word in enumerate(label.words[0]):
        if word >= 0:
            groups.setdefault(int(word), []).append(token)
    order = {word: place for place, word in enumerate(groups)}
    heads = [order.get(int(label.parents[0][group[0]]), -1) for group in groups.values()]
    relations = [int(label.relations[0][group[0]]) for group in groups.values()]
    return list(groups.values()), heads, relations
