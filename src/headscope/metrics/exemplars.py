"""The documents that excite a head most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headscope.arguments import whole_number
from headscope.attention import Attention
from headscope.batch import Axes
from headscope.measuring.contract import Metric, State, batch_of
from headscope.measuring.digests import Digest
from headscope.measuring.region_sums import peaks

__all__ = ["Exemplars"]

ARRAYS = ("weight", "document", "query", "key")


@dataclass(frozen=True)
class Exemplars(Metric):
    """The documents in which a head pays its highest attention to a single token.

    Per head the `k` documents with the highest a[i,j] of the region (null attention left
    out), with the query i and key j. One arc per document. Of equal weights the document
    that comes first in the corpus wins, and in it the first query, then the first key.

    Vig & Belinkov 2019, section 5.4, Tables 1 to 3.
    """

    name: ClassVar[str] = "exemplars"
    paper: ClassVar[str] = "Vig & Belinkov 2019, section 5.4, Tables 1-3"
    units: ClassVar[str] = "attention"
    nothing = -1.0

    k: int = 10

    def __post_init__(self) -> None:
        whole_number("k", self.k)

    def digests(self) -> tuple[Digest, ...]:
        """The highest weight of each document."""
        return (peaks,)

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Heads and ranks."""
        return ("head", "rank")

    def variables(self) -> tuple[str, ...]:
        """The weights and where they are."""
        return tuple(f"exemplar_{name}" for name in ARRAYS)

    def variable_dims(self, variable: str) -> tuple[str, ...]:
        """Layers, heads and ranks."""
        return ("layer", "head", "rank")

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Ranks from 0 on."""
        return {"rank": range(self.k)}

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """No document."""
        return {
            name: np.full((n_heads, self.k), -np.inf if name == "weight" else -1.0)
            for name in ARRAYS
        }

    def measure(self, attention: Attention) -> State:
        """The highest of this batch."""
        batch = batch_of(attention)
        weights, queries, keys = (found.cpu().numpy() for found in peaks(attention))
        k = min(self.k, len(batch))
        # In the order of the corpus, so that a stable sort lets the first of equals win.
        first = batch.once("by number", lambda: np.argsort(batch.numbers, kind="stable"))
        ranked = first[np.argsort(-weights[first], axis=0, kind="stable")[:k]].T
        heads = np.arange(attention.n_heads)[:, None]
        weight, query, key = (found[ranked, heads] for found in (weights, queries, keys))
        state = self.zero(attention.n_heads, batch.axes, is_causal=attention.is_causal)
        is_there = ~(weight <= 0)  # what is not a number shall be seen
        for name, found in zip(ARRAYS, (weight, batch.numbers[ranked], query, key), strict=True):
            np.copyto(state[name][:, :k], found, where=is_there)
        return state

    def merge(self, left: State, right: State) -> State:
        """The highest of both."""
        both = {name: np.concatenate((left[name], right[name]), axis=-1) for name in ARRAYS}
        order = np.lexsort(
            (both["key"], both["query"], both["document"], -both["weight"]), axis=-1
        )[..., : self.k]
        return {name: np.take_along_axis(both[name], order, axis=-1) for name in ARRAYS}

    def renumbered(self, state: State, offset: int) -> State:
        """Documents in another corpus, which has others before them."""
        numbers = state["document"]
        return {**state, "document": np.where(numbers < 0, numbers, numbers + offset)}

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The weights, NaN where there are fewer documents than ranks."""
        is_empty = state["document"] < 0
        return {
            f"exemplar_{name}": np.where(is_empty, np.nan if name == "weight" else -1, values)
            for name, values in state.items()
        }
