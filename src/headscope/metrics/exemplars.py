"""Documents with a head's highest weights, and the samples that HeadVis shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from headscope.arguments import whole_number
from headscope.batch import Axes
from headscope.lazy import torch
from headscope.metrics.core.contract import SELF_BLOCKS, MergedMetric, State, Variable
from headscope.metrics.core.layer_data import LayerData, Reduction, Small, join_by
from headscope.metrics.core.regions import (
    diagonal_sums,
    distances,
    first_tokens,
    peaks,
    real_pairs,
    square,
    whole_log_sums,
)
from headscope.statistics.jackknife import ratio

ARRAYS = ("weight", "document", "query", "key")


@dataclass(frozen=True)
class Exemplars(MergedMetric):
    """Documents with a head's highest attention to a single token.

    For each head the `k` documents with the highest a[i,j] of the region (null attention left out),
    with query i and key j; one arc per document. Ties go to the first document, query, then key.

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
    reductions = (peaks,)
    document_arrays = ("document",)

    k: int = 10

    def __post_init__(self) -> None:
        whole_number("k", self.k)

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return heads and ranks."""
        return ("head", "rank")

    def variables(self) -> tuple[Variable, ...]:
        """Return the weights and their positions, which are shown as sentences."""
        dims = ("layer", "head", "rank")
        return tuple(self.variable(f"exemplar_{name}", dims, title="") for name in ARRAYS)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Return ranks from 0."""
        return {"rank": range(self.k)}

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Return a state without documents."""
        return {
            name: np.full((n_heads, self.k), -np.inf if name == "weight" else -1.0)
            for name in ARRAYS
        }

    def measure(self, layer_data: LayerData) -> State:
        """Return the highest weights of this batch."""
        batch = layer_data.batch
        weights, queries, keys = (tensor.cpu().numpy() for tensor in peaks(layer_data))
        k = min(self.k, len(batch))
        # Sorted by number, so that ties go to the first document.
        first = batch.once("by number", lambda: np.argsort(batch.numbers, kind="stable"))
        ranked = first[np.argsort(-weights[first], axis=0, kind="stable")[:k]].T
        heads = np.arange(layer_data.n_heads)[:, None]
        weight, query, key = (array[ranked, heads] for array in (weights, queries, keys))
        state = self.zero(layer_data.n_heads, batch.axes, is_causal=layer_data.is_causal)
        is_positive = ~(weight <= 0)  # keeps NaN, so that it is noticed
        for name, values in zip(ARRAYS, (weight, batch.numbers[ranked], query, key), strict=True):
            np.copyto(state[name][:, :k], values, where=is_positive)
        return state

    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Keep the highest weights of all states."""
        if len(states) == 1:
            return states[0]
        merged = {
            name: np.concatenate([state[name] for state in states], axis=-1) for name in ARRAYS
        }
        by = (merged["key"], merged["query"], merged["document"], -merged["weight"])
        order = np.lexsort(by, axis=-1)[..., : self.k]
        return {name: np.take_along_axis(merged[name], order, axis=-1) for name in ARRAYS}

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return the weights, NaN if there are fewer documents than ranks."""
        is_empty = state["document"] < 0
        return {
            f"exemplar_{name}": np.where(is_empty, np.nan if name == "weight" else -1, values)
            for name, values in state.items()
        }


INTERVALS = 5
"""Number of equal intervals of 0 to 1, by a head's highest weight in a document."""
BINS = 50
KEPT_KEYS = 8
MIN_KEPT = 0.005
MIN_INDUCTION = 0.01
SCORES = {
    "self_attention_score": "Mean attention of a token to itself.",
    "prev_token_score": "Mean attention to the token before, of all tokens but the first.",
    "pattern_entropy": "Mean entropy of a row of attention, in nats.",
    "qk_distance": "Mean distance of query and key, weighted by attention.",
    "qk_distance_variance": "Variance of the distance of query and key.",
    "induction_score": "Mean attention of repeated tokens to what came after them before.",
}
COLUMNS = (
    *("self", "previous", "entropy", "distance", "distance_squared", "induction"),
    *("rows", "rows_with_previous", "rows_with_repeat", "highest", "documents"),
)
"""Columns of `sums`: totals of each head over all documents."""
OF_SAMPLES = ("document", "order", "highest", "length")
OF_ENTRIES = ("keys", "weights")


