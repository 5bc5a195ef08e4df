"""Residual stream of a text, run reader by reader.

A *source* adds a vector to the stream: the embedding, a head (z W_O^h), an MLP. A *reader* reads
the stream at its own position: the queries of a head, the keys or values of a group, an MLP, the
logits. `StreamRunner` gives a reader another stream than the model's and runs everything above it.
Layers, norms and attention are the model's own modules, called with captured arguments. Wires
between sources and readers are in `wires`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from headscope.attention import Attention
from headscope.causal.batched_forward import (
    ForwardPass,
    layer_modules,
    map_tensors,
    override,
    repeat_rows,
)
from headscope.causal.readout import LogitDifference
from headscope.causal.residual_stream import NOT_ONE_STACK, read_stream, refusal
from headscope.errors import InputError
from headscope.model.edits import Edit, Vectors
from headscope.model.model import Model
from headscope.model.objective import frozen, require_gradients
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.recording import REL_TOL
from headscope.model.tap.sites import Site

MAX_ROW_TOKENS = 8192
NodeKind = Literal["embedding", "head", "q", "k", "v", "mlp", "logits"]


@dataclass(frozen=True, slots=True)
class StreamNode:
    """Source that adds a vector to the stream, or reader of it. Keys and values are read by groups
    of heads.
    """

    kind: NodeKind
    layer: int = -1
    heads: tuple[int, ...] = ()
    """Head that writes, or heads that use what is read; empty for MLPs, embedding and logits."""

    @property
    def head(self) -> int:
        """First head; −1 without."""
        return self.heads[0] if self.heads else -1

    @property
    def name(self) -> str:
        """`embedding`, `L16 H0`, `q of L17 H4`, `k of L17 H3-5`, `L3 MLP`, `logits`."""
        if self.kind in ("embedding", "logits"):
            return self.kind
        if self.kind == "mlp":
            return f"L{self.layer} MLP"
        name = f"L{self.layer} H{self.head}" + f"-{self.heads[-1]}" * (len(self.heads) > 1)
        return name if self.kind == "head" else f"{self.kind} of {name}"


@dataclass(frozen=True, eq=False)
class StreamGraph:
    """Sources, in the order in which they are added, and readers of a model, proved on one text.

    `exists` (`source reader`) is True where the source is added before the reader reads. Modules
    are by layer. In a parallel model, an MLP does not read the heads of its layer.
    """

    model: Model
    sources: tuple[StreamNode, ...]
    readers: tuple[StreamNode, ...]
    exists: np.ndarray
    layers: Mapping[int, nn.Module]
    sites: Mapping[int, Site]
    projections: Mapping[int, nn.Module]
    mlps: Mapping[int, nn.Module]
    is_parallel: bool

    def readers_of(self, layer: int, kind: NodeKind) -> list[int]:
        """Return the positions of a layer's readers of one kind."""
        return [
            i for i, reader in enumerate(self.readers)
            if reader.layer == layer and reader.kind == kind
        ]  # fmt: skip

    def below(self, layer: int) -> int:
        """Return the number of sources that are added below a layer."""
        return sum(source.layer < layer for source in self.sources)


