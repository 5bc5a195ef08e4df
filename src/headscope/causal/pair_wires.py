"""Wires of one pair of texts: estimates of all, exact effects of some, circuits alone.

The effect of a wire u → r is m(x_r + u′ − u in r alone) − m, where u′ is the source in the contrast
text. Everything above the reader is run again. Below 0, the wire increases the logit difference.
The norm belongs to the reader and is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.causal.batched_forward import ForwardPass
from headscope.causal.patch import read_aligned
from headscope.causal.readout import LogitDifference, check_finite, make_contrast
from headscope.causal.stream_runner import (
    MAX_ROW_TOKENS,
    NodeKind,
    StreamGraph,
    StreamNode,
    StreamRunner,
    stream_graph,
)
from headscope.errors import InputError
from headscope.model.model import Model
from headscope.text.pairs import Pairs
from headscope.text.tokens import Tokens

IG_STEPS = 5
"""Steps of EAP-IG: α = 0, .2, .4, .6, .8, as in the published code (Hanna et al. 2024)."""
MAX_CHANGED = 0.5
"""Maximum share of positions whose tokens may differ."""
Replace = Literal["contrast", "zero", "mean"]


@dataclass(frozen=True)
class WireRun:
    """One exact run of a source and a reader, by their positions in the graph.

    `head` is the only head of a group to change, `place` the only position at which the source is
    replaced; −1 for all.
    """

    source: int
    reader: int
    head: int = -1
    place: int = -1


class PairWires:
    """Two texts, with the sources of both. The prediction of the first is read."""

    def __init__(
        self,
        graph: StreamGraph,
        first: StreamRunner,
        second: StreamRunner,
        answer: LogitDifference,
        replace: Replace = "contrast",
        mean: Tensor | None = None,
    ) -> None:
        self.graph, self.first, self.second, self.answer = graph, first, second, answer
        self.value = float(self.numbers(first.logits)[0])
        self.other_value = float(self.numbers(second.logits)[0])
        if replace == "contrast":
            self.deltas = second.sources - first.sources
        else:
            self.deltas = -first.sources if mean is None else mean[:, None] - first.sources
            if first.model.wiring.main_block() in first.model.wiring.causal_blocks:
                self.deltas[:, 0] = 0  # an attention sink
        self.replace = replace

    @property
    def gap(self) -> float:
        """m(first text) − m(second text)."""
        return self.value - self.other_value

    def numbers(self, logits: Tensor) -> np.ndarray:
        """Return m of each row of logits."""
        values = self.answer.read(ModelOutput(), logits).double().cpu().numpy()
        check_finite(self.first.model, self.answer, values)
        return np.asarray(values)

    # Estimates of all wires.

    def integrated(self, steps: int = IG_STEPS) -> np.ndarray:
        """Return `source reader`: EAP-IG, Σ_t (u′ − u) · mean of ∂m/∂x_r over the path.

        The gradient is averaged over inputs x₀′ + α (x₀ − x₀′). With `steps=0` it is the gradient
        of the text itself: EAP (Syed et al. 2023; Hanna et al. 2024).
        """
        own = self.first.sources[0]
        alphas = torch.arange(steps) / steps if steps else torch.ones(1)
        starts = own + (1 - alphas[:, None, None].to(own)) * self.deltas[0]
        gradients, _ = self.first.gradients(starts, self.answer, by_reader=True)
        return np.asarray(self._products(gradients) * self.graph.exists)

    def _products(self, gradients: Tensor) -> np.ndarray:
        products = self.deltas.flatten(1) @ gradients.flatten(1).T
        return np.asarray(products.double().cpu().numpy())

    def screen(self) -> np.ndarray:
        """Return `source reader member`: the screen, split by the heads of a group.

        Softmaxes saturate, and there a gradient is 0. For queries, keys and values each head is run
        on its changed stream: Σ_t (z′ − z)·∂m/∂z. MLPs and logits are first order. Members of a
        reader sum to its value.
        """
        graph, first = self.graph, self.first
        gradients, by_head = first.gradients(first.sources[:1], self.answer, by_reader=False)
        n_members = max(len(reader.heads) for reader in graph.readers)
        result = np.zeros((*graph.exists.shape, n_members))
        result[..., 0] = self._products(gradients) * graph.exists
        size = max(1, MAX_ROW_TOKENS // first.n_tokens)
        with torch.no_grad(), first.watching():
            for layer, state in first.states.items():
                n, slope = graph.below(layer), by_head[layer]
                for start in range(0, n, size):
                    rows = slice(start, min(start + size, n))
                    changed = self._head_outputs(layer, state.entering + self.deltas[rows])
                    for kind, outputs in changed.items():
                        moved = ((outputs - state.outputs) * slope).sum((-1, -2))
                        readers = graph.readers_of(layer, kind)
                        values = moved.double().cpu().numpy().reshape(len(moved), len(readers), -1)
                        readers_slice = slice(readers[0], readers[-1] + 1)
                        result[rows, readers_slice, : values.shape[-1]] = values
        return result

    def _head_outputs(self, layer: int, streams: Tensor) -> dict[NodeKind, Tensor]:
        """Return head outputs with queries, keys or values alone read from other streams."""
        first, state = self.first, self.first.states[layer]
        query, key, value = first.vectors(layer, streams)
        own = state.query[None], state.key[None], state.value[None]
        return {
            "q": first.attend(layer, query, own[1], own[2]),
            "k": first.attend(layer, own[0], key, own[2]),
            "v": first.attend(layer, own[0], own[1], value),
        }

    # Exact effects.

    def exact(self, rows: Sequence[WireRun]) -> np.ndarray:
        """Return the effect of each wire: m with it replaced − m."""
        size = max(1, MAX_ROW_TOKENS // self.first.n_tokens)
        order = sorted(range(len(rows)), key=lambda i: self.graph.readers[rows[i].reader].layer)
        values = np.full(len(rows), np.nan)
        with torch.no_grad():
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                values[chosen] = self._exact([rows[i] for i in chosen])
        return values

    def _exact(self, rows: Sequence[WireRun]) -> np.ndarray:
        entries: dict[int, list[Tensor]] = {}
        order: list[int] = []
        by_layer: dict[tuple[int, bool], list[int]] = {}
        for i, row in enumerate(rows):
            reader = self.graph.readers[row.reader]
            by_layer.setdefault((reader.layer, not reader.heads), []).append(i)
        last = max(self.graph.layers)
        for (layer, _), some in by_layer.items():
            readers = [self.graph.readers[rows[i].reader] for i in some]
            moved = torch.stack([self._moved(rows[i]) for i in some])
            leaving = self.leaving(layer, readers, moved, [rows[i].head for i in some])
            entries.setdefault(min(layer, last), []).append(leaving)
            order += some
        values = np.full(len(rows), np.nan)
        tail = self.first.tail({layer: torch.cat(parts) for layer, parts in entries.items()})
        values[order] = self.numbers(tail) - self.value
        return values

    def _moved(self, row: WireRun) -> Tensor:
        delta = self.deltas[row.source]
        if row.place < 0:
            return delta
        kept = torch.zeros_like(delta)
        kept[row.place] = delta[row.place]
        return kept

    def leaving(
        self, layer: int, readers: Sequence[StreamNode], moved: Tensor, heads: Sequence[int]
    ) -> Tensor:
        """Return the output of a layer in which readers, all of heads or all not, read changed
        streams.
        """
        first = self.first
        if readers[0].kind == "logits":
            return first.states[max(self.graph.layers)].leaving + moved
        state = first.states[layer]
        change = self.response(layer, readers, moved, heads)
        if readers[0].kind == "mlp":
            return state.leaving + change
        with first.model.tapped(returns_weights=False):
            entering = state.entering.expand(len(moved), -1, -1).contiguous()
            return first.call(layer, entering, state.attended + change)

    def response(
        self, layer: int, readers: Sequence[StreamNode], moved: Tensor, heads: Sequence[int]
    ) -> Tensor:
        """Return `row position unit`: the change of what readers (heads, or an MLP) write."""
        first, state = self.first, self.first.states[layer]
        if readers[0].kind == "mlp":
            with first.model.tapped(returns_weights=False):
                return first.mlp(layer, first.middle(layer) + moved) - state.mlp
        changed = self._head_outputs(layer, state.entering + moved)
        kinds = [reader.kind for reader in readers]
        outputs = torch.stack([changed[kind][i] for i, kind in enumerate(kinds)]) - state.outputs
        mask = torch.zeros(outputs.shape[:2], dtype=outputs.dtype, device=outputs.device)
        for i, (reader, head) in enumerate(zip(readers, heads, strict=True)):
            mask[i, list(reader.heads) if head < 0 else head] = 1
        projection = first.model.projections[first.model.wiring.main_block(), layer]
        written = projection.through(outputs * mask[..., None, None]).sum(1)
        return written.to(outputs)

    # Circuits alone.

    def alone(self, kept: np.ndarray) -> float:
        """Return m of a circuit: `kept` (`source reader`) wires carry the first text's run.

        x_r = Σ over kept wires of u(run) + Σ over the others of u′. Nothing kept gives the
        contrast text, everything the first text.
        """
        graph, first, second = self.graph, self.first, self.second
        if self.replace != "contrast":
            raise InputError("A circuit alone needs replace='contrast': the rest is the contrast.")
        keep = torch.as_tensor(kept & graph.exists).to(self.deltas)
        moved = torch.zeros_like(self.deltas)  # u(run) − u′
        moved[0] = -self.deltas[0]
        block = first.model.wiring.main_block()

        def streams(readers: Sequence[int], base: Tensor) -> Tensor:
            added = keep[:, list(readers)].T @ moved.flatten(1)
            return base + added.reshape(-1, *base.shape)

        with torch.no_grad():
            for layer, state in second.states.items():
                by_kind = {kind: graph.readers_of(layer, kind) for kind in ("q", "k", "v")}
                all_readers = [i for some in by_kind.values() for i in some]
                vectors = second.vectors(layer, streams(all_readers, state.entering))
                start, own = 0, []
                for some, tensor in zip(by_kind.values(), vectors, strict=True):
                    indices = torch.arange(len(some), device=tensor.device)
                    own.append(tensor[start + indices, indices][None])
                    start += len(some)
                outputs = second.attend(layer, own[0], own[1], own[2])[0]
                n = graph.below(layer)
                written = first.model.projections[block, layer].through(outputs).to(outputs)
                moved[n : n + len(written)] = written - second.sources[n : n + len(written)]
                with first.model.tapped(returns_weights=False):
                    read = streams(graph.readers_of(layer, "mlp"), second.middle(layer))
                    moved[n + len(written)] = second.mlp(layer, read)[0] - state.mlp
            last = second.states[max(graph.layers)].leaving
            return float(self.numbers(second.read(streams([len(graph.readers) - 1], last)))[0])


@dataclass(frozen=True, eq=False)
class EncodedPair:
    """Tokens, inputs and answers of a pair, checked."""

    texts: tuple[str, str]
    tokens: tuple[Tokens, Tokens]
    inputs: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]
    target: str | int | None
    foil: str | int | None
    position: int

    @cached_property
    def changed(self) -> tuple[int, ...]:
        """Positions whose tokens differ."""
        first, second = (tokens.ids for tokens in self.tokens)
        return tuple(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)

    def runners(self, graph: StreamGraph) -> tuple[StreamRunner, StreamRunner]:
        """Run both texts."""
        first, second = (
            StreamRunner(graph, ForwardPass(graph.model, dict(inputs), self.position))
            for inputs in self.inputs
        )
        return first, second

    def run(
        self, graph: StreamGraph, replace: Replace = "contrast", mean: Tensor | None = None
    ) -> PairWires:
        """Run both texts; `mean` is `mean_sources`, for `replace="mean"`."""
        model = graph.model
        first, second = self.runners(graph)
        logits = first.logits[0], second.logits[0]
        answers = self.target, self.foil
        answer = make_contrast(model, self.texts, answers, logits, self.position)
        return PairWires(graph, first, second, answer, replace, mean)


def mean_sources(graph: StreamGraph, pairs: Sequence[EncodedPair]) -> Tensor:
    """Return `source unit`: the mean of each source over all positions but the first, in both texts
    of all pairs.
    """
    means = [runner.sources[:, 1:].mean(1) for pair in pairs for runner in pair.runners(graph)]
    lengths = torch.tensor([len(t) - 1 for pair in pairs for t in pair.tokens]).to(means[0])
    return (torch.stack(means) * (lengths / lengths.sum())[:, None, None]).sum(0)


def encode_pair(
    model: Model,
    texts: tuple[str, str],
    target: str | int | None,
    foil: str | int | None,
    position: int = -1,
) -> EncodedPair:
    """Encode a pair; raise InputError if its texts do not align."""
    tokens, inputs, index = read_aligned(model, texts, position)
    assert index is not None
    pair = EncodedPair(texts, (tokens[0], tokens[1]), (inputs[0], inputs[1]), target, foil, index)
    n = len(pair.changed)
    if not n:
        raise InputError(f"The two texts of a pair are equal: {texts[0]!r}. There is no contrast.")
    if n > MAX_CHANGED * len(tokens[0]):
        shown = ", ".join(
            f"{i} ({tokens[0].tokens[i]!r} / {tokens[1].tokens[i]!r})" for i in pair.changed[:6]
        )
        raise InputError(
            f"{texts[0]!r} and {texts[1]!r} differ at {n} of {len(tokens[0])} positions: {shown}. "
            "Equal length is not alignment: give texts that differ in at most half of their tokens."
        )
    return pair


def encode_pairs(
    model: Model, pairs: Pairs, position: int
) -> tuple[list[EncodedPair], StreamGraph]:
    """Encode pairs; also return sources and readers, proved on the first text."""
    rows = zip(pairs.texts, pairs.targets, pairs.foils, strict=True)
    encoded = [encode_pair(model, *row, position) for row in rows]
    return encoded, graph_of(model, encoded[0])


def graph_of(model: Model, pair: EncodedPair) -> StreamGraph:
    """Return the model's sources and readers, proved on the first text of a pair."""
    return stream_graph(model, pair.inputs[0])