@dataclass(frozen=True)
class HeadSamples(MergedMetric):
    """Six scores of a head by HeadVis's definitions, with sample documents.

    All rows and keys count, including the first token, an attention sink in most models.
    headscope's own metrics have intervals; these do not. For each fifth of the scale (by the head's
    highest weight, first row and column left out), the `samples` documents with the smallest hashes
    are kept, independent of shards. Of each, the first `tokens` tokens are kept with the eight
    highest weights of each row above .005. `result.export("headvis", …)` writes them out.

    Luger, Kamath et al. 2026, "Visualizing Attention Heads" (HeadVis).
    """

    name = "head_samples"
    title = "HeadVis's scores"
    paper = "Luger et al. 2026, Visualizing Attention Heads"
    units = "attention"
    format = ".3f"
    order = 420
    blocks = SELF_BLOCKS
    is_default = False
    document_arrays = ("document",)

    samples: int = 2
    tokens: int = 64

    def __post_init__(self) -> None:
        whole_number("samples", self.samples)
        whole_number("tokens", self.tokens)

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Return the axes: heads; samples also have intervals, and their weights rows and ranks."""
        if array in ("sums", "histogram"):
            return ("head", {"sums": "column", "histogram": "bin"}[array])
        sample_dims = ("head", "interval", "sample")
        return sample_dims if array in OF_SAMPLES else (*sample_dims, "row", "rank_in_row")

    def variables(self) -> tuple[Variable, ...]:
        """Return the scores and the kept documents."""
        dims = ("layer", "head")
        scores = [self.variable(name, dims, title="", meaning=SCORES[name]) for name in SCORES]
        kept = self.variable("sample_document", (*dims, "interval", "sample"), title="")
        return (*scores, kept)

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[int]]:
        """Return intervals from 1 and samples from 0."""
        return {"interval": range(1, INTERVALS + 1), "sample": range(self.samples)}

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Return a state without documents."""
        sample_shape = n_heads, INTERVALS, self.samples
        entry_shape = *sample_shape, self.tokens, KEPT_KEYS
        return {
            "sums": np.zeros((n_heads, len(COLUMNS))),
            "histogram": np.zeros((n_heads, BINS)),
            **{name: np.full(sample_shape, -1.0) for name in OF_SAMPLES},
            "order": np.full(sample_shape, np.inf),
            "keys": np.full(entry_shape, -1, dtype=np.float32),
            "weights": np.zeros(entry_shape, dtype=np.float32),
        }

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Weights among the first tokens, and the parts of the scores."""
        return _shown(self.tokens), whole_log_sums, diagonal_sums, spread_sums, followed_sums

    def measure(self, layer_data: LayerData) -> State:
        """Return the documents of a batch, smallest hashes first."""
        batch, sequences = layer_data.batch, layer_data.queries
        state = self.zero(layer_data.n_heads, batch.axes, is_causal=layer_data.is_causal)
        heads = np.arange(layer_data.n_heads)
        squares = _shown(self.tokens)(layer_data)[0].double().cpu().numpy()
        sums = _score_sums(layer_data)
        lengths = first_tokens(layer_data, self.tokens, special=True)[1]
        for at in np.lexsort((batch.numbers, batch.sample_hashes)):
            n = lengths[at]
            has_gap = sequences.left_out is not None and (sequences.left_out[at] >= 0).any()
            if n < 2 or has_gap:  # only the first row and column, or words left out
                continue
            shown = squares[at, :, :n, :n]
            highest = shown[:, 1:, 1:].max((1, 2))
            state["sums"] += np.column_stack((sums[at], highest, np.ones(len(highest))))
            state["histogram"][heads, np.minimum((highest * BINS).astype(int), BINS - 1)] += 1
            fifth = np.minimum((highest * INTERVALS).astype(int), INTERVALS - 1)
            free = state["document"][heads, fifth] < 0
            taking = heads[free.any(1)]
            place = taking, fifth[taking], free[taking].argmax(1)
            state["document"][place] = batch.numbers[at]
            state["order"][place] = batch.sample_hashes[at]
            state["highest"][place] = highest[taking]
            state["length"][place] = n
            # The highest keys and weights of each row, else -1 and 0.
            keys = np.argsort(-shown[taking], axis=-1, kind="stable")[..., :KEPT_KEYS]
            kept = np.take_along_axis(shown[taking], keys, axis=-1)
            rows, ranks = kept.shape[1:]
            for name, values, empty in (("keys", keys, -1), ("weights", kept, 0)):
                entries = state[name][place]
                entries[:, :rows, :ranks] = np.where(kept >= MIN_KEPT, values, empty)
                state[name][place] = entries
        return state

    def merge(self, states: Sequence[State], *, in_place: bool = False) -> State:
        """Add the sums; keep the documents with the smallest hashes of each interval."""
        if len(states) == 1:
            return states[0]
        axes = {**dict.fromkeys(OF_SAMPLES, -1), **dict.fromkeys(OF_ENTRIES, -3)}
        merged = {n: np.concatenate([s[n] for s in states], axis=axis) for n, axis in axes.items()}
        order = np.lexsort((merged["document"], merged["order"]), axis=-1)[..., : self.samples]
        for name, axis in axes.items():
            chosen = order if axis == -1 else order[..., None, None]
            merged[name] = np.take_along_axis(merged[name], chosen, axis=axis)
        for name in ("sums", "histogram"):
            merged[name] = sum((s[name] for s in states[1:]), states[0][name])
        return merged

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return means over rows; NaN without rows."""
        sums = {name: state["sums"][..., at] for at, name in enumerate(COLUMNS)}

        rows = sums["rows"]
        distance = ratio(sums["distance"], rows)
        return {
            "self_attention_score": ratio(sums["self"], rows),
            "prev_token_score": ratio(sums["previous"], sums["rows_with_previous"]),
            "pattern_entropy": ratio(sums["entropy"], rows),
            "qk_distance": distance,
            "qk_distance_variance": ratio(sums["distance_squared"], rows) - distance**2,
            "induction_score": ratio(sums["induction"], sums["rows_with_repeat"]),
            "sample_document": state["document"],
        }


