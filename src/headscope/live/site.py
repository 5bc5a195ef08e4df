"""Write a page with its model inside: a folder for any static host, or one HTML file.

`graph` exports and proves the model, `storage` packs it, `tokenizer` gives the page its tables.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from headscope.arguments import whole_number
from headscope.atomic import atomic_path
from headscope.attention import Attention, BlockName
from headscope.errors import InputError, IntegrityError, UnknownName, WriteError
from headscope.live.graph import (
    IDS,
    Error,
    Graph,
    check_exportable,
    compare,
    export,
    ordinary_ids,
    output_name,
    random_input,
    session,
)
from headscope.live.storage import NAMES, Storage, gguf_of, pack, read_blocks
from headscope.live.tokenizer import Refusal, page_tokenizer
from headscope.model.edits import group_of
from headscope.model.encode import Speller
from headscope.model.logits import are_exclusive, label_names
from headscope.model.model import Model
from headscope.model.tap.recording import REL_TOL
from headscope.page.codec import Buffers, Payload
from headscope.page.payload import Question, Step
from headscope.page.payload_types import LiveBlock, LiveCase, LiveFile, LiveTensor
from headscope.page.save_page import page_of, page_payload, static_file, write_page
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.text.tokens import Tokens

PART_BYTES = 24 << 20
"""Largest part of a model: hosts refuse large files, and a broken download loses one part."""
FILE_LIMIT = 62_000_000
"""Largest page of one file, in bytes: browsers keep all of it in memory, as base64."""
RUNTIME = "ort.wasm.gz"
RUNTIME_SHA256 = "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2"
"""Hash of the unpacked runtime, onnxruntime-web 1.30.0."""
MAX_TOKENS = 256
TEXTS = {
    "next": "When Mary and John went to the store, John gave a drink to",
    "mask": "The doctor asked the {mask} a question.",
    "label": "The cat sat on the mat.",
    "vector": "The cat sat on the mat.",
}
"""Example of a page for which none is given, by the kind of output."""


@dataclass(frozen=True)
class Live:
    """A written live page."""

    path: Path
    bytes: int
    """Size of the page with its model."""
    storage: str
    export_error: Error
    """Largest difference between the graph and the model."""
    storage_error: Error
    """The same with the weights as stored."""
    tokenizer_refusal: str | None
    """Reason why the page takes no typed text; None if it does."""

    def __str__(self) -> str:
        typed = f"; no typed text: {self.tokenizer_refusal}" if self.tokenizer_refusal else ""
        return (
            f"{self.path}: {self.bytes / 1e6:.1f} MB, {self.storage}; differs from the model by "
            f"{self.export_error}, as stored by {self.storage_error}{typed}"
        )


def save_live(
    model: Model,
    path: str | os.PathLike[str],
    *,
    examples: Sequence[str | Trace | Sequence[str | Trace]] = (),
    titles: Sequence[str] | None = None,
    selection: str | Mapping[str, object] = "",
    story: Sequence[Step] = (),
    exercise: Sequence[Question] = (),
    evidence: Result | Iterable[Result] | None = None,
    report: str | None = None,
    effects: bool = False,
    neurons: bool | Sequence[int] | None = None,
    storage: Storage | None = None,
    max_tokens: int = MAX_TOKENS,
) -> Live:
    """Write a page that runs the model itself: type a text, ablate heads, see it change.

        hs.save_live(hs.load("minilm"), "site/", examples=["The cat sat on the mat."])

    The model runs in the browser; nothing is sent. Its graph is compared with the model at three
    lengths, with all heads and without one head of each layer.

    Args:
        model: a model of text or of images, in float32 on the CPU.
        path: a folder, for any static host; or a name that ends in `.html`, for one file of at most
            62 MB that opens from disk.
        examples: texts or traces of this model, shown at once; a tuple of two is compared. A model
            of images, or with an encoder and a decoder, runs these only.
        titles: names of the examples. This and the next seven are those of `save_page`.
        selection: where to open.
        story: captions, each with a selection.
        exercise: questions of “Your turn”.
        evidence: corpus results of the model.
        report: address of a report.
        effects: store the effect of each head for the examples.
        neurons: layers whose vectors are stored for the examples.
        storage: `"float16"` (default), `"int8"` (blocks of 32), `"float32"`, or `"gguf"`: the 4-bit
            blocks of the packaged `smollm2`, without loss (its default).
        max_tokens: longest text that the page takes.

    Raises:
        ModelError: the model cannot be exported, or its graph differs from it by more than 1e-4.
        InputError: one file would be too large.
        MissingExtra: onnx, onnxscript or onnxruntime is not installed.
    """
    target = Path(path)
    is_file = target.suffix.lower() in (".html", ".htm")
    source = gguf_of(model.name)
    chosen: Storage = storage or ("float16" if source is None else "gguf")
    UnknownName.check("storage", chosen, NAMES)
    if chosen == "gguf" and source is None:
        raise InputError(f"storage='gguf' is for packaged GGUF models, not for {model.name}.")
    check_exportable(model)
    limit = _longest(model, whole_number("max_tokens", max_tokens, 2))
    payload, traces = page_payload(
        _traces(model, examples), titles=titles, selection=selection, story=story,
        exercise=exercise, evidence=evidence, report=report, effects=effects, neurons=neurons,
        place="live",
    )  # fmt: skip
    graph = export(model)
    blocks = read_blocks(source) if chosen == "gguf" and source is not None else ()
    data = pack(graph.proto, chosen, blocks).SerializeToString()
    stored = graph.error if chosen == "float32" else compare(model, graph, data)
    refusal, tables = _tokenizer(model, graph)
    contents = {
        f"model-{i}.bin.gz": _gzip(data[start : start + PART_BYTES])
        for i, start in enumerate(range(0, len(data), PART_BYTES))
    }
    n_parts = len(contents)
    contents |= {RUNTIME: runtime(), "live.js": static_file("live.js").encode()}
    contents |= {"tokenizer.json.gz": tables}
    if is_file:
        ids = [*(f"live-model-{i}" for i in range(n_parts)), *ELEMENTS]
        contents = dict(zip(ids, contents.values(), strict=False))
    files = [_file(name, content, is_file) for name, content in contents.items()]
    buffers, n_before = Buffers(), len(payload.buffers)
    part = {  # a `LivePart`
        **_describe(model, graph, limit),
        "bytes": len(data),
        "memory": _memory(model, len(data), limit),
        "storage": NAMES[chosen],
        "files": files[:n_parts],
        "wasm": files[n_parts],
        "worker": files[n_parts + 1],
        "tokenizer": files[-1],
        "tokenizer_refusal": refusal,
        "texts": [trace.text.texts[0] if len(trace.text.texts) == 1 else None for trace in traces],
        "inputs": [_input(_given(model, trace), limit, buffers, n_before) for trace in traces],
        "proof": {
            "maps": graph.error.maps,
            "output": graph.error.output,
            "storage_maps": stored.maps,
            "storage_output": stored.output,
            "cases": _cases(model, graph, data, traces[0], limit, buffers, n_before),
        },
    }
    whole = Payload({**payload.header, "live": part}, [*payload.buffers, *buffers.packed])
    page = page_of(whole, traces[0], contents if is_file else {})
    size = len(page.encode("utf-8", "replace"))
    if is_file and size > FILE_LIMIT:
        raise InputError(
            f"The page of {model.name} would have {size / 1e6:.0f} MB; one file may have "
            f"{FILE_LIMIT / 1e6:.0f} MB. Write a folder: {str(target.with_suffix(''))!r}."
        )
    if is_file:
        write_page(target, page)
    else:
        _write_folder(target, contents, page)
        size += sum(map(len, contents.values()))
    return Live(target, size, NAMES[chosen], graph.error, stored, refusal)


ELEMENTS = ("live-wasm", "live-worker", "live-tokenizer")
"""Ids of the elements of one file, after those of the model."""


def _write_folder(folder: Path, contents: Mapping[str, bytes], page: str) -> None:
    """Write the files beside others that may be there, the page last."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WriteError.of(folder, error) from error
    for name, content in contents.items():
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(content)
    write_page(folder / "index.html", page)


