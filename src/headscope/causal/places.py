"""Patching by place, paths of wires, the logit lens, and composition from weights.

`headscope.patch(…, at=…)`, `headscope.path`, `headscope.lens` run on the residual stream;
`headscope.composition` reads weights alone. Wires are in `wires`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headscope.arguments import expect, whole_number
from headscope.causal.batched_forward import ForwardPass
from headscope.causal.effects import read_text
from headscope.causal.explain_score import run_attention
from headscope.causal.pair_wires import PairWires, encode_pairs
from headscope.causal.patch import PatchPlace, TextPairs, about_pairs, as_pairs, shares
from headscope.causal.readout import find_answers, find_position, place_of
from headscope.causal.residual_stream import find_norm, read_stream, refusal
from headscope.causal.stream_runner import (
    MAX_ROW_TOKENS,
    NodeKind,
    StreamGraph,
    StreamNode,
    StreamRunner,
    stream_graph,
)
from headscope.errors import InputError, UnknownName
from headscope.model.edits import group_of
from headscope.model.load import as_model
from headscope.model.logits import KINDS, answer_names
from headscope.model.model import Model
from headscope.model.tap.recording import REL_TOL
from headscope.results.effect_data import Lens
from headscope.run.progress import Meter
from headscope.text.pairs import Pairs

PLACES: tuple[PatchPlace, ...] = ("residual", "mlp", "head", "q", "k", "v", "pattern")
BY_POSITION = ("residual", "mlp")


def patch_places(
    model: Model,
    pairs: Pairs,
    at: PatchPlace,
    where: Sequence[int] | None,
    position: int,
    progress: bool | None,
) -> xr.Dataset:
    """Patch every layer at one kind of place. See `headscope.patch`."""
    UnknownName.check("at", at, PLACES)
    if where is not None:
        expect("where", where, Iterable, "a list of positions")
    encoded, graph = encode_pairs(model, pairs, position)
    lengths = {len(pair.tokens[0]) for pair in encoded}
    if at in BY_POSITION and where is None and len(lengths) > 1:
        raise InputError(
            f"Pairs have {min(lengths)} to {max(lengths)} tokens, so their positions mean "
            "different words. Give pairs of one length, or positions from the end: where=[-1, -2]."
        )
    # Heads are patched at all positions of each text, which may differ in number.
    places = [*range(min(lengths))] if where is None else list(where)
    if not places:
        raise InputError("where=[] has no position: leave it out for all positions.")
    layers = list(graph.layers)
    n_heads = max(site.n_heads for site in graph.sites.values())
    columns = places if at in BY_POSITION else list(range(n_heads))
    effects, gaps = [], []
    with closing(Meter(len(encoded) * len(layers), shown=progress)) as meter:
        for pair in encoded:
            run = pair.run(graph)
            own = [place_of("where", place, run.first.n_tokens) for place in places]
            effects.append(_map(run, at, own, where is None, meter.advance))
            gaps.append(run.gap)
    share, numbers = shares(np.stack(effects), np.array(gaps), pairs)
    column = "position" if at in BY_POSITION else "head"
    coords: dict[str, Any] = {"layer": layers, column: columns}
    if at in BY_POSITION and len(lengths) == 1:
        tokens = encoded[0].tokens[0].tokens
        coords["token"] = ("position", [tokens[place] for place in places])
    return xr.Dataset(
        {name: (("layer", column), getattr(share, field))
         for name, field in (("share", "value"), ("low", "low"), ("high", "high"))}
        | {"gap": ("pair", np.array(gaps))},
        coords=coords,
        attrs={"at": at, "where": "all" if where is None else str(places),
               **about_pairs(model, pairs, numbers)},
    )  # fmt: skip


def _map(
    run: PairWires,
    at: PatchPlace,
    places: Sequence[int],
    is_everywhere: bool,
    advance: Callable[[int], None],
) -> np.ndarray:
    """Return `layer position`, or `layer head`: m with the place of the other text − m."""
    first, second = run.first, run.second
    n_heads = max(site.n_heads for site in run.graph.sites.values())
    n_columns = len(places) if at in BY_POSITION else n_heads
    values = np.full((len(first.states), n_columns), np.nan)
    rows_at_once = max(1, MAX_ROW_TOKENS // first.n_tokens)
    with torch.no_grad():
        for i, layer in enumerate(first.states):
            if at in BY_POSITION:
                leaving = _leaving_by_position(first, second, layer, at, places)
            else:
                leaving = _leaving_by_head(run, layer, at, None if is_everywhere else places)
            found = [
                run.numbers(first.tail({layer: leaving[j : j + rows_at_once]}))
                for j in range(0, len(leaving), rows_at_once)
            ]
            values[i, : len(leaving)] = np.concatenate(found) - run.value
            advance(1)
    return values


def _leaving_by_position(
    first: StreamRunner, second: StreamRunner, layer: int, at: str, places: Sequence[int]
) -> Tensor:
    own, other = first.states[layer], second.states[layer]
    before: Tensor = own.mlp if at == "mlp" else own.entering
    after: Tensor = other.mlp if at == "mlp" else other.entering
    moved = torch.zeros((len(places), *before.shape), dtype=before.dtype, device=before.device)
    moved[range(len(places)), list(places)] = (after - before)[list(places)]
    if at == "mlp":
        replaced: Tensor = own.leaving + moved
        return replaced
    with first.model.tapped(returns_weights=False):
        return first.call(layer, own.entering + moved)


def _leaving_by_head(
    run: PairWires, layer: int, at: PatchPlace, places: Sequence[int] | None
) -> Tensor:
    """Return the output of a layer for each replaced head; keys and values are copies of its own.
    `places` are queries (head, q, pattern) or keys (k, v); None for all.
    """
    first, second = run.first, run.second
    own, other = first.states[layer], second.states[layer]

    def mixed(name: str) -> Tensor:
        mine: Tensor = getattr(own, name).clone()
        theirs: Tensor = getattr(other, name)
        chosen = slice(None) if places is None else list(places)
        mine[:, chosen] = theirs[:, chosen]
        return mine[None]

    vectors = {"q": own.query[None], "k": own.key[None], "v": own.value[None]}
    if at == "head":
        outputs = mixed("outputs")[0]
    elif at == "pattern":
        outputs = second.attend(layer, other.query[None], other.key[None], vectors["v"])[0]
        if places is not None:
            rest = [t for t in range(first.n_tokens) if t not in places]
            outputs[:, rest] = own.outputs[:, rest]
    else:
        vectors[at] = mixed({"q": "query", "k": "key", "v": "value"}[at])
        outputs = first.attend(layer, *vectors.values())[0]
    projection = run.graph.model.projections[run.graph.model.wiring.main_block(), layer]
    written = projection.through(outputs - own.outputs).to(own.entering)
    with first.model.tapped(returns_weights=False):
        entering = own.entering.expand(len(written), -1, -1).contiguous()
        return first.call(layer, entering, own.attended + written)


PathNode = str | tuple[int | str, ...]


def path(
    model: Model | str,
    pairs: TextPairs,
    nodes: Sequence[PathNode],
    target: str | int | Sequence[str | int] | None = None,
    foil: str | int | Sequence[str | int] | None = None,
    *,
    position: int = -1,
    templates: Sequence[object] | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measure one path through the stream: source → reader → … → last reader.

    The source is replaced for the next reader alone. The change of what that reader's head writes
    is given to the following reader alone, and so on. Everything above the last reader is run
    again. Nothing passes through an MLP in between, unless the path names it. (Path patching of
    Wang et al. 2023 lets MLPs run, which is another number.)

    Args:
        model: language model whose layers add up, or an argument of `headscope.load`.
        pairs: as in `headscope.wires`.
        nodes: the source, `(16, 0)` (layer and head), `(3, "mlp")` or `"embedding"`; then readers,
            `(17, 4, "k")`, `(3, "mlp")` or, last, `"logits"`. The keys or values of the last reader
            are those of its group.
        target: answer of the first texts: one, or one each.
        foil: answer of the second texts: one, or one each.
        position: position of the prediction.
        templates: label of each pair's template.
        progress: show progress; by default on a terminal.

    Returns:
        `share` of the gap with `low` and `high` over templates, and `effect` and `gap` by `pair`.
    """
    loaded = as_model(model)
    given = as_pairs(pairs, target, foil, templates)
    encoded, graph = encode_pairs(loaded, given, position)
    source, readers = _nodes(graph, nodes)
    effects, gaps = [], []
    with closing(Meter(len(encoded), shown=progress)) as meter, torch.no_grad():
        for pair in encoded:
            run = pair.run(graph)
            moved = run.deltas[graph.sources.index(source)][None]
            for reader, head in readers[:-1]:
                moved = run.response(reader.layer, [reader], moved, [head])
            reader, _ = readers[-1]
            leaving = run.leaving(reader.layer, [reader], moved, [-1])
            layer = min(reader.layer, max(graph.layers))
            effects.append(run.numbers(run.first.tail({layer: leaving}))[0] - run.value)
            gaps.append(run.gap)
            meter.advance(1)
    share, numbers = shares(np.array(effects)[:, None], np.array(gaps), given)
    passed = [
        reader if head < 0 else StreamNode(reader.kind, reader.layer, (head,))
        for reader, head in readers[:-1]
    ]
    names = [source.name, *(reader.name for reader in (*passed, readers[-1][0]))]
    return xr.Dataset(
        {"share": share.value[0], "low": share.low[0], "high": share.high[0],
         "effect": ("pair", np.array(effects)), "gap": ("pair", np.array(gaps))},
        attrs={"path": " → ".join(names), **about_pairs(loaded, given, numbers)},
    )  # fmt: skip


