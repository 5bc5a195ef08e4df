"""How differently heads attend: the divergence of every pair of heads of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from headscope.batch import Axes
from headscope.measuring.contract import SELF_BLOCKS, LayersMetric, State, Variable
from headscope.measuring.js_kernel import js_sums
from headscope.measuring.reading import Reading

DIMS = ("layer_a", "head_a", "layer_b", "head_b")


@dataclass(frozen=True)
class JensenShannon(LayersMetric):
    """How differently two heads attend, for every pair: 0 the same, ln 2 with nothing in common.

    Mean over all tokens i of JS(a[i,·], b[i,·]) = H((a+b)/2) − (H(a) + H(b))/2 in nats, for
    all heads a, b of the model. Nothing is excluded. Heads that a layer does not have (where
    layers differ in their number) are NaN.

    Clark et al. 2019, section 6 and Figure 6. Theirs is an undivided sum over tokens; their
    code smooths rows as 0.999·a + 0.001/n, ours does not. Computed in float32, summed in
    float64; no interval, because the state would be the square of the heads for each part.
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

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Pairs of heads; how many heads each layer has; tokens."""
        return {"sum": DIMS, "heads": ("layer_a",), "count": ()}[array]

    def variables(self) -> tuple[Variable, ...]:
        """The divergence, and of how many tokens."""
        return self.variable(self.name, DIMS), self.count_variable(())

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """The state of no token. The number of layers is not known yet."""
        return {"sum": np.zeros((0, 0, 0, 0)), "heads": np.zeros(0), "count": np.zeros(())}

    def measure(self, layers: Sequence[Reading]) -> State:
        """Sums over the tokens of a batch, document by document, without their padding."""
        ordered = sorted(layers, key=lambda reading: reading.layer)
        mask = ordered[0].queries.mask
        heads = [reading.n_heads for reading in ordered]
        sums = np.zeros((sum(heads), sum(heads)))
        for document, real in enumerate(mask):
            at = np.flatnonzero(real)
            if not len(at):
                continue
            here = slice(int(at[0]), int(at[-1]) + 1)
            rows = [r.weights[document, :, here, here].float().cpu().numpy() for r in ordered]
            sums += js_sums(np.concatenate(rows), is_causal=ordered[0].is_causal)
        return {
            "sum": _by_layer(sums, heads),
            "heads": np.array(heads, dtype=np.float64),
            "count": np.array(float(mask.sum())),
        }

    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Sums; a state of no layers adds nothing."""
        known = [state for state in states if state["heads"].size] or [states[0]]
        return {
            "sum": np.asarray(reduce(np.add, [state["sum"] for state in known])),
            "heads": known[0]["heads"],
            "count": np.asarray(reduce(np.add, [state["count"] for state in states])),
        }

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Means over tokens."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = state["sum"] / state["count"]
        missing = np.arange(mean.shape[1])[None, :] >= state["heads"][:, None]
        mean[missing] = np.nan
        mean[:, :, missing] = np.nan
        return {self.name: mean, f"{self.name}_count": np.asarray(state["count"])}


def _by_layer(sums: np.ndarray, heads: Sequence[int]) -> np.ndarray:
    """`layer head layer head`, filled up with 0 where a layer has fewer heads."""
    n, most = len(heads), max(heads)
    if min(heads) == most:
        return sums.reshape(n, most, n, most)
    full = np.zeros((n, most, n, most))
    ends = np.cumsum([0, *heads])
    for a in range(n):
        for b in range(n):
            part = sums[ends[a] : ends[a + 1], ends[b] : ends[b + 1]]
            full[a, : heads[a], b, : heads[b]] = part
    return full