def stream_graph(model: Model, inputs: Mapping[str, Tensor]) -> StreamGraph:
    """Return the sources and readers of a model; prove on a text that its sources sum."""
    objective = model.require_objective("A wire")
    if objective not in ("causal", "masked"):
        raise InputError(
            "Wires are of language models with one stack; "
            f"{model.name} is {NOT_ONE_STACK[objective]}. hs.effects and hs.patch work for it."
        )
    stream = read_stream(model, inputs)
    layers = layer_modules(model)
    block = model.wiring.main_block()
    sites = {site.layer: site for site in model.wiring.of_block(block)}
    for layer, site in sites.items():
        if site.head_size is None or site.value_size is None or not site.can_edit_vectors:
            raise refusal(model, f"the tap does not see queries, keys and values of layer {layer}")
    root = model.module
    projections = {n: root.get_submodule(model.projections[block, n].module) for n in layers}
    mlps = {n: root.get_submodule(name) for n, name in stream.mlps.items()}
    sources, readers = [StreamNode("embedding")], []
    for layer, site in sites.items():
        groups = site.n_groups or site.n_heads
        heads = np.arange(site.n_heads)
        readers += [StreamNode("q", layer, (int(head),)) for head in heads]
        for kind in ("k", "v"):
            shared = [tuple(map(int, some)) for some in heads.reshape(groups, -1)]
            readers += [StreamNode(kind, layer, some) for some in shared]
        sources += [StreamNode("head", layer, (int(head),)) for head in heads]
        readers.append(StreamNode("mlp", layer))
        sources.append(StreamNode("mlp", layer))
    readers.append(StreamNode("logits", max(layers) + 1))
    nothing = np.zeros(0)
    graph = StreamGraph(
        model, tuple(sources), tuple(readers), nothing, layers, sites, projections, mlps, False
    )
    is_parallel = _is_parallel(StreamRunner(graph, ForwardPass(model, inputs, -1)))

    def is_read(u: StreamNode, r: StreamNode) -> bool:
        is_within = r.kind == "mlp" and u.kind == "head" and not is_parallel
        return u.layer < r.layer or (is_within and u.layer == r.layer)

    exists = np.array([[is_read(u, r) for r in readers] for u in sources])
    return replace(graph, exists=exists, is_parallel=is_parallel)


