"""The documents that excite a head most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headscope.arguments import whole_number
from headscope.batch import Axes
from headscope.measuring.contract import MergedMetric, State, Variable
from headscope.measuring.reading import Reading
from headscope.measuring.region_sums import peaks

ARRAYS = ("weight", "document", "query", "key")


@dataclass(frozen=True)
class Exemplars(MergedMetric):
    """The documents in which a head pays its highest attention to a single token.

    Per head the `k` documents with the highest a[i,j] of the region (null attention left
    out), with the query i and key j. One arc per document. Of equal weights the document
    that comes first in the corpus wins, and in it the first query, then the first key.

    Vig & Belinkov 2019, section 5.4, Tables 1 to 3.
    """

    name = "exemplars"
    title = "Highest single weights"
    short_title = "Exemplars"
    equation = r"\max_{i,j} a_{ij}"
    paper = "Vig & Belinkov 2019, section 5.4, Tables 1-3"
    units = "attention"
    format = ".3f"
    order = 400
    digests = (peaks,)
    document_arrays = ("document",)

    k: int = 10

    def __post_init__(self) -> None:
        whole_number("k", self.k)

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Heads and ranks."""
        return ("head", "rank")

    def variables(self) -> tuple[Variable, ...]:
        """The weights and where they are: shown as sentences, not by themselves."""
        dims = ("layer", "head", "rank")
        return tuple(self.variable(f"exemplar_{name}", dims, title="") for name in ARRAYS)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Ranks from 0 on."""
        return {"rank": range(self.k)}

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """No document."""
        return {
            name: np.full((n_heads, self.k), -np.inf if name == "weight" else -1.0)
            for name in ARRAYS
        }

    def measure(self, reading: Reading) -> State:
        """The highest of this batch."""
        batch = reading.batch
        weights, queries, keys = (tensor.cpu().numpy() for tensor in peaks(reading))
        k = min(self.k, len(batch))
        # In the order of the corpus, so that a stable sort lets the first of equals win.
        first = batch.once("by number", lambda: np.argsort(batch.numbers, kind="stable"))
        ranked = first[np.argsort(-weights[first], axis=0, kind="stable")[:k]].T
        heads = np.arange(reading.n_heads)[:, None]
        weight, query, key = (array[ranked, heads] for array in (weights, queries, keys))
        state = self.zero(reading.n_heads, batch.axes, is_causal=reading.is_causal)
        is_there = ~(weight <= 0)  # keeps NaN, so that it is noticed
        for name, values in zip(ARRAYS, (weight, batch.numbers[ranked], query, key), strict=True):
            np.copyto(state[name][:, :k], values, where=is_there)
        return state

    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """The highest of all."""
        if len(states) == 1:
            return states[0]
        together = {
            name: np.concatenate([state[name] for state in states], axis=-1) for name in ARRAYS
        }
        by = (together["key"], together["query"], together["document"], -together["weight"])
        order = np.lexsort(by, axis=-1)[..., : self.k]
        return {name: np.take_along_axis(together[name], order, axis=-1) for name in ARRAYS}

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The weights, NaN where there are fewer documents than ranks."""
        is_empty = state["document"] < 0
        return {
            f"exemplar_{name}": np.where(is_empty, np.nan if name == "weight" else -1, values)
            for name, values in state.items()
        }
