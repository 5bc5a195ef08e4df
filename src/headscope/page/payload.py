"""Payload of a page: one JSON header (`payload_types`) and gzipped buffers, named by number.

A page carries buffers as base64, a notebook as bytes. Pixels of images go along as bytes that the
front end paints itself, so a page loads no image.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.heads.roles import ROLES
from headscope.page.codec import Buffers, Payload
from headscope.page.payload_blocks import block_part
from headscope.page.payload_types import (
    EditedPart,
    EffectsPart,
    EvidencePart,
    ExercisePart,
    Header,
    PageHost,
    PiecePart,
    PredictionsPart,
    RoleId,
    StoryStep,
    TokensPart,
    TracePart,
    WiresPart,
)
from headscope.page.selection import (
    deciding_look,
    make_step,
    opened_at,
    read_fragment,
    reading_look,
    shown_layers,
)
from headscope.results.effect_data import HeadEffects
from headscope.results.media import Media
from headscope.results.predictions import WHOLE_TEXT, Predictions
from headscope.results.trace import Trace
from headscope.results.wires import Wires
from headscope.text.tokens import Frame, MediaToken, Patch, Tokens

LONGEST_SIDE = 640
"""Pixels of an image's longer side, at most: no screen shows it larger."""
MAX_PEAKS = 1200
"""Columns of a drawn wave."""


