"""What the lab does with a wish: trace texts, and answer what the page asks about them.

The traces a lab keeps: each reader's own, the latest of them, and no more than fit.
"""

from __future__ import annotations

import base64
import secrets
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
    """The lab does not keep a trace any more, or never had it."""


@dataclass(frozen=True)
class Kept:
    """What one request traced, and for whom."""

    reader: str
    replies: LiveReplies
    size: int


class TraceStore:
    """Traces by their names, which nobody can guess; found only by the reader they are of."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def add(self, reader: str, traces: list[Trace]) -> str:
        """Keep traces for a reader; the oldest go."""
        name = secrets.token_urlsafe(12)
        size = sum(block.data.nbytes for trace in traces for block in trace.blocks.values())
        self._kept[name] = Kept(reader, LiveReplies(traces), size)
        of_reader = [key for key, kept in self._kept.items() if kept.reader == reader]
        for key in of_reader[: -self._limits.kept]:
            del self._kept[key]
        while len(self._kept) > 1 and self.size > self._limits.bytes_kept:
            self._kept.popitem(last=False)
        return name

    def find(self, reader: str, name: object) -> LiveReplies:
        """A reader's traces by name.

        Raises:
            Forgotten: they are not kept.
        """
        kept = self._kept.get(name) if isinstance(name, str) else None
        if kept is None or kept.reader != reader:
            raise TraceExpired("The lab does not keep this text any more; show it once more.")
        self._kept.move_to_end(str(name))
        return kept.replies

    @property
    def size(self) -> int:
        """Bytes of all that is kept."""
        return sum(kept.size for kept in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)


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
"""Titles, what a model must be able to do for them, and inputs."""


@dataclass(eq=False)
class LabService:
    """The models, the traces made last, and what corpus runs say of the models' heads.

    Attributes:
        models: by the name a page calls them.
        text: what the page opens with.
        limits: what may be asked for.
        results: of corpus runs, by model.
        pair: a second text that the model reads together with the first.
        other: another text, to compare the first with.
    """

    models: Mapping[str, Model]
    text: str = ""
    limits: Limits = field(default_factory=Limits)
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)
    pair: str = ""
    other: str = ""
    shelf: TraceStore = field(init=False)

    def __post_init__(self) -> None:
        self.shelf = TraceStore(self.limits)
        self._evidence: dict[str, Evidence] = {}

    def page(self) -> str:
        """The page, with the models, the examples and the first text in it."""
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

    def trace(self, reader: str, wish: TraceRequest) -> dict[str, object]:
        """Texts as the explorer reads them, and the name by which to ask about them."""
        model = self.models[wish.model]
        traces = [_trace(model, one) for one in wish.inputs]
        evidence = self._evidence_for(wish.model, traces[0])
        contents = Contents(neurons=False, evidence=evidence, place="lab")
        payload = make_payload(traces, contents)
        name = self.shelf.add(reader, traces)
        return {"id": name, "header": payload.header, "buffers": packed(payload.buffers)}

    def ask(
        self, reader: str, kind: str, request: Mapping[str, object]
    ) -> Mapping[str, object] | bytes:
        """The answer to a question about kept traces; a row of attention is bare bytes.

        Raises:
            HeadscopeError: the traces are not kept, or do not have what is named.
        """
        reply: Reply = getattr(self.shelf.find(reader, request.get("id")), kind)(request)
        answer, buffers = reply
        if kind == "row":
            return buffers[0]
        return {**answer, "buffers": packed(buffers)} if kind != "score" else answer

    def measure_effects(
        self, reader: str, request: Mapping[str, object], advance: Callable[[int, int], None]
    ) -> Mapping[str, object]:
        """What each head does to the prediction; `advance` is told how many heads are done."""
        answer, buffers = self.shelf.find(reader, request.get("id")).effects(request, advance)
        return {**answer, "buffers": packed(buffers)}

    def _evidence_for(self, name: str, trace: Trace) -> Evidence | None:
        if name not in self.results:
            return None
        if name not in self._evidence:
            self._evidence[name] = make_evidence(self.results[name], trace)
        return self._evidence[name]


def packed(buffers: Sequence[bytes]) -> list[str]:
    """Buffers as text."""
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


def _trace(model: Model, one: Input) -> Trace:
    return model.trace(one.text, one.pair, target=one.target, generate=one.generate, truncate=False)
