"""Export a model as an ONNX graph: its own forward pass, traced with the tap attached, and proved.

The graph takes one input without padding, a gate for each head, and cells of attention to set. It
returns the output, the maps of every block, and the vectors that the tap sees. `storage` packs its
weights.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscope.attention import Attention, BlockName
from headscope.errors import MissingExtra, ModelError
from headscope.model.edits import AblateRows, Edit, Positions
from headscope.model.logits import has_probabilities
from headscope.model.model import Model
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.example import examples
from headscope.model.tap.forward_pass import takes, uncached
from headscope.model.tap.recording import REL_TOL
from headscope.model.tap.sites import Site

if TYPE_CHECKING:
    import onnx

OutputKind = Literal["next", "mask", "label", "vector"]
KINDS: dict[str | None, OutputKind] = {
    "causal": "next",
    "seq2seq": "next",
    "masked": "mask",
    "label": "label",
    None: "vector",
}
"""Output of the page by the model's objective."""
INSTEAD = "Share a page without the model instead: trace.save_page(path)."
PROOF_LENGTHS = (1, 9, 24)
EXAMPLE_SHAPE = (2, 6)
"""Batch and length while tracing: torch.export takes 1 for a constant."""
IDS = ("input_ids", "decoder_input_ids")
INPUTS = (*IDS, "token_type_ids", "pixel_values")


class Error(NamedTuple):
    """Largest difference of two runs: of attention weights, and of outputs relative to the
    largest output.
    """

    maps: float
    output: float

    def __str__(self) -> str:
        return f"{self.maps:.0e} (attention), {self.output:.0e} (output)"

    def exceeds(self, tolerance: float) -> bool:
        """True if a difference is above the tolerance, or not a number."""
        return not (self.maps <= tolerance and self.output <= tolerance)


@dataclass(frozen=True, eq=False)
class Graph:
    """An exported model."""

    proto: onnx.ModelProto = field(repr=False)
    kind: OutputKind
    blocks: Mapping[BlockName, tuple[Site, ...]]
    """Sites of each block, the main one first; gates count them in this order."""
    vectors: Mapping[BlockName, tuple[str, ...]]
    """Names among queries, keys and values that the graph returns."""
    has_types: bool
    error: Error
    """Largest difference from the tap, over all proof inputs."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """Sites of all blocks."""
        return tuple(site for sites in self.blocks.values() for site in sites)

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the outputs with attention, one for each block."""
        return tuple(output_name("attention", block) for block in self.blocks)

    def inputs(
        self,
        one: Mapping[str, Tensor],
        off: Sequence[tuple[int, int] | None],
        rows: Sequence[int],
    ) -> dict[str, np.ndarray]:
        """Return the graph's inputs for one input; row i of the batch has the head `off[i]` off."""
        gate = torch.ones(len(off), len(self.sites), max(site.n_heads for site in self.sites))
        for index, head in enumerate(off):
            if head is not None:
                gate[index, head[0], head[1]] = 0
        repeated = {name: value.expand(len(off), *value.shape[1:]) for name, value in one.items()}
        given = _given(self.kind, repeated, gate, rows, has_types=self.has_types)
        return {name: value.contiguous().numpy() for name, value in given.items()}


def output_name(name: str, block: BlockName) -> str:
    """Return the graph's name of attention or vectors; that of a single block is plain."""
    return name if block == "self" else f"{block}.{name}"