def _nodes(
    graph: StreamGraph, nodes: Sequence[Any]
) -> tuple[StreamNode, list[tuple[StreamNode, int]]]:
    """Return the source and the readers of a path, each with the head that goes on."""
    if isinstance(nodes, str) or not isinstance(nodes, Sequence) or len(nodes) < 2:
        raise InputError(f"path={nodes!r} needs a source and at least one reader.")
    plain = [
        tuple(int(x) if isinstance(x, np.integer) else x for x in n) if isinstance(n, tuple) else n
        for n in nodes
    ]
    source, readers = _source(graph, plain[0]), [_reader(graph, node) for node in plain[1:]]
    writer = source
    for i, (reader, head) in enumerate(readers):
        if not graph.exists[graph.sources.index(writer), graph.readers.index(reader)]:
            raise InputError(
                f"{writer.name} is not added to the stream before {reader.name} reads it: name "
                "the nodes of a path from below."
            )
        if i < len(readers) - 1:
            if reader.kind == "logits":
                raise InputError("'logits' ends a path: name it last.")
            is_mlp = reader.kind == "mlp"
            writer = StreamNode(
                "mlp" if is_mlp else "head", reader.layer, () if is_mlp else (head,)
            )
    return source, readers


def _source(graph: StreamGraph, node: object) -> StreamNode:
    if node == "embedding":
        return StreamNode("embedding")
    match node:
        case (int(layer), "mlp"):
            graph.model.wiring.find(None, layer, None)
            return StreamNode("mlp", layer)
        case (int(layer), int(head)):
            graph.model.wiring.find(None, layer, head)
            return StreamNode("head", layer, (head,))
    raise InputError(
        f"{node!r} is not a source: give (layer, head), (layer, 'mlp') or 'embedding'."
    )


