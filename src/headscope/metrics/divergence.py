"""Jensen-Shannon divergence of every pair of heads.

With rows p and q, JS = H((p+q)/2) − (H(p)+H(q))/2. Two implementations agree to float32: compiled
by numba, with a polynomial for the logarithm, and blocked NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from headscope.batch import Axes
from headscope.metrics.core.contract import SELF_BLOCKS, LayersMetric, State, Variable
from headscope.metrics.core.layer_data import LayerData, has_numba

BLOCK = 1 << 17
"""Number of weights processed at once, so that they stay in the cache."""
TINY = np.finfo(np.float32).tiny
"""Substitute for 0, whose logarithm is not finite; it adds nothing."""


@functools.cache
def compiled() -> Callable[..., np.ndarray] | None:
    """Return the compiled form of `js_sums`, or None without numba, whose import takes a second."""
    if not has_numba():
        return None
    from headscope.metrics.core.compiled import js_sums_compiled

    return js_sums_compiled


def js_sums(rows: np.ndarray, *, is_causal: bool, first: int = 0) -> np.ndarray:
    """`head head`, float64: return the sum over queries of JS in nats, 0 on the diagonal. `rows`
    (`head query key`) is the attention of one document without padding, not normalized, from query
    `first` on.
    """
    return (compiled() or js_sums_blocked)(rows, is_causal=is_causal, first=first)


def js_sums_blocked(rows: np.ndarray, *, is_causal: bool, first: int = 0) -> np.ndarray:
    """Compute `js_sums` in NumPy: a few queries at a time, one head against all later ones."""
    weights = np.maximum(np.asarray(rows, dtype=np.float32), TINY)
    n_heads, n_queries, n_keys = weights.shape
    sums = np.zeros((n_heads, n_heads))
    step = max(1, BLOCK // max(1, n_heads * n_keys))
    for start in range(0, n_queries, step):
        stop = min(start + step, n_queries)
        chunk = weights[:, start:stop, : first + stop if is_causal else n_keys].reshape(n_heads, -1)
        twice = 2 * chunk
        self_products = np.einsum("hk,hk->h", twice, np.log(twice)) / 4
        mixture, logs = np.empty_like(chunk), np.empty_like(chunk)
        for head in range(n_heads - 1):
            n = n_heads - head - 1
            mixed = np.add(chunk[head + 1 :], chunk[head], out=mixture[:n])
            products = np.einsum("hk,hk->h", mixed, np.log(mixed, out=logs[:n]))
            sums[head, head + 1 :] += self_products[head] + self_products[head + 1 :] - products / 2
    sums = np.maximum(sums, 0)
    return np.asarray(sums + sums.T)


DIMS = ("layer_a", "head_a", "layer_b", "head_b")


@dataclass(frozen=True)
class JensenShannon(LayersMetric):
    """Divergence of the attention of two heads, for every pair: 0 equal, ln 2 disjoint.

    Mean over all tokens i of JS(a[i,·], b[i,·]) = H((a+b)/2) − (H(a) + H(b))/2 in nats, for all
    heads a, b of the model. Nothing is excluded. Heads that a layer does not have (where layers
    differ in their number) are NaN.

    Clark et al. 2019, section 6 and Figure 6. Theirs is an undivided sum over tokens; their code
    smooths rows as 0.999·a + 0.001/n, ours does not. Computed in float32, summed in float64; no
    interval, because the state would be the square of the heads for each bucket.
    """

    name = "js"
    title = "Divergence of pairs of heads"
    short_title = "Divergence"
    equation = r"H\left(\frac{a + b}{2}\right) - \frac{H(a) + H(b)}{2}"
    paper = "Clark et al. 2019, section 6, Figure 6"
    units = "nats"
    format = ".3f"
    order = 300
    blocks = SELF_BLOCKS
    is_default = False
    takes_rows = True

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return the axes: pairs of heads, heads per layer, or none."""
        return {"sum": DIMS, "heads": ("layer_a",), "count": ()}[array]

    def variables(self) -> tuple[Variable, ...]:
        """Return the divergence and its count of tokens."""
        return self.variable(self.name, DIMS), self.count_variable(())

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Return the state of no token, without layers, whose number is unknown."""
        return {"sum": np.zeros((0, 0, 0, 0)), "heads": np.zeros(0), "count": np.zeros(())}

    def measure(self, layers: Sequence[LayerData]) -> State:
        """Sum over the tokens of a batch, document by document, without padding."""
        ordered = sorted(layers, key=lambda layer_data: layer_data.layer)
        rows, tokens = ordered[0].rows, ordered[0].queries
        heads = [layer_data.n_heads for layer_data in ordered]
        sums = np.zeros((sum(heads), sum(heads)))
        for document, asking in enumerate(tokens.asking[:, rows]):
            if not asking.any():
                continue
            here, keys = np.flatnonzero(asking), np.flatnonzero(tokens.mask[document])
            span, n_before = slice(here[0], here[-1] + 1), int(keys[0])
            seen = slice(n_before, int(keys[-1]) + 1)
            weights = [r.weights[document, :, span, seen].float().cpu().numpy() for r in ordered]
            # A query that another window counts is a row of 0, which adds 0.
            counted = np.concatenate(weights) * asking[span][:, None]
            first = rows.start + int(here[0]) - n_before
            sums += js_sums(counted, is_causal=ordered[0].is_causal, first=first)
        n, most = len(heads), max(heads)
        full = np.zeros((n, most, n, most))  # 0 where a layer has fewer heads
        filled = np.flatnonzero(np.arange(most) < np.array(heads)[:, None])
        full.reshape(n * most, -1)[filled[:, None], filled] = sums
        return {
            "sum": full,
            "heads": np.array(heads, dtype=np.float64),
            "count": np.array(float(tokens.asking[:, rows].sum())),
        }

    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Add the sums; a state without layers adds nothing."""
        filled = [state for state in states if state["heads"].size] or [states[0]]
        return {
            "sum": np.asarray(reduce(np.add, [state["sum"] for state in filled])),
            "heads": filled[0]["heads"],
            "count": np.asarray(reduce(np.add, [state["count"] for state in states])),
        }

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return means over tokens."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = state["sum"] / state["count"]
        missing = np.arange(mean.shape[1])[None, :] >= state["heads"][:, None]
        mean[missing] = np.nan
        mean[:, :, missing] = np.nan
        return {self.name: mean, f"{self.name}_count": np.asarray(state["count"])}