def add_media(part: EditedPart, media: Media, buffers: Buffers) -> None:
    """Add `images` and `sound` of a trace, where it has them."""
    for image in media.images:
        step = -(-max(image.shape[:2]) // LONGEST_SIDE)  # every n-th pixel of a large one
        shown = image[::step, ::step]
        height, width = shown.shape[:2]
        part.setdefault("images", []).append(
            {"width": width, "height": height, "pixels": buffers.add(shown)}
        )
    if media.sound is not None and media.sound.size:
        count = min(MAX_PEAKS, len(media.sound))
        edges = np.linspace(0, len(media.sound), count + 1).astype(np.int64)[:-1]
        loudest = np.maximum.reduceat(np.abs(media.sound), edges)  # of each stretch
        peaks = np.rint(255 * loudest / max(float(loudest.max()), 1e-9)).astype(np.uint8)
        part["sound"] = {"seconds": media.seconds, "count": count, "peaks": buffers.add(peaks)}


MAX_POSITIONS = 64
"""Maximum positions of a language model whose predictions are stored, the last ones."""
MAX_ANSWERS = 10


def predictions_part(predictions: Predictions | None) -> PredictionsPart | None:
    """The likeliest answers by position; None where there is none, or none has a probability."""
    if predictions is None or not len(predictions):
        return None
    positions = predictions.positions[-MAX_POSITIONS:]
    if math.isnan(predictions.top(positions[-1])[0][1]):  # a score, not a choice
        return None
    return {
        "kind": "label" if predictions.kind == "token_label" else predictions.kind,
        "positions": [
            {
                "position": None if position == WHOLE_TEXT else position,
                "top": [
                    {"text": text, "probability": float(f"{probability:.5g}")}
                    for text, probability in predictions.top(position)[:MAX_ANSWERS]
                ],
            }
            for position in positions
        ],
    }


def effects_part(
    effects: HeadEffects | None, other: HeadEffects | None, buffers: Buffers
) -> EffectsPart | None:
    """Return the effect of each head on the prediction, or on the text's vector.

    `other` has the effects of the trace it is compared with, for their cosine similarity.
    """
    if effects is None:
        return None
    data = effects.data
    if effects.kind == "prediction":
        after = data["after"].transpose("layer", "head", "candidate").values
        return {
            "kind": "prediction",
            "position": effects.position,
            "candidates": [str(text) for text in data["candidate"].values],
            "before": [round(float(value), 5) for value in data["before"].values],
            "after": buffers.add_numbers(after, 2),
        }
    similarity = None if other is None else effects.cosine_similarity(other)
    return {
        "kind": "cosine_distance",
        "pooling": str(data.attrs["pooling"]),
        "cosine_distance": _table(effects.values),
        "cosine_similarity": None
        if similarity is None
        else {"before": round(similarity[0], 5), "after": _table(similarity[1])},
    }


def _table(array: xr.DataArray) -> list[list[float | None]]:
    rows = np.asarray(array.transpose("layer", "head").values, dtype=np.float64)
    return [[float(f"{v:.5g}") if math.isfinite(v) else None for v in row] for row in rows]


FORMAT = "headscope-explorer"
VERSION = 3
LONGEST_COMMAND = 160
"""Characters of a text that is repeated in the command for a live page."""
AS_IT_IS = "as it is"
Step = tuple[str, Mapping[str, object] | str]
"""A caption, and the selection it is about."""


Question = tuple[str, Mapping[str, object] | str, str | Sequence[tuple[int, int]]]
"""A question, the selection it opens, and its answer: `effect`, a role, or heads."""


@dataclass(frozen=True)
class Evidence:
    """Cards of a model's heads over a corpus, and the roles of the heads of each block."""

    part: EvidencePart
    roles: Mapping[str, xr.Dataset] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Contents of a page besides its traces, and where it opens. See `save_page`.

    `examples` are the numbers of traces that stand together, as A and B; all of them by default.
    `steps` are the training steps of the examples, which are one text. `place` is where the page
    will run, which decides what it may ask.
    """

    titles: Sequence[str] | None = None
    examples: Sequence[Sequence[int]] | None = None
    steps: Sequence[int] = ()
    selection: str = ""
    story: Sequence[Step] = ()
    exercise: Sequence[Question] = ()
    neurons: bool | Sequence[int] | None = None
    evidence: Evidence | None = None
    report: str | None = None
    wires: Wires | Mapping[str, object] | None = None
    place: PageHost = "file"


def make_payload(traces: Sequence[Trace], contents: Contents | None = None) -> Payload:
    """The payload of one trace, of two to compare, or of several examples."""
    contents = contents or Contents()
    titles = contents.titles
    if titles is not None and len(titles) != len(traces):
        raise InputError(f"{len(titles)} titles for {len(traces)} traces: give one for each.")
    everything = [range(len(traces))]
    examples = [tuple(e) for e in (everything if contents.examples is None else contents.examples)]
    for example in examples:
        if not 1 <= len(example) <= 2:
            raise InputError(f"The explorer shows one trace or compares two; {len(example)} given.")
    if not examples:
        raise InputError("There is no trace to show: give at least one.")
    if titles is None:
        titles = _titles(traces, examples)
    selection = opened_at(_shown(traces, examples, contents.selection), contents.selection)
    story: list[StoryStep] = []
    for step in contents.story:
        match step:
            case (str() as caption, (Mapping() | str()) as chosen):
                shown = _shown(traces, examples, chosen)
                story.append({"caption": caption, "selection": make_step(shown, chosen)})
            case _:
                raise InputError(
                    f"A step of a story should be a caption and a selection, such as "
                    f'("It rests.", {{"layer": 0, "head": 3}}), not {step!r:.80}.'
                )
    exercise = [_question(traces, examples, question) for question in contents.exercise]
    fragments = [selection, *(step["selection"] for step in (*story, *exercise))]
    layers = _stored_layers(traces, contents.neurons, fragments)
    buffers = Buffers()
    partners = {pair[side]: pair[1 - side] for pair in examples if len(pair) == 2
                for side in (0, 1)}  # fmt: skip
    parts: list[TracePart] = []
    for index, trace in enumerate(traces):
        other = traces[partners[index]] if index in partners else None
        part = trace_part(trace, layers, buffers, evidence=contents.evidence, other=other)
        parts.append({"title": titles[index], **part})
    header: Header = {
        "format": FORMAT,
        "version": VERSION,
        "place": contents.place,
        "selection": selection,
        "story": story,
        "examples": [
            {"title": titles[numbers[0]], "traces": list(numbers)} for numbers in examples
        ],
        "command": live_command(*(traces[index] for index in examples[0])),
        "evidence": None if contents.evidence is None else contents.evidence.part,
        "traces": parts,
    }
    if contents.report:
        header["report"] = contents.report
    if contents.steps:
        header["steps"] = list(contents.steps)
    opening = _shown(traces, examples, selection)[0]
    looks = reading_look(opening), deciding_look(opening)
    if looks[0] and looks[1]:
        reader, decider = (f"L{look.layer}H{look.head}" for look in looks if look)
        header["tour"] = {"reader": reader, "decider": decider}
    if exercise:
        header["exercise"] = exercise
    if contents.wires is not None:
        header["wires"] = wires_part(contents.wires)
    return Payload(dict(header), buffers.packed)


def wires_part(wires: Wires | Mapping[str, object]) -> WiresPart:
    """Wires of a page; raise InputError for anything else."""
    part = wires.to_page() if isinstance(wires, Wires) else wires
    if not isinstance(part, Mapping) or not WiresPart.__required_keys__ <= part.keys():
        raise InputError(
            f"wires should be what headscope.wires returns, or its to_page(curve=…), not "
            f"{type(wires).__name__}."
        )
    return cast("WiresPart", {name: part[name] for name in WiresPart.__annotations__})


def _question(
    traces: Sequence[Trace], examples: Sequence[Sequence[int]], question: object
) -> ExercisePart:
    """A question of an exercise; raise InputError if the page cannot answer it."""
    match question:
        case (str() as text, (Mapping() | str()) as chosen, answer):
            shown = _shown(traces, examples, chosen)
        case _:
            raise InputError(
                f"A question of an exercise should be a text, a selection and an answer, such as "
                f'("Find the induction head.", {{}}, "induction"), not {question!r:.80}.'
            )
    part: ExercisePart = {
        "question": text,
        "selection": make_step(shown, chosen),
        "answer": "heads",
        "heads": [],
    }
    if answer == "effect":
        if shown[0].effects is None:
            raise InputError(f"“{text}” asks for effects: save the page with effects=True.")
        part["answer"] = "effect"
    elif isinstance(answer, str):
        UnknownName.check("answer", answer, ("effect", *ROLES))
        part["answer"] = cast("RoleId", answer)
    elif isinstance(answer, Sequence) and answer:
        for head in answer:
            layer, number = head
            step = make_step(shown, {"layer": layer, "head": number})
            part["heads"].append(read_fragment(step)["head"])
    else:
        raise InputError(
            f"The answer to “{text}” should be 'effect', a role, or heads such as [(17, 4)], "
            f"not {answer!r:.80}."
        )
    return part


def trace_part(
    trace: Trace,
    layers: frozenset[int],
    buffers: Buffers,
    *,
    evidence: Evidence | None = None,
    other: Trace | None = None,
) -> EditedPart:
    """One trace: tokens, attention, predictions and effects; queries, keys and values of `layers`.

    Roles of the `evidence`, a corpus run, go along. `other` is the trace that
    it is compared with.
    """
    roles = {} if evidence is None else evidence.roles
    effects = None if other is None else other.effects
    part: EditedPart = {
        "model": str(trace.provenance.get("model", "")),
        "changed": trace.provenance.get("changed"),
        "stacks": {name: _tokens_part(tokens) for name, tokens in trace.stack_tokens.items()},
        "blocks": [
            block_part(block, trace.stack_tokens, layers, roles.get(name), buffers)
            for name, block in trace.blocks.items()
        ],
        "predictions": predictions_part(trace.predictions),
        "effects": effects_part(trace.effects, effects, buffers),
    }
    if "over" in trace.provenance:
        part["over"] = trace.provenance["over"]
    add_media(part, trace.media, buffers)
    return part


def live_command(trace: Trace, other: Trace | None = None) -> str:
    """Return the shell command for a page that can run the model; empty for bare attention."""
    if trace.provenance.get("source") == "arrays":
        return ""
    words = ["headscope", "serve", "--model", str(trace.provenance.get("load") or "FOLDER")]
    texts = trace.text.texts
    if texts and 0 < sum(map(len, texts)) <= LONGEST_COMMAND and not trace.media:
        words += ["--text", texts[0]]
        words += ["--pair", texts[1]] if len(texts) > 1 else []
        others = other.text.texts if other else ()
        if len(others) == 1 and others != texts and len(others[0]) <= LONGEST_COMMAND:
            words += ["--compare", others[0]]
    return shlex.join(words)


def _shown(
    traces: Sequence[Trace], examples: Sequence[Sequence[int]], step: Mapping[str, object] | str
) -> list[Trace]:
    """The traces that a selection is about: of its example, the first by default."""
    parts = read_fragment(step) if isinstance(step, str) else step
    number = str(parts.get("example", 0))
    if not number.isdecimal() or int(number) >= len(examples):
        raise InputError(f"There is no example {number}: they go from 0 to {len(examples) - 1}.")
    return [traces[index] for index in examples[int(number)]]


def _stored_layers(
    traces: Sequence[Trace], neurons: bool | Sequence[int] | None, fragments: Sequence[str]
) -> frozenset[int]:
    if neurons is False:
        return frozenset()
    known = {
        int(layer)
        for trace in traces
        for block in trace.blocks.values()
        for layer in block.data["layer"].values
    }
    if neurons is True:
        return frozenset(known)
    wanted = frozenset(int(layer) for layer in neurons or ())
    if wanted - known:
        raise InputError(
            f"neurons={sorted(wanted)} names layers that the trace does not have: "
            f"{sorted(wanted - known)}. It has {min(known)} to {max(known)}."
        )
    return wanted.union(*(shown_layers(fragment) for fragment in fragments))


def _titles(traces: Sequence[Trace], examples: Sequence[Sequence[int]]) -> list[str]:
    """The text of each trace; of two of one text, what was changed."""
    titles = [
        " ⏐ ".join(text.strip() for text in _texts(trace)) or str(trace.provenance.get("model"))
        for trace in traces
    ]
    for numbers in examples:
        if len(numbers) == 2 and titles[numbers[0]] == titles[numbers[1]]:
            changed = [traces[index].provenance.get("changed") for index in numbers]
            if any(changed):
                for index, change in zip(numbers, changed, strict=True):
                    titles[index] = str(change or AS_IT_IS)
    return titles


def _texts(trace: Trace) -> Sequence[str]:
    """Texts of a trace; bare tokens without spaces, which may be words, are spaced out."""
    is_bare = trace.provenance.get("source") == "arrays"
    if is_bare and not any(token.startswith((" ", "Ġ", "▁")) for token in trace.tokens):
        return [" ".join(trace.tokens)]
    return trace.text.texts


def _tokens_part(tokens: Tokens) -> TokensPart:
    part: TokensPart = {
        "tokens": list(tokens.tokens),
        "special": [int(flag) for flag in tokens.special],
        "segments": list(tokens.segments),
        "generated": [int(flag) for flag in tokens.generated],
        "words": list(tokens.words),
        "word_texts": list(tokens.word_texts),
    }
    if any(tokens.media_tokens):
        part["pieces"] = [_piece_part(piece) for piece in tokens.media_tokens]
    return part


def _piece_part(piece: MediaToken | None) -> PiecePart:
    if isinstance(piece, Patch):
        edges = [piece.top, piece.left, piece.bottom, piece.right]
        return ["patch", piece.image, piece.row, piece.column, *edges]
    return ["frame", piece.start, piece.end] if isinstance(piece, Frame) else None