@cache
def _shown(first: int) -> Reduction:
    """`document head query key`: weights among the first tokens, at most all of them."""

    def read(layer_data: LayerData) -> Small:
        n = min(first, layer_data.n_queries)
        return (square(layer_data, first, special=True)[..., :n, :n],)

    return Reduction(read, join_by("sum"))


def _spread_sums(layer_data: LayerData) -> Small:
    """`document head 2`, float64: attention times distance, and times its square."""
    far = distances(layer_data) * real_pairs(layer_data)
    forms = torch.stack((far, far.square()), -1).flatten(1, 2)
    return (torch.bmm(layer_data.weights.flatten(2).double(), forms.double()),)


def _followed_sums(layer_data: LayerData) -> Small:
    """`document head`, float64: attention to keys after an earlier equal token, small ones left
    out.
    """
    weights, tokens, rows = layer_data.weights, layer_data.queries, layer_data.rows
    if tokens.ids is None:
        return (weights.new_zeros(weights.shape[:2], dtype=torch.float64),)
    ids, asking, mask = map(torch.from_numpy, (tokens.ids, tokens.asking, tokens.mask))
    same = ids[:, rows, None] == ids[:, None, : layer_data.n_keys]
    same &= asking[:, rows, None] & mask[:, None, : layer_data.n_keys]
    after = torch.nn.functional.pad(same.tril(rows.start - 1), (1, 0))[..., :-1]
    counts = (weights >= MIN_INDUCTION) & after[:, None].to(weights.device)
    return ((weights * counts).sum((2, 3)).double(),)


spread_sums = Reduction(_spread_sums, join_by("sum"))
followed_sums = Reduction(_followed_sums, join_by("sum"))


def _score_sums(layer_data: LayerData) -> np.ndarray:
    """`document head column`: return the first of COLUMNS by document."""
    (previous, itself, _), (products,) = (
        diagonal_sums(layer_data)[0].unbind(-1),
        whole_log_sums(layer_data),
    )
    distance, squared = spread_sums(layer_data)[0].unbind(-1)
    tokens = layer_data.queries
    counts = np.zeros((len(layer_data.batch), 3))
    for row, (mask, asking) in enumerate(zip(tokens.mask, tokens.asking, strict=True)):
        real = np.flatnonzero(mask)
        ids = real if tokens.ids is None else tokens.ids[row, real]
        is_new = np.isin(np.arange(len(real)), np.unique(ids, return_index=True)[1])
        counts[row] = [(asking[real] & some).sum() for some in (True, real > real[:1], ~is_new)]
    columns = itself, previous, -products.sum(-1), distance, squared, *followed_sums(layer_data)
    values = torch.stack(columns, -1).cpu().numpy()
    spread = np.broadcast_to(counts[:, None], (*values.shape[:2], 3))
    return np.concatenate((values, spread), axis=-1)