def _traces(
    model: Model, examples: Sequence[str | Trace | Sequence[str | Trace]]
) -> list[list[Trace]]:
    """Return the examples, or one of our own, as traces of this model."""
    kind = check_exportable(model)
    if isinstance(examples, str | Trace):
        raise InputError(f"examples should be a list, not one {type(examples).__name__}.")
    if not examples and model.module.main_input_name != "input_ids":
        raise InputError(f"{model.name} reads images: pass examples=[model.trace(image), …].")
    if not examples:
        examples = [TEXTS[kind].format(mask=model.require_tokenizer().mask_token)]
    traces = []
    for example in examples:
        group = [example] if isinstance(example, str | Trace) else list(example)
        traces.append([model.trace(x) if isinstance(x, str) else x for x in group])
        for trace in traces[-1]:
            named = trace.provenance.get("model")
            if named != model.name:
                raise InputError(f"A trace of {named} cannot stand on a page of {model.name}.")
    return traces


def _describe(model: Model, graph: Graph, limit: int) -> dict[str, object]:
    """Return the fields of the page's header that describe the model."""
    names = label_names(model.module.config)
    return {
        "model": model.name,
        "kind": graph.kind,
        "labels": [names[number] for number in sorted(names)] if graph.kind == "label" else [],
        "exclusive": are_exclusive(model),
        "pooling": "mean",
        "blocks": [_block(model, graph, block) for block in graph.blocks],
        "has_types": graph.has_types,
        "max_tokens": limit,
        "mask_token": model.require_tokenizer().mask_token_id if graph.kind == "mask" else None,
    }


