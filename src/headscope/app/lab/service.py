"""Lab service: trace texts, store the latest traces of each reader, and answer the page."""

from __future__ import annotations

import base64
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headscope.app.lab.requests import Input, Limits, TraceRequest
from headscope.errors import HeadscopeError
from headscope.model.model import Model
from headscope.page.evidence import make_evidence
from headscope.page.payload import Contents, Evidence, make_payload
from headscope.page.replies import LiveReplies, Reply
from headscope.page.save_page import make_app
from headscope.results.result import Result
from headscope.results.trace import Trace


class TraceExpired(HeadscopeError):
    """The requested trace is not in the store."""


@dataclass(frozen=True)
class StoredTraces:
    """Traces of one request, with their reader and size in bytes."""

    reader: str
    replies: LiveReplies
    size: int


class TraceStore:
    """Traces by random id; each is found only by its reader. Several threads may use it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._stored: OrderedDict[str, StoredTraces] = OrderedDict()

    def add(self, reader: str, traces: list[Trace]) -> str:
        """Store traces for a reader, and remove the oldest beyond the limits."""
        name = secrets.token_urlsafe(12)
        size = sum(block.data.nbytes for trace in traces for block in trace.blocks.values())
        with self._lock:
            self._stored[name] = StoredTraces(reader, LiveReplies(traces), size)
            ids = [key for key, stored in self._stored.items() if stored.reader == reader]
            for key in ids[: -self._limits.kept]:
                del self._stored[key]
            while len(self._stored) > 1 and self._size() > self._limits.bytes_kept:
                self._stored.popitem(last=False)
        return name

    def find(self, reader: str, name: object) -> LiveReplies:
        """Return a reader's traces by id; raise TraceExpired if they are not stored."""
        with self._lock:
            stored = self._stored.get(name) if isinstance(name, str) else None
            if stored is None or stored.reader != reader:
                raise TraceExpired("The lab does not keep this text any more; show it once more.")
            self._stored.move_to_end(str(name))
            return stored.replies

    @property
    def size(self) -> int:
        """Bytes of all stored traces."""
        with self._lock:
            return self._size()

    def _size(self) -> int:
        return sum(stored.size for stored in self._stored.values())

    def __len__(self) -> int:
        return len(self._stored)


EXAMPLES: tuple[tuple[str, str, tuple[Mapping[str, object], ...]], ...] = (
    (
        "Equal words of two sentences",
        "pairs",
        ({"text": "The cat sat on the mat.", "pair": "The cat lay on the rug."},),
    ),
    (
        "Which noun does the pronoun read?",
        "generates",
        ({"text": "The doctor asked the nurse a question. She"},
         {"text": "The doctor asked the nurse a question. He"}),
    ),
    (
        "A name that came before",
        "generates",
        ({"text": "When Mary and John went to the store, John gave a drink to"},),
    ),
    (
        "The model goes on writing",
        "generates",
        ({"text": "The capital of France is", "generate": 8},),
    ),
    ("A translation", "targets", ({"text": "The cat sat on the mat.", "generate": 12},)),
)  # fmt: skip
"""Title, required ability of the model, and inputs of each example."""


@dataclass(eq=False)
class LabService:
    """Models by their name in the page, stored traces, and results of corpus runs by model."""

    models: Mapping[str, Model]
    text: str = ""
    limits: Limits = field(default_factory=Limits)
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)
    pair: str = ""
    other: str = ""
    store: TraceStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = TraceStore(self.limits)
        self._evidence: dict[str, Evidence] = {}

    def page(self) -> str:
        """Return the page with the models, the examples and the first text."""
        models = [_described(name, model) for name, model in self.models.items()]
        examples: list[dict[str, object]] = [
            {"title": title, "model": model["name"], "inputs": list(inputs)}
            for model in models
            for title, ability, inputs in EXAMPLES
            if model[ability] and not (ability == "generates" and model["targets"])
        ]
        first = [{"text": text} for text in (self.text, self.other) if text]
        if first and self.pair:
            first[0]["pair"] = self.pair
        limits = {"tokens": self.limits.tokens, "seconds": self.limits.seconds}
        start = {"place": "lab", "models": models, "examples": examples, "first": first}
        return make_app({**start, "limits": limits})

    def trace(self, reader: str, request: TraceRequest) -> dict[str, object]:
        """Trace the inputs; return the explorer's payload and the id of the stored traces."""
        model = self.models[request.model]
        traces = [_trace(model, item) for item in request.inputs]
        evidence = self._evidence_for(request.model, traces[0])
        contents = Contents(neurons=False, evidence=evidence, place="lab")
        payload = make_payload(traces, contents)
        name = self.store.add(reader, traces)
        return {"id": name, "header": payload.header, "buffers": packed(payload.buffers)}

    def ask(
        self, reader: str, kind: str, request: Mapping[str, object]
    ) -> Mapping[str, object] | bytes:
        """Answer a request about stored traces; a row of attention is bare bytes."""
        reply: Reply = getattr(self.store.find(reader, request.get("id")), kind)(request)
        answer, buffers = reply
        if kind == "row":
            return buffers[0]
        return {**answer, "buffers": packed(buffers)} if kind != "score" else answer

    def measure(
        self,
        reader: str,
        kind: str,
        request: Mapping[str, object],
        advance: Callable[[int, int], None],
    ) -> Mapping[str, object]:
        """Measure `effects` or `wires`; `advance` gets the number of steps done and in all."""
        replies = self.store.find(reader, request.get("id"))
        answer, buffers = getattr(replies, kind)(request, advance)
        return {**answer, "buffers": packed(buffers)}

    def _evidence_for(self, name: str, trace: Trace) -> Evidence | None:
        if name not in self.results:
            return None
        if name not in self._evidence:
            self._evidence[name] = make_evidence(self.results[name], trace)
        return self._evidence[name]


def packed(buffers: Sequence[bytes]) -> list[str]:
    """Encode buffers in base64."""
    return [base64.b64encode(buffer).decode("ascii") for buffer in buffers]


def _described(name: str, model: Model) -> dict[str, str | bool]:
    info = model.info
    is_pair = "decoder" in info.blocks
    return {
        "name": name,
        "title": info.name,
        "pairs": not info.is_causal and not is_pair,
        "targets": is_pair,
        "generates": info.objective == "causal" or is_pair,
        "predicts": info.objective is not None,
    }


def _trace(model: Model, item: Input) -> Trace:
    return model.trace(
        item.text, item.pair, target=item.target, generate=item.generate, truncate=False
    )