class _Stop(Exception):
    """Ends the call of a layer once what was asked for is seen."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Watched(Edit):
    runner: StreamRunner = field(repr=False)

    def on_vectors(self, vectors: Vectors, site: Site) -> Vectors:
        runner = self.runner
        for name, tensor in zip(Vectors._fields, vectors, strict=True):
            if tensor is not None:
                runner._seen[name] = tensor
        if runner._stops_at == "vectors" and len(runner._seen) == len(Vectors._fields):
            raise _Stop
        if runner._put is None:
            return vectors
        new = zip(vectors, runner._put, strict=True)
        return Vectors(*(None if old is None else put for old, put in new))

    def on_outputs(self, outputs: Tensor) -> Tensor:
        self.runner._seen["outputs"] = outputs
        if self.runner._stops_at == "outputs":
            raise _Stop
        return outputs


@dataclass(eq=False)
class LayerState:
    """One layer in one text: `position unit` streams and `head position neuron` vectors."""

    entering: Tensor
    leaving: Tensor
    attended: Tensor
    mlp: Tensor
    outputs: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    offset: Tensor | None
    """`head query key`: scores minus scale · q·k, which is the mask; None if the scores are not
    plain products."""
    sinks: Tensor | None


class StreamRunner:
    """Runs one text, whose position is read out, with other streams for some readers."""

    def __init__(self, graph: StreamGraph, text: ForwardPass) -> None:
        self.graph = graph
        self.model = graph.model
        self.text = text
        self.states: dict[int, LayerState] = {}
        self._calls: dict[int, tuple[tuple[object, ...], dict[str, Any]]] = {}
        self._returned: dict[int, object] = {}
        self._seen: dict[str, Tensor] = {}
        self._put: Vectors | None = None
        self._stops_at: str | None = None
        self._is_watching = False
        self.logits = self._capture()

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return self.text.n_tokens

    def _capture(self) -> Tensor:
        """Run the text once and keep copies of all layers (some families add in place); return the
        logits.
        """
        graph, block = self.graph, self.model.wiring.main_block()
        found: dict[tuple[str, int], Tensor] = {}
        attentions: dict[int, dict[str, Any]] = {}

        def keep(attention: Attention) -> None:
            if attention.block == block:
                names = ("outputs", "queries", "keys", "values", "scores", "sink_logits")
                tensors = {name: getattr(attention, name) for name in names}
                attentions[attention.layer] = {
                    name: None if x is None else x[0].detach().clone()
                    for name, x in tensors.items()
                }

        def keep_call(n: int, _: object, args: Any, kwargs: dict[str, Any]) -> None:
            hidden = next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
            found["entering", n] = hidden.detach()[0].clone()
            self._calls[n] = args, dict(kwargs)

        def keep_output(name: str, n: int, _: object, __: object, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            found[name, n] = value.detach().reshape(-1, value.shape[-1]).clone()
            if name == "leaving":
                self._returned[n] = output

        with ExitStack() as stack:
            for n, layer in graph.layers.items():
                hooks = [layer.register_forward_pre_hook(partial(keep_call, n), with_kwargs=True)]
                parts = {"leaving": layer, "attended": graph.projections[n], "mlp": graph.mlps[n]}
                for name, module in parts.items():
                    hooks.append(module.register_forward_hook(partial(keep_output, name, n)))
                for hook in hooks:
                    stack.callback(hook.remove)
            stack.enter_context(torch.no_grad())
            stack.enter_context(self.model.tapped(keep, scores=True, returns_weights=False))
            _, logits = self.text.run()
        assert logits is not None
        for n in graph.layers:
            vectors = attentions[n]
            offset, sinks = self._offset(graph.sites[n], vectors)
            self.states[n] = LayerState(
                **{name: found[name, n] for name in ("entering", "leaving", "attended", "mlp")},
                outputs=vectors["outputs"], query=vectors["queries"], key=vectors["keys"],
                value=vectors["values"], offset=offset, sinks=sinks,
            )  # fmt: skip
        return logits.detach()

    @staticmethod
    def _offset(site: Site, vectors: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
        scores = vectors["scores"]
        if not site.is_dot_product or site.scale is None or scores is None:
            return None, None
        keys = _by_head(vectors["keys"], site.n_heads)
        offset = scores - site.scale * vectors["queries"] @ keys.transpose(-1, -2)
        return offset, vectors["sink_logits"]

    @cached_property
    def sources(self) -> Tensor:
        """`source position unit`: what each source adds; their sum is checked."""
        first = self.states[next(iter(self.graph.layers))]
        values = [first.entering[None]]
        biases = torch.zeros_like(first.entering[0], dtype=torch.float64)
        for n, state in self.states.items():
            projection = self.model.projections[self.model.wiring.main_block(), n]
            values += [projection.through(state.outputs).to(first.entering), state.mlp[None]]
            biases += projection.bias.to(biases)
        stacked = torch.cat(values)
        last = self.states[max(self.states)].leaving
        off = float((stacked.double().sum(0) + biases - last).abs().max())
        if not off <= REL_TOL * max(float(last.abs().max()), 1e-6):
            raise refusal(self.model, f"its parts miss the residual stream by {off:.2g}")
        return stacked

    # Calls of one layer.

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, vectors and head outputs of layers can be seen and replaced."""
        if self._is_watching:
            yield
            return
        block = self.model.wiring.main_block()
        edits = tuple(_Watched(layer=n, head=0, block=block, runner=self) for n in self.states)
        self._is_watching = True
        try:
            with self.model.attached(Attachment(edits=edits, returns_weights=False)):
                yield
        finally:
            self._is_watching = False

    def call(
        self, layer: int, rows: Tensor, attended: Tensor | None = None, stops_at: str | None = None
    ) -> Tensor:
        """Run a layer on rows (`row position unit`); return its output. `attended` replaces the
        output of its attention. `stops_at` ends at the `vectors`, head `outputs` or `mlp`, kept in
        `_seen`.
        """
        args, kwargs = self._calls[layer]
        n = len(rows)
        args, kwargs = map_tensors((args, kwargs), lambda x: repeat_rows(x, n))
        if args:
            args = (rows, *args[1:])
        else:
            kwargs[next(k for k, value in kwargs.items() if isinstance(value, Tensor))] = rows
        self._seen, self._stops_at = {}, stops_at
        with ExitStack() as stack:
            if attended is not None:

                def hold(_: object, __: object, output: Any) -> Any:
                    held = attended.reshape(
                        (output[0] if isinstance(output, tuple) else output).shape
                    )
                    return (held, *output[1:]) if isinstance(output, tuple) else held

                stack.callback(self.graph.projections[layer].register_forward_hook(hold).remove)
            if stops_at == "mlp":

                def see(_: object, __: object, output: Any) -> None:
                    value = output[0] if isinstance(output, tuple) else output
                    self._seen["mlp"] = value.reshape(n, -1, value.shape[-1])
                    raise _Stop

                stack.callback(self.graph.mlps[layer].register_forward_hook(see).remove)
            try:
                output = self.graph.layers[layer](*args, **kwargs)
            except _Stop:
                return rows
            finally:
                self._stops_at = None
        return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]

    def vectors(self, layer: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (`row head|group position neuron`) of streams."""
        with self.watching():
            self.call(layer, rows, stops_at="vectors")
        query, key, value = (self._seen[name] for name in Vectors._fields)
        return query, key, value

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return head outputs (`row head position neuron`) of given vectors; rows may be one. Plain
        scores are computed here; others (soft caps, biases) by the model's own attention.
        """
        state, site = self.states[layer], self.graph.sites[layer]
        if state.offset is None:
            n = max(len(query), len(key), len(value))
            self._put = Vectors(*(repeat_rows(x, n) for x in (query, key, value)))
            try:
                with self.watching():
                    rows = repeat_rows(state.entering[None], n)
                    self.call(layer, rows, stops_at="outputs")
            finally:
                self._put = None
            return self._seen["outputs"]
        key, value = _by_head(key, site.n_heads), _by_head(value, site.n_heads)
        assert site.scale is not None
        scores = site.scale * query @ key.transpose(-1, -2) + state.offset
        if state.sinks is None:
            return torch.softmax(scores, -1) @ value
        sinks = state.sinks.expand(scores.shape[:-1])[..., None]
        return torch.softmax(torch.cat((scores, sinks), -1), -1)[..., :-1] @ value

    def mlp(self, layer: int, rows: Tensor) -> Tensor:
        """Return the MLP's output for streams that it alone reads."""
        entering = self.states[layer].entering
        if self.graph.is_parallel:
            self.call(layer, rows, stops_at="mlp")
        else:
            self.call(layer, repeat_rows(entering[None], len(rows)), rows - entering, "mlp")
        return self._seen["mlp"]

    def middle(self, layer: int) -> Tensor:
        """Return `position unit`: the stream that the MLP of a layer reads."""
        state = self.states[layer]
        return state.entering if self.graph.is_parallel else state.entering + state.attended

    # Passes above a layer.

    def tail(self, entries: Mapping[int, Tensor]) -> Tensor:
        """Return `row answer`: logits for streams that leave a layer, by that layer. Rows come back
        layer by layer.
        """
        rows: Tensor | None = None
        with self.model.attached(Attachment(returns_weights=False)):
            for n in self.graph.layers:
                if rows is not None:
                    rows = self.call(n, rows)
                if n in entries and len(entries[n]):
                    rows = entries[n] if rows is None else torch.cat((rows, entries[n]))
        assert rows is not None
        return self.read(rows)

    def read(self, rows: Tensor) -> Tensor:
        """Return `row answer`: logits for outputs of the last layer."""
        last = max(self.graph.layers)
        with ExitStack() as stack:
            for n, module in self.graph.layers.items():
                kept = self._returned[n]
                given = rows if n == last else rows[:, :1].expand(-1, rows.shape[1], -1)
                result = (given, *kept[1:]) if isinstance(kept, tuple) else given
                override(stack, module, lambda *_, result=result, **__: result)
            _, logits = self.text.run(len(rows))
        assert logits is not None
        return logits

    def gradients(
        self, starts: Tensor, answer: LogitDifference, *, by_reader: bool
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Return ∂m/∂x of readers (`reader position unit`) and, by layer, ∂m/∂z of heads.

        Gradients are means over rows of `starts`, inputs of the first layer. Without `by_reader`,
        only MLPs and logits are filled in: one backward pass.
        """
        require_gradients(self.model)
        graph, n_rows = self.graph, len(starts)
        kept: dict[int, list[Tensor]] = {}
        entering: dict[int, Tensor] = {}
        rows = starts.detach().clone().requires_grad_()
        with torch.enable_grad(), frozen(self.model.module), self.watching():
            for n in graph.layers:
                entering[n] = rows
                attended: list[Tensor] = []

                def keep(_: object, __: object, output: Any, attended: Any = attended) -> None:
                    attended.append(output[0] if isinstance(output, tuple) else output)

                handle = graph.projections[n].register_forward_hook(keep)
                rows = self.call(n, rows)
                handle.remove()
                seen = [self._seen[name] for name in (*Vectors._fields, "outputs")]
                kept[n] = [*seen, attended[0], rows]
            number = answer.read({}, self.read(rows)).sum()  # type: ignore[arg-type]
            flat = [tensor for tensors in kept.values() for tensor in tensors]
            first = entering[next(iter(graph.layers))]
            *found, at_first = torch.autograd.grad(number, [*flat, first], allow_unused=True)
            grads = {n: found[6 * i : 6 * i + 6] for i, n in enumerate(graph.layers)}
            shape = (len(graph.readers), self.n_tokens, starts.shape[-1])
            result = torch.zeros(shape, dtype=starts.dtype, device=starts.device)
            before = at_first
            for n, values in grads.items():
                leaving = values[5]
                mlp = values[4].reshape(leaving.shape) - leaving
                if by_reader or graph.is_parallel:
                    by_head = self._reader_gradients(n, entering[n], values[:3], result)
                    mlp = before - leaving - by_head if graph.is_parallel else mlp
                result[graph.readers_of(n, "mlp")[0]] = mlp.sum(0)
                before = leaving
            result[-1] = before.sum(0)
        outputs = {n: values[3].sum(0) / n_rows for n, values in grads.items()}
        return result / n_rows, outputs

    def _reader_gradients(
        self, layer: int, rows: Tensor, gradients: Sequence[Tensor | None], result: Tensor
    ) -> Tensor:
        """Fill in ∂m/∂x of a layer's queries, keys and values; return their sum by row. Each reader
        has a vector-Jacobian product of its own through the norm and its weights.
        """
        rows = rows.detach().requires_grad_()
        total = torch.zeros_like(rows)
        vectors = self.vectors(layer, rows)
        kinds: tuple[NodeKind, ...] = ("q", "k", "v")
        for kind, vector, gradient in zip(kinds, vectors, gradients, strict=True):
            if gradient is None:
                continue
            readers = self.graph.readers_of(layer, kind)
            masks = torch.eye(len(readers), dtype=rows.dtype, device=rows.device)
            batched = masks[:, None, :, None, None] * gradient
            (found,) = torch.autograd.grad(
                vector, rows, batched, is_grads_batched=True, retain_graph=True
            )
            result[readers] = found.sum(1)
            total += found.sum(0)
        return total


def _by_head(tensor: Tensor, n_heads: int) -> Tensor:
    """Return keys or values (`… group position neuron`) for each head."""
    n_groups = tensor.shape[-3]
    return tensor if n_groups == n_heads else tensor.repeat_interleave(n_heads // n_groups, -3)


def _is_parallel(runner: StreamRunner) -> bool:
    """Return whether MLPs read the input of their layer, without the heads of the layer."""
    found = set()
    generator = torch.Generator().manual_seed(0)
    for n, state in runner.states.items():
        random = torch.randn(state.entering.shape, generator=generator).to(state.entering)
        noise = random * state.entering.abs().mean()
        rows = torch.stack((state.entering, state.entering, state.entering + noise))
        attended = torch.stack((state.attended, state.attended + noise, state.attended))
        try:
            with torch.no_grad(), runner.model.attached(Attachment(returns_weights=False)):
                runner.call(n, rows, attended, "mlp")
        except RuntimeError as error:  # BLOOM passes biases with heads and rows on one axis
            raise refusal(runner.model, f"layer {n} cannot be run in rows ({error})") from error
        mlp = runner._seen["mlp"]
        limit = REL_TOL * max(float(mlp[0].abs().max()), 1e-6)
        reads_heads, reads_input = (bool(((row - mlp[0]).abs() > limit).any()) for row in mlp[1:])
        if reads_heads or reads_input:
            found.add(not reads_heads)
    if len(found) > 1:
        raise refusal(
            runner.model, "some of its MLPs read the heads of their layer and some do not"
        )
    return found == {True}