def _block(model: Model, graph: Graph, block: BlockName) -> LiveBlock:
    sites = graph.blocks[block]
    has_groups = any(site.n_groups not in (None, site.n_heads) for site in sites)
    return {
        "name": block,
        "prefix": output_name("", block),
        "layers": [site.layer for site in sites],
        "heads": sites[0].n_heads,
        "groups": [[group_of(head, site) for head in range(site.n_heads)] for site in sites]
        if has_groups
        else None,
        "scales": [site.scale for site in sites],
        "causal": block in model.wiring.causal_blocks,
        "vectors": [*graph.vectors[block]],
    }


def _tokenizer(model: Model, graph: Graph) -> tuple[str | None, bytes]:
    """Return why the page takes no typed text, if so, and its tables, or the names of tokens."""
    reads_text = model.module.main_input_name == "input_ids"
    try:
        if not reads_text:
            raise Refusal("the model reads images")
        if len(graph.blocks) > 1:
            raise Refusal(f"the model has several blocks ({', '.join(graph.blocks)})")
        tables = page_tokenizer(model.require_tokenizer())
        return None, _gzip(json.dumps(tables).encode())
    except Refusal as reason:
        names: list[str] = []
        if graph.kind in ("next", "mask"):
            n_ids = model.module.config.get_text_config(decoder=True).vocab_size
            names = [*Speller(model.require_tokenizer()).spell(range(n_ids))]
        return str(reason), _gzip(json.dumps({"names": names}).encode())


def _given(model: Model, trace: Trace) -> dict[str, Tensor] | None:
    """Return the graph's inputs of a trace; None if they are not known, or others."""
    stacks = trace.stack_tokens
    if trace.provenance.get("changed") or len(trace.text.texts) != 1:
        return None
    if trace.media:
        pixels = trace.origin and trace.origin.inputs.get("pixel_values")
        given = {"pixel_values": pixels} if isinstance(pixels, Tensor) else None
    else:
        given = {"input_ids": _ids(trace.text)}
    if given is not None and "decoder" in stacks:
        given["decoder_input_ids"] = _ids(stacks["decoder"])
    shapes = {name: value.shape[2:] for name, value in random_input(model, 2, seed=0).items()}
    is_known = given is not None and {n: v.shape[2:] for n, v in given.items()} == shapes
    return given if is_known else None


