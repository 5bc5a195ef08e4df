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

from headscope.arguments import whole_number
from headscope.atomic import atomic_path
from headscope.attention import Attention
from headscope.errors import InputError, IntegrityError, UnknownName, WriteError
from headscope.live.graph import (
    Error,
    Graph,
    check_exportable,
    compare,
    export,
    ordinary_ids,
    session,
)
from headscope.live.storage import NAMES, Storage, gguf_of, pack, read_blocks
from headscope.live.tokenizer import Refusal, page_tokenizer
from headscope.model.edits import group_of
from headscope.model.logits import are_exclusive, label_names
from headscope.model.model import Model
from headscope.model.tap.recording import REL_TOL
from headscope.page.codec import Buffers, Payload
from headscope.page.payload import Question, Step
from headscope.page.payload_types import LiveCase, LiveFile, LiveInput
from headscope.page.save_page import page_of, page_payload, static_file, write_page
from headscope.results.result import Result
from headscope.results.trace import Trace

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
        model: an encoder or a causal decoder of text, in float32 on the CPU.
        path: a folder, for any static host; or a name that ends in `.html`, for one file of at most
            62 MB that opens from disk.
        examples: texts or traces of this model, shown at once; a tuple of two is compared.
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
    refusal, tables = None, b""
    try:
        tables = _gzip(json.dumps(page_tokenizer(model.require_tokenizer())).encode())
    except Refusal as reason:
        refusal = str(reason)
    contents = {
        f"model-{i}.bin.gz": _gzip(data[start : start + PART_BYTES])
        for i, start in enumerate(range(0, len(data), PART_BYTES))
    }
    n_parts = len(contents)
    contents |= {RUNTIME: runtime(), "live.js": static_file("live.js").encode()}
    contents |= {"tokenizer.json.gz": tables} if tables else {}
    if is_file:
        ids = [*(f"live-model-{i}" for i in range(n_parts)), *ELEMENTS]
        contents = dict(zip(ids, contents.values(), strict=False))
    files = [_file(name, content, is_file) for name, content in contents.items()]
    buffers = Buffers()
    part = {  # a `LivePart`
        **_describe(model, graph, limit),
        "bytes": len(data),
        "memory": _memory(model, len(data), limit),
        "storage": NAMES[chosen],
        "files": files[:n_parts],
        "wasm": files[n_parts],
        "worker": files[n_parts + 1],
        "tokenizer": files[-1] if tables else None,
        "tokenizer_refusal": refusal,
        "inputs": [_input(trace, limit) for trace in traces],
        "proof": {
            "maps": graph.error.maps,
            "output": graph.error.output,
            "storage_maps": stored.maps,
            "storage_output": stored.output,
            "cases": _cases(graph, data, traces[0], limit, buffers, len(payload.buffers)),
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
    mask = model.require_tokenizer().mask_token
    traces = []
    for example in examples or [TEXTS[kind].format(mask=mask)]:
        group = [example] if isinstance(example, str | Trace) else list(example)
        traces.append([model.trace(x) if isinstance(x, str) else x for x in group])
        for trace in traces[-1]:
            named = trace.provenance.get("model")
            if named != model.name:
                raise InputError(f"A trace of {named} cannot stand on a page of {model.name}.")
    return traces


def _describe(model: Model, graph: Graph, limit: int) -> dict[str, object]:
    """Return the fields of the page's header that describe the model."""
    sites, names = graph.sites, label_names(model.module.config)
    has_groups = any(site.n_groups not in (None, site.n_heads) for site in sites)
    return {
        "model": model.name,
        "kind": graph.kind,
        "labels": [names[number] for number in sorted(names)] if graph.kind == "label" else [],
        "exclusive": are_exclusive(model),
        "pooling": "mean",
        "layers": [site.layer for site in sites],
        "heads": sites[0].n_heads,
        "groups": [[group_of(head, site) for head in range(site.n_heads)] for site in sites]
        if has_groups
        else None,
        "scales": [site.scale for site in sites],
        "causal": model.info.is_causal,
        "has_types": graph.has_types,
        "vectors": [*graph.vectors],
        "max_tokens": limit,
        "mask_token": model.require_tokenizer().mask_token_id if graph.kind == "mask" else None,
    }


def _input(trace: Trace, limit: int) -> LiveInput | None:
    """Return the input of a trace that the graph can run again."""
    tokens = trace.text
    if len(tokens.texts) != 1 or len(tokens) > limit or trace.provenance.get("changed"):
        return None
    return {"text": tokens.texts[0], "ids": [int(i) for i in tokens.ids]}


def _cases(
    graph: Graph, data: bytes, trace: Trace, limit: int, buffers: Buffers, n_before: int
) -> list[LiveCase]:
    """Run the stored graph on the first example, with all heads and without one."""
    running = session(data)
    ids = [int(i) for i in trace.text.ids][:limit]
    rows = [len(ids) - 1] if graph.kind in ("next", "mask") else []
    cases: list[LiveCase] = []
    for off in (None, (len(graph.sites) // 2, 0)):
        inputs = graph.inputs(torch.tensor([ids]), [off], rows)
        output, attention = running.run(["output", "attention"], inputs)
        cases.append(
            {
                "ids": ids,
                "off": off,
                "rows": rows,
                "attention": n_before + buffers.add(attention[0].astype("<f4")),
                "output": n_before + buffers.add(output[0].astype("<f4")),
                "tolerance": REL_TOL,
            }
        )
    return cases


def _longest(model: Model, max_tokens: int) -> int:
    """Return the longest text: of the user, of the model, and of its shortest window.

    A window is found by value: first keys that no head of a layer sees from the last token.
    """
    longest = min(max_tokens, model.info.max_length or max_tokens)
    unseen = [0]

    def read(attention: Attention) -> None:
        seen = (attention.weights[0, :, -1] != 0).any(0)
        unseen.append(int(seen.to(torch.int8).argmax()))

    check_exportable(model)
    model.read({"input_ids": ordinary_ids(model, longest, 0)[None]}, read)
    return longest - max(unseen)


def _memory(model: Model, n_bytes: int, n_tokens: int) -> int:
    """Estimate what the tab needs: copies of the file, weights as float32, maps of a batch."""
    info = model.info
    maps = 4 * info.n_layers * info.n_heads * n_tokens**2
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
