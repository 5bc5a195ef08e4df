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
    TOLERANCE,
    Error,
    Graph,
    compare,
    export,
    groups_of,
    labels_of,
    session,
)
from headscope.live.storage import NAMES, Storage, pack
from headscope.live.tokenizer import Refusal, page_tokenizer
from headscope.model.model import Model
from headscope.page.codec import Buffers, Payload
from headscope.page.payload import Question, Step
from headscope.page.payload_types import LiveCase, LiveFile, LiveInput, LivePart
from headscope.page.save_page import page_of, page_payload, static_file, write_page
from headscope.results.result import Result
from headscope.results.trace import Trace

PART_BYTES = 24 << 20
"""Largest part of a model: hosts refuse large files, and a broken download loses one part."""
FILE_LIMIT = 62_000_000
"""Largest page of one file, in bytes: browsers keep all of it in memory, as base64."""
RUNTIME = "ort.wasm.gz"
RUNTIME_SHA256 = "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2"
"""Hash of the runtime, onnxruntime-web 1.30.0, before it is packed."""
MAX_TOKENS = 256


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

    Nothing is sent anywhere: the model runs in the browser. It is exported as it is, compared with
    the model at three lengths and without one head of each layer, and refused above 1e-4.

    Args:
        model: an encoder or a causal decoder of text, in float32 on the CPU.
        path: a folder, for any static host; or a name that ends in `.html`, for one file of at most
            62 MB that opens from disk.
        examples: texts, or traces of this model, shown before the model is loaded; a tuple of two
            is compared.
        titles: see `save_page`, as for `selection`, `story`, `exercise`, `evidence`, `report`,
            `effects` and `neurons`.
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
        ModelError: the model cannot be exported, or its graph differs from it.
        InputError: one file would be too large.
        MissingExtra: onnx, onnxscript or onnxruntime is not installed.
    """
    chosen: Storage = storage or "float16"
    if chosen not in NAMES:
        raise UnknownName.of("storage", storage, NAMES)
    whole_number("max_tokens", max_tokens, 2)
    target = Path(path)
    is_file = target.suffix.lower() in (".html", ".htm")
    traces = _traces(model, examples)
    graph = export(model)
    data = pack(graph.proto, chosen).SerializeToString()
    stored = graph.error if chosen == "float32" else compare(model, graph, data)
    limit = _longest(model, max_tokens)
    payload, listed = page_payload(
        traces, titles=titles, selection=selection, story=story, exercise=exercise,
        evidence=evidence, report=report, effects=effects, neurons=neurons, place="live",
    )  # fmt: skip
    refusal, tables = None, b""
    try:
        tables = _packed(json.dumps(page_tokenizer(model.require_tokenizer()), ensure_ascii=False))
    except Refusal as reason:
        refusal = f"This page takes no typed text: {reason}."
    files = {
        f"live-model-{i}" if is_file else f"model-{i}.bin": data[start : start + PART_BYTES]
        for i, start in enumerate(range(0, len(data), PART_BYTES))
    }
    parts = [_file(name, content, is_file) for name, content in files.items()]
    kit = {"wasm": runtime(), "worker": static_file("live.js").encode(), "tokenizer": tables}
    names = {"wasm": RUNTIME, "worker": "live.js", "tokenizer": "tokenizer.json.gz"}
    extra = {
        key: _file(f"live-{key}" if is_file else names[key], content, is_file)
        for key, content in kit.items()
        if content
    }
    for key, each in extra.items():
        files[each["name"]] = kit[key]
    buffers = Buffers()
    labels, exclusive = labels_of(model)
    sites = graph.sites
    part: LivePart = {
        "model": model.name,
        "kind": graph.kind,
        "labels": labels,
        "exclusive": exclusive,
        "pooling": "mean",
        "layers": [site.layer for site in sites],
        "heads": sites[0].n_heads,
        "groups": groups_of(sites),
        "scales": [site.scale for site in sites],
        "causal": model.info.is_causal,
        "has_types": graph.has_types,
        "vectors": [*graph.vectors],
        "max_tokens": limit,
        "bytes": len(data),
        "memory": _memory(model, len(data), limit),
        "storage": NAMES[chosen],
        "files": parts,
        "wasm": extra["wasm"],
        "worker": extra["worker"],
        "tokenizer": extra.get("tokenizer"),
        "tokenizer_refusal": refusal,
        "mask_token": model.require_tokenizer().mask_token_id if graph.kind == "mask" else None,
        "inputs": [_input(trace, limit) for trace in listed],
        "proof": {
            "maps": graph.error.maps,
            "output": graph.error.output,
            "storage_maps": stored.maps,
            "storage_output": stored.output,
            "cases": _cases(graph, data, listed[0], limit, buffers, len(payload.buffers)),
        },
    }
    whole = Payload({**payload.header, "live": part}, [*payload.buffers, *buffers.packed])
    page = page_of(whole, listed[0], files if is_file else {})
    size = len(page.encode("utf-8", "replace"))
    if is_file:
        if size > FILE_LIMIT:
            raise InputError(
                f"The page of {model.name} would have {size / 1e6:.0f} MB; one file may have "
                f"{FILE_LIMIT / 1e6:.0f} MB. Write a folder instead: "
                f"{str(target.with_suffix(''))!r}{'' if chosen == 'int8' else ', or storage=int8'}."
            )
        write_page(target, page)
    else:
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError.of(target, error) from error
        for name, content in files.items():
            with atomic_path(target / name) as temporary:
                temporary.write_bytes(content)
        write_page(target / "index.html", page)
        size += sum(map(len, files.values()))
    return Live(target, size, NAMES[chosen], graph.error, stored, refusal)


def _traces(
    model: Model, examples: Sequence[str | Trace | Sequence[str | Trace]]
) -> list[list[Trace]]:
    """Return the examples as traces of this model."""
    if isinstance(examples, str | Trace) or not examples:
        raise InputError(
            f"examples should be a list of texts or traces, at least one, not {examples!r:.60}."
        )
    traces = []
    for example in examples:
        group = [example] if isinstance(example, str | Trace) else list(example)
        traces.append([model.trace(x) if isinstance(x, str) else x for x in group])
        for trace in traces[-1]:
            named = trace.provenance.get("model")
            if named != model.name:
                raise InputError(f"A trace of {named} cannot stand on a page of {model.name}.")
    return traces


def _input(trace: Trace, limit: int) -> LiveInput | None:
    """Return the input of a trace that the graph can run again."""
    tokens = trace.text
    if len(tokens.texts) != 1 or len(tokens) > limit or trace.provenance.get("changed"):
        return None
    return {"text": tokens.texts[0], "ids": [int(i) for i in tokens.ids]}


def _cases(
    graph: Graph, data: bytes, trace: Trace, limit: int, buffers: Buffers, n_before: int
) -> list[LiveCase]:
    """Run the stored graph on the first example, plain and without one head."""
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
                "tolerance": TOLERANCE,
            }
        )
    return cases


def _longest(model: Model, max_tokens: int) -> int:
    """Return the longest text: of the user, of the model, and of its shortest window.

    A window is found by value: keys that no head of a layer attends to from the last token.
    """
    longest = min(max_tokens, model.info.max_length or max_tokens)
    unseen: list[int] = []

    def read(attention: Attention) -> None:
        seen = (attention.weights[0, :, -1] != 0).any(0)
        unseen.append(int(seen.to(torch.int8).argmax()))

    n_ids = min(model.module.config.get_text_config().vocab_size, 1000)
    ids = torch.arange(longest)[None] % (n_ids - n_ids // 2) + n_ids // 2
    model.read({"input_ids": ids}, read)
    return longest - max(unseen, default=0)


def _memory(model: Model, n_bytes: int, n_tokens: int) -> int:
    """Estimate what the tab needs: the file twice, weights as float32, maps of a small batch."""
    info = model.info
    maps = 4 * info.n_layers * info.n_heads * n_tokens**2
    return 2 * n_bytes + 4 * info.n_parameters + 6 * maps + (64 << 20)


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


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)