def _ids(tokens: Tokens) -> Tensor:
    return torch.tensor([[int(i) for i in tokens.ids]])


def _input(
    given: Mapping[str, Tensor] | None, limit: int, buffers: Buffers, n_before: int
) -> list[LiveTensor] | None:
    """Return the inputs as the page stores them; None if they are unknown or too long."""
    if given is None or any(given[name].shape[1] > limit for name in IDS if name in given):
        return None
    return [
        {
            "name": name,
            "dims": [*value.shape[1:]],
            "ids": value[0].tolist() if name in IDS else None,
            "data": None if name in IDS else n_before + buffers.add(value[0].numpy().astype("<f4")),
        }
        for name, value in given.items()
    ]


def _cases(
    model: Model, graph: Graph, data: bytes, trace: Trace, limit: int, buffers: Buffers, n: int
) -> list[LiveCase]:
    """Run the stored graph on the first example, with all heads and without one."""
    running = session(data)
    given = _given(model, trace) or random_input(model, 9, seed=0)
    given = {name: value[:, :limit] if name in IDS else value for name, value in given.items()}
    last = given[IDS[1] if IDS[1] in given else next(iter(given))].shape[1] - 1
    rows = [last] if graph.kind in ("next", "mask") else []
    cases: list[LiveCase] = []
    names = ["output", *graph.maps]
    for off in (None, (len(graph.sites) // 2, 0)):
        outputs = running.run(names, graph.inputs(given, [off], rows))
        cases.append(
            {
                "input": _input(given, limit, buffers, n) or [],
                "off": off,
                "rows": rows,
                "outputs": {
                    name: n + buffers.add(value[0].astype("<f4"))
                    for name, value in zip(names, outputs, strict=True)
                },
                "tolerance": REL_TOL,
            }
        )
    return cases


def _longest(model: Model, max_tokens: int) -> int:
    """Return the longest text: of the user, of the model, and of its shortest window.

    A window is found by value: first keys that no head of a layer sees from the last token.
    """
    longest = min(max_tokens, model.info.max_length or max_tokens)
    if len(model.info.blocks) > 1 or model.module.main_input_name != "input_ids":
        return longest
    unseen = [0]

    def read(attention: Attention) -> None:
        seen = (attention.weights[0, :, -1] != 0).any(0)
        unseen.append(int(seen.to(torch.int8).argmax()))

    model.read({"input_ids": ordinary_ids(model, longest, 0)[None]}, read)
    return longest - max(unseen)


def _memory(model: Model, n_bytes: int, n_tokens: int) -> int:
    """Estimate what the tab needs: copies of the file, weights as float32, maps of a batch."""
    info = model.info
    n_heads = sum(site.n_heads for site in model.wiring.sites)
    maps = 4 * n_heads * n_tokens**2
    return 4 * n_bytes + 4 * info.n_parameters + 6 * maps + (192 << 20)


def runtime() -> bytes:
    """Return the packed runtime; raise IntegrityError if it is not the pinned one."""
    try:
        packed = resources.files("headscope.page").joinpath("static", RUNTIME).read_bytes()
    except FileNotFoundError:
        raise IntegrityError(
            f"{RUNTIME} is missing from this installation of headscope. Install it again, or run "
            "`make web` in a clone."
        ) from None
    actual = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    if actual != RUNTIME_SHA256:
        raise IntegrityError(
            f"{RUNTIME} is not the pinned runtime (SHA-256 {RUNTIME_SHA256[:16]}…, found "
            f"{actual[:16]}…). Install headscope again."
        )
    return packed


def _file(name: str, content: bytes, is_element: bool) -> LiveFile:
    return {
        "name": name,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "source": "element" if is_element else "file",
    }


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)