def export(model: Model) -> Graph:
    """Trace the model with the tap attached; raise ModelError unless graph and tap agree.

    Compares them at three lengths, with all heads and without one head of each layer.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as missing:
        raise MissingExtra.of(str(missing.name), "live", "A live page") from None
    kind = check_exportable(model)
    blocks = {block: model.wiring.of_block(block) for block in model.wiring.blocks}
    has_types = (
        takes(model.module, "token_type_ids")
        and model.module.main_input_name == "input_ids"
        and (model.tokenizer is None or "token_type_ids" in model.tokenizer.model_input_names)
    )
    example = random_input(model, EXAMPLE_SHAPE[1], seed=1)
    name = "last_hidden_state" if kind == "vector" else "logits"
    if name not in model.run(example):
        raise ModelError(f"{model.name} ({model.info.architecture}) returns no {name}. {INSTEAD}")
    vectors = {block: _vectors_of(sites) for block, sites in blocks.items()}
    graph = Graph(onnx.ModelProto(), kind, blocks, vectors, has_types, Error(0, 0))
    given = graph.inputs(example, [None] * EXAMPLE_SHAPE[0], [0, 1, 2])
    proto = _convert(
        _Traced(model, graph), {key: torch.from_numpy(value) for key, value in given.items()}
    )
    graph = replace(graph, proto=proto)
    error = compare(model, graph, proto.SerializeToString())
    if error.exceeds(REL_TOL):
        raise ModelError(
            f"The graph of {model.name} differs from the model: {error}, relative to the largest "
            f"output. Expected at most {REL_TOL:.0e}. {INSTEAD}"
        )
    return replace(graph, error=error)


def check_exportable(model: Model) -> OutputKind:
    """Return the kind of output; raise ModelError for a model that a live page cannot show."""
    info, module = model.info, model.module
    heads = [{site.n_heads for site in model.wiring.of_block(block)} for block in info.blocks]
    reason = None
    inputs = {*model.wiring.media, module.main_input_name}
    if len(inputs) > 1 or not inputs <= {"input_ids", "pixel_values"}:
        reason = f"reads {' and '.join(sorted(inputs))}, not text or images alone"
    elif info.objective not in KINDS:
        reason = f"predicts by the objective {info.objective!r}"
    elif not has_probabilities(model):
        reason = "predicts a score, which has no probability"
    elif any(len(counts) > 1 for counts in heads):
        reason = f"has layers of {sorted(set().union(*heads))} heads"
    elif module.dtype != torch.float32 or module.device.type != "cpu":
        reason = f"is loaded as {info.dtype} on {info.device}, not as float32 on the CPU"
    elif model.edits:
        reason = "is being edited. Leave the block of model.edit first: the edits would be traced"
    if reason is not None:
        raise ModelError(f"{model.name} ({info.architecture}) {reason}. {INSTEAD}")
    return KINDS[info.objective]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Switches(Edit):
    """Gate on the head outputs of one layer, and cells of its attention to set."""

    row: int
    given: Mapping[str, Tensor] = field(repr=False)

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """Multiply each head's output by its gate."""
        return outputs * self.given["gate"][:, self.row, : outputs.shape[1], None, None]

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Set cells as `set_attention` does: other keys are scaled, and a row keeps its sum."""
        layer, head, query, key = self.given["cell"].unbind(1)
        shape = weights.shape[1:]
        n_cells = shape[0] * shape[1] * shape[2]
        place = torch.where(
            layer == self.row, (head * shape[1] + query) * shape[2] + key, n_cells
        )  # cells of other layers fall behind the last
        values = self.given["cell_weight"]
        empty = weights.new_zeros(n_cells + 1)
        is_set = empty.scatter(0, place, torch.ones_like(values))[:-1].view(shape)
        put = empty.scatter(0, place, values)[:-1].view(shape)
        rest = weights * (1 - is_set)
        room = weights.sum(-1, keepdim=True) - put.sum(-1, keepdim=True)
        factor = (room / rest.sum(-1, keepdim=True).clamp(min=1e-30)).clamp(min=0)
        return rest * factor + put


class _Traced(nn.Module):
    """The model with the tap attached, as a function of tensors to tensors."""

    def __init__(self, model: Model, graph: Graph) -> None:
        super().__init__()
        self.net = model.module
        self._model = [model]  # a list hides it from torch
        self.graph, self.name = graph, model.name

    def forward(self, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return output, attention and vectors, `batch layer …`."""
        seen: list[Attention] = []
        edits = tuple(
            _Switches(layer=site.layer, head=0, block=site.block, row=row, given=given)
            for row, site in enumerate(self.graph.sites)
        )
        inputs = {name: given[name] for name in INPUTS if name in given}
        attachment = Attachment(reader=seen.append, edits=edits)
        with self._model[0].attached(attachment, inputs), self._some_rows(given.get("rows")) as cut:
            outputs = self.net(**inputs, **uncached(self.net))
        output = outputs["last_hidden_state" if self.graph.kind == "vector" else "logits"]
        if "rows" in given and not cut:
            output = output[:, given["rows"]]
        found = [output]
        for block, names in self.graph.vectors.items():
            here = sorted((a for a in seen if a.block == block), key=lambda a: a.layer)
            found += [
                torch.stack([getattr(attention, name) for attention in here], 1)
                for name in ("weights", *names)
            ]
        return tuple(found)

    @property
    def outputs(self) -> list[str]:
        """Names of what `forward` returns."""
        vectors = self.graph.vectors.items()
        named = [(name, block) for block, names in vectors for name in ("attention", *names)]
        return ["output", *(output_name(*each) for each in named)]

    @contextlib.contextmanager
    def _some_rows(self, rows: Tensor | None) -> Iterator[list[bool]]:
        """Within the block, the language-model head sees only these positions, if it is a module.

        The list gets an item when the head was called.
        """
        cut: list[bool] = []

        def pick(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            cut.append(True)
            return args[0][:, rows], *args[1:]

        head = self.net.get_output_embeddings() if rows is not None else None
        hook = None if head is None else head.register_forward_pre_hook(pick)
        try:
            yield cut
        finally:
            if hook is not None:
                hook.remove()


def _given(
    kind: OutputKind,
    inputs: Mapping[str, Tensor],
    gate: Tensor,
    rows: Sequence[int],
    *,
    has_types: bool,
) -> dict[str, Tensor]:
    """Return the graph's inputs in their order, with a cell that sets nothing while tracing."""
    given = dict(inputs)
    if has_types:
        given["token_type_ids"] = torch.zeros_like(given["input_ids"])
    given["gate"] = gate
    if kind in ("next", "mask"):
        given["rows"] = torch.tensor(rows)
    cells = torch.full((2, 4), -1)  # of no layer
    return given | {"cell": cells, "cell_weight": torch.zeros(2)}


def _convert(traced: _Traced, given: Mapping[str, Tensor]) -> onnx.ModelProto:
    """Trace and convert; raise ModelError with the operator that cannot be exported."""
    n_axes = dict.fromkeys((*IDS, "token_type_ids"), 2)  # the first of the others
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {"given": {key: dict.fromkeys(range(n_axes.get(key, 1)), dynamic) for key in given}}
    try:
        with torch.no_grad(), _quiet(), _plain_experts(traced.net):
            program = torch.export.export(
                traced, (dict(given),), dynamic_shapes=shapes, strict=False
            )
            exported = torch.onnx.export(
                program, dynamo=True, verbose=False, optimize=True, external_data=False,
                input_names=[*given], output_names=traced.outputs,
            )  # fmt: skip
    except Exception as error:  # torch raises its own, onnxscript any
        raise ModelError(
            f"{traced.name} cannot be exported: {_operator(error)}. {INSTEAD}"
        ) from error
    assert exported is not None
    proto: onnx.ModelProto = exported.model_proto
    _strip(proto)
    return proto


@contextlib.contextmanager
def _plain_experts(module: PreTrainedModel) -> Iterator[None]:
    """Within the block, experts are batched products: ONNX has no grouped ones."""
    if not module._can_set_experts_implementation():
        yield
        return
    before = module.get_experts_implementation()
    module.set_experts_implementation("batched_mm")
    try:
        yield
    finally:
        module.set_experts_implementation(before)


def _operator(error: BaseException) -> str:
    """Return the operator that an export stopped at, or the first line of the last cause."""
    cause: BaseException | None = error
    first = ""
    while cause is not None:
        text = str(cause)
        found = re.search(r"OpOverload\(op='([^']+)'|\b((?:aten|prims)[.:]+\w+)", text)
        if found:
            return f"operator {found[1] or found[2]}"
        first = next((line.strip() for line in text.splitlines() if line.strip()), first)
        cause = cause.__cause__ or cause.__context__
    return first[:200] or type(error).__name__


def _strip(proto: onnx.ModelProto) -> None:
    """Remove stack traces and file names of the exporting machine."""
    graph = proto.graph
    del proto.metadata_props[:], graph.value_info[:], graph.metadata_props[:]
    proto.doc_string = graph.doc_string = ""
    for each in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del each.metadata_props[:]
        each.doc_string = ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and logs of the exporter: the proof judges its work."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def session(data: bytes) -> Any:
    """Return an onnxruntime session for a graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def compare(model: Model, graph: Graph, data: bytes) -> Error:
    """Return the largest difference between a graph's bytes and the tap.

    At each length, row 0 has all heads; every other row lacks one head of one layer.
    """
    running = session(data)
    off = [None, *((row, row % site.n_heads) for row, site in enumerate(graph.sites))]
    counts = [len(sites) for sites in graph.blocks.values()]
    places = [(i, row) for i, n_rows in enumerate(counts) for row in range(n_rows)]
    errors = []
    longest = model.info.max_length or PROOF_LENGTHS[-1]
    for length in PROOF_LENGTHS:
        one = random_input(model, min(length, longest), seed=length)
        last = one[IDS[1] if IDS[1] in one else next(iter(one))].shape[1] - 1
        inputs = graph.inputs(one, off, sorted({0, last}))
        try:
            output, *maps = running.run(["output", *graph.maps], inputs)
        except Exception as error:  # onnxruntime has no base class of its own errors
            reason = str(error).partition("\n")[0][:200]
            raise ModelError(
                f"The graph of {model.name} does not run for {length} tokens: {reason}"
            ) from error
        expected_maps, expected = run_tap(model, graph, inputs, off)
        # An ablated head has no map in the model; the graph returns the map before the gate.
        for row, head in enumerate(off):
            if head is not None:
                block, layer = places[head[0]]
                expected_maps[block][row, layer, head[1]] = maps[block][row, layer, head[1]]
        pairs = zip(maps, expected_maps, strict=True)
        errors += [difference(*pair, output, expected) for pair in pairs]
    return Error(*(float(np.max(values)) for values in zip(*errors, strict=True)))


def difference(
    maps: np.ndarray, expected_maps: np.ndarray, output: np.ndarray, expected: np.ndarray
) -> Error:
    """Return the largest differences of two runs."""
    if maps.shape != expected_maps.shape or output.shape != expected.shape:
        return Error(float("inf"), float("inf"))
    largest = max(float(np.abs(expected).max()), 1e-30)
    return Error(
        float(np.abs(maps - expected_maps).max()), float(np.abs(output - expected).max()) / largest
    )


def run_tap(
    model: Model,
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    off: Sequence[tuple[int, int] | None],
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return attention by block and output of the model, with the heads of each row ablated."""
    seen: dict[tuple[BlockName, int], Tensor] = {}
    edits = []
    for row, site in enumerate(graph.sites):
        here = [(i, head[1]) for i, head in enumerate(off) if head is not None and head[0] == row]
        if here:
            rows, heads = torch.tensor(here).unbind(1)
            edits.append(
                AblateRows(layer=site.layer, head=0, block=site.block, rows=rows, heads=heads)
            )

    def read(attention: Attention) -> None:
        seen[attention.block, attention.layer] = attention.weights.float().clone()

    named = {name: torch.from_numpy(inputs[name]) for name in INPUTS if name in inputs}
    with model.attached(Attachment(edits=tuple(edits)), named):
        outputs = model.run(named, read)
    output = outputs["last_hidden_state" if graph.kind == "vector" else "logits"].float()
    if "rows" in inputs:
        output = output[:, torch.from_numpy(inputs["rows"])]
    maps = [
        torch.stack([seen[block, site.layer] for site in sites], 1).numpy()
        for block, sites in graph.blocks.items()
    ]
    return maps, output.numpy()


def _vectors_of(sites: Sequence[Site]) -> tuple[str, ...]:
    """Return the names of the vectors that the tap sees in every layer, with one shape."""
    keys = {(site.n_groups, site.head_size) for site in sites}
    values = {(site.n_groups, site.value_size) for site in sites}
    has_keys = len(keys) == 1 and sites[0].head_size is not None
    has_values = len(values) == 1 and sites[0].value_size is not None
    return ("queries", "keys") * has_keys + ("values",) * has_values


def random_input(model: Model, length: int, seed: int) -> dict[str, Tensor]:
    """Return one random input: a text and a decoder's half as long, or an image."""
    found: dict[str, Tensor] = {}
    for name, value in next(examples(model.module)).items():
        if name == "pixel_values":
            noise = torch.Generator().manual_seed(seed)
            found[name] = torch.randn(1, *value.shape[1:], generator=noise)
        elif name in IDS:
            n_tokens = length if name == IDS[0] else length // 2 + 1
            found[name] = ordinary_ids(model, n_tokens, seed)[None]
        elif name not in ("attention_mask", "token_type_ids"):
            raise ModelError(f"{model.name} reads {name}, not text or images alone. {INSTEAD}")
    return found


def ordinary_ids(model: Model, length: int, seed: int) -> Tensor:
    """Return random ids of tokens that are not special, the same for every call."""
    config = model.module.config.get_text_config(decoder=True)
    n = config.vocab_size
    named = [getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos")]
    special = {i for ids in named for i in (ids if isinstance(ids, list) else [ids])}
    if model.tokenizer is not None:
        special |= {*model.tokenizer.all_special_ids}
        n = min(n, len(model.tokenizer))
    ordinary = torch.tensor([i for i in range(n) if i not in special])
    picked = torch.randint(len(ordinary), (length,), generator=torch.Generator().manual_seed(seed))
    return ordinary[picked]