def _reader(graph: StreamGraph, node: object) -> tuple[StreamNode, int]:
    if node == "logits":
        return graph.readers[-1], -1
    match node:
        case (int(layer), "mlp"):
            graph.model.wiring.find(None, layer, None)
            return graph.readers[graph.readers_of(layer, "mlp")[0]], -1
        case (int(layer), int(head), "q" | "k" | "v" as kind):
            graph.model.wiring.find(None, layer, head)
            chosen: NodeKind = kind
            readers = (graph.readers[i] for i in graph.readers_of(layer, chosen))
            return next(reader for reader in readers if head in reader.heads), head
    raise InputError(
        f"{node!r} is not a reader: give (layer, head, 'q', 'k' or 'v'), (layer, 'mlp') or "
        "'logits'."
    )


def lens(
    model: Model | str,
    text: str,
    target: str | int | None = None,
    foil: str | int | None = None,
    *,
    position: int = -1,
    top: int = 5,
) -> Lens:
    """Return what each layer would predict: its stream through the final norm and unembedding.

    The stream is proved to be the sum of its components, and the last row to be the model's own
    prediction. Look at the rank beside the logit difference: a difference can be large where both
    answers are far from the top.

    nostalgebraist 2020 (logit lens).

    Args:
        model: language model whose layers add up, or an argument of `headscope.load`.
        text: the text.
        target: token; by default the top prediction.
        foil: token; by default the next prediction.
        position: position of the prediction; the last token by default.
        top: number of predictions to keep.

    Returns:
        Table, figure and data: top tokens with probabilities by layer (−1 is the input of the
        first layer), rank and probability of the target, and the logit difference.
    """
    loaded = as_model(model)
    n_top = whole_number("top", top)
    objective = loaded.require_objective("A lens")
    stacks, inputs = read_text(loaded, text, None, None)
    graph = stream_graph(loaded, inputs)
    index = find_position(loaded, stacks, position)
    runner = StreamRunner(graph, ForwardPass(loaded, inputs, index))
    runner.sources  # noqa: B018  proves that the components sum
    states = list(runner.states.values())
    rows = torch.stack([states[0].entering, *(state.leaving for state in states)])
    with torch.no_grad():
        logits = runner.read(rows).float()
    if not torch.allclose(logits[-1], runner.logits[0].float(), atol=1e-3, rtol=1e-4):
        raise InputError(f"The last layer of {loaded.name} does not give the model's own logits.")
    answer = find_answers(loaded, logits[-1], target, foil, "logit", index)
    probabilities = logits.softmax(-1).double().cpu().numpy()
    order = logits.argsort(-1, descending=True)
    ids = order[:, :n_top].cpu().numpy()
    names = [answer_names(loaded, KINDS[objective], row) for row in ids.tolist()]
    ranks = (order == answer.target).int().argmax(-1).cpu().numpy() + 1
    layers = [-1, *graph.layers]
    variables: dict[str, Any] = {
        "token": (("layer", "place"), np.array(names, dtype=object)),
        "probability": (("layer", "place"), np.take_along_axis(probabilities, ids, -1)),
        "target_probability": ("layer", probabilities[:, answer.target]),
        "target_rank": ("layer", ranks),
    }
    if answer.foil is not None:
        difference = logits[:, answer.target] - logits[:, answer.foil]
        variables["difference"] = ("layer", difference.double().cpu().numpy())
    return Lens(
        xr.Dataset(
            variables,
            coords={"layer": layers, "place": np.arange(1, ids.shape[1] + 1)},
            attrs={"model": loaded.name, "text": text, **answer.describe()},
        )
    )


