"""Head distances as the script of 2019 computed them (Clark et al., head_distances.py),
written anew from its formula: every pair twice, two logarithms of quotients each, in NumPy.
"""

from __future__ import annotations

import numpy as np


def js_2019(rows: np.ndarray) -> np.ndarray:
    """`head head`: undivided sums over queries, of rows smoothed as 0.999·a + 0.001/n.

    Args:
        rows: `head query key`, float32.
    """
    n_heads, n_queries, _ = rows.shape
    distances = np.zeros((n_heads, n_heads), dtype=np.float32)
    for head in range(n_heads):
        one = 0.001 / n_queries + rows[head][None] * 0.999
        smoothed = 0.001 / n_queries + rows * 0.999
        mixed = (one + smoothed) / 2
        js = -one * np.log(mixed / one)
        js += -smoothed * np.log(mixed / smoothed)
        js /= 2
        distances[head] += js.sum(-1).sum(-1)
    return distances