SIDES = ("q", "k", "v")
ROWS_AT_ONCE = 256
MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation, for normal values."""


def composition(model: Model | str, reader: tuple[int, int, str]) -> xr.Dataset:
    """Rank earlier heads by how much of what they write a reader could read, from weights alone.

    ‖W_O^u γ W_r‖ / (‖W_O^u‖ ‖γ W_r‖), Frobenius norms, with γ the weight of the norm before the
    reader. Random matrices give 1/√d; nearly all heads of a trained model exceed it. So the rank
    within the reader and a robust z (median and median absolute deviation) stand beside it. Weights
    alone do not say whether a wire carries anything: `headscope.wires` measures that.

    Elhage et al. 2021 (Q-, K- and V-composition).

    Args:
        model: language model whose layers add up, or an argument of `headscope.load`.
        reader: layer, head and `q`, `k` or `v`: `(17, 4, "k")`.

    Returns:
        `composition`, `rank` (1 is the largest) and `z` over `source`, with `layer` and `head`;
        attribute `null` is 1/√d.
    """
    model = as_model(model)
    match reader:
        case (int(layer), int(head), str(kind)) if kind in SIDES:
            site = model.wiring.find(None, layer, head)
        case _:
            raise InputError(f"reader={reader!r} should be layer, head and 'q', 'k' or 'v'.")
    block = model.wiring.main_block()
    below = [other for other in model.wiring.of_block(block) if other.layer < layer]
    if not below:
        raise InputError(f"Layer {layer} is the first: no head writes before it reads.")
    read = _reader_weights(model, layer, kind)
    weights = read[head if kind == "q" else group_of(head, site)]
    scale = float(torch.linalg.norm(weights))
    values, heads = [], []
    for other in below:
        written = model.projections[block, other.layer].weights
        for number, matrix in enumerate(written):
            both = float(torch.linalg.norm(matrix)) * scale
            values.append(float(torch.linalg.norm(matrix @ weights)) / both if both else 0.0)
            heads.append((other.layer, number))
    array = np.array(values)
    spread = MAD * np.median(np.abs(array - np.median(array)))
    rank = 1 + np.argsort(np.argsort(-array, kind="stable"))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (array - np.median(array)) / spread
    return xr.Dataset(
        {"composition": ("source", array), "rank": ("source", rank), "z": ("source", z)},
        coords={
            "source": [f"L{n} H{number}" for n, number in heads],
            "layer": ("source", [n for n, _ in heads]), "head": ("source", [h for _, h in heads]),
        },
        attrs={
            "model": model.name, "reader": f"{kind} of L{layer} H{head}",
            "null": float(weights.shape[0] ** -0.5), "median": float(np.median(array)),
        },
    )  # fmt: skip


def _reader_weights(model: Model, layer: int, kind: str) -> Tensor:
    """Return `head|group unit neuron`: γ W_r, proved to be linear, from unit vectors at the first
    position. Rotary embeddings are rotations, which do not change norms.
    """
    _, inputs = read_text(model, "a b", None, None)
    stream = read_stream(model, inputs)
    site = model.wiring.find(None, layer, None)
    call = next((c for c in stream.calls if c.name == site.module), None)
    if call is None:
        raise refusal(model, f"{site.module} takes no tensor of hidden states")
    entering = stream.before[layer]
    norm = find_norm(model, stream, entering, call.given, f"between the stream and layer {layer}")
    width, n_tokens = entering.shape[-1], entering.shape[0]
    unit = torch.eye(width, dtype=entering.dtype)
    if norm is not None:
        unit = (unit - unit.mean(-1, keepdim=True) if norm.is_centered else unit) * norm.weight
    module = model.module.get_submodule(site.module)

    def read(rows: Tensor) -> Tensor:
        fed = torch.zeros((len(rows), n_tokens, width), dtype=call.given.dtype)
        fed[:, 0] = rows.to(fed)
        return run_attention(model, module, site, fed, call)[SIDES.index(kind)][:, :, 0]

    nothing = read(torch.zeros_like(unit[:1]))
    parts = unit.split(ROWS_AT_ONCE)
    found = torch.cat([read(rows) - nothing for rows in parts])  # `unit group neuron`
    twice = read(3 * unit[:8]) - nothing
    off = float((twice - 3 * found[:8]).abs().max())
    if off > REL_TOL * max(float(twice.abs().max()), 1e-6):
        raise refusal(model, f"the {kind} of layer {layer} are not linear in its input (a norm?)")
    return found.transpose(0, 1)
