"""Offline pages: one HTML file with the front end, the payload, a policy and a still picture.

The content security policy names the one script by its hash; nothing else runs or loads.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

import numpy as np
from PIL import Image

from headscope.arguments import whole_number
from headscope.atomic import atomic_path
from headscope.errors import InputError
from headscope.page.codec import Payload
from headscope.page.evidence import make_evidence
from headscope.page.payload import Contents, Question, Step, make_payload
from headscope.page.payload_types import PageHost
from headscope.page.selection import make_step
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.results.wires import Wires


def preview_tags(title: str, sentence: str, picture: bytes) -> str:
    """Elements of the head for previews of links to a page: a sentence and a PNG picture."""
    named = {
        "og:type": "website",
        "og:title": title,
        "og:description": sentence,
        "og:image": f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}",
    }
    return "".join(
        f'\n<meta property="{name}" content="{html.escape(content)}">'
        for name, content in named.items()
    )


def html_page(
    title: str,
    style: str,
    body: str,
    script: str,
    data: str,
    *,
    connect: str = "",
    preview: str = "",
    wasm: bool = False,
) -> str:
    """A page with a policy that allows this style and this script, and no network.

    `body` is markup, with everything that is not ours escaped. The script, a module, runs when all
    is read; it stands before the data (see `data_script`) to say when a file was cut. `connect`
    names the addresses that it may ask, in the policy's words: `'self'`. `wasm` allows compiled
    code and workers, both made of the page's own content.
    """
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'" + (" 'wasm-unsafe-eval'" if wasm else ""),
            *(["worker-src blob:"] if wasm else []),
            f"style-src '{_hash(style)}'",
            "img-src data: blob:",
            *([f"connect-src {connect}"] if connect else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="headscope">
<title>{html.escape(title)}</title>{preview}
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
<script type="module">{script}</script>
{data}
</body>
</html>
"""


def data_script(name: str, text: str) -> str:
    """JSON in an element of its own; nothing in it can end the element or begin a comment."""
    inert = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{name}">{inert}</script>'


def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Write a page; the file appears when it is complete. Lone surrogates become "?"."""
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace", newline="\n")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


STYLE = """
html, body { height: 100%; margin: 0; }
#headscope { height: 100vh; }
#headscope > p { font: 15px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 3rem auto; }
""".strip()
APP_STYLE = (
    STYLE
    + """
#headscope { display: flex; flex-direction: column; }
.stage { flex: 1; min-height: 0; }
.stage > div { height: 100%; }
"""
)
WAITING = (
    "Opening the trace … If this text stays, the file is incomplete (save it once more), "
    "or JavaScript is switched off."
)
LONGEST_TITLE = 40
"""Characters of a text in the title of a page."""
PageExamples = Trace | Sequence[Trace | Sequence[Trace]] | Mapping[int, Trace]
"""A trace; two to compare; several examples, each a trace or two; or one text by training step."""


@cache
def static_file(name: str) -> str:
    """The text of a file of the built front end."""
    return resources.files("headscope.page").joinpath("static", name).read_text("utf-8")


def make_page(
    payload: Payload,
    *,
    title: str = "headscope",
    script: str = "page.js",
    style: str = STYLE,
    waiting: str = WAITING,
    preview: str = "",
    elements: Mapping[str, bytes] | None = None,
) -> str:
    """The HTML of a page that shows `payload`, the explorer's or (by its script) another's.

    Tokens and titles are data in it, never markup: the header's `<` are written as JSON
    escapes, and the front end sets text only. `elements` are files of a live page, by id; an empty
    mapping is for a live page with its files beside it.
    """
    header = json.dumps(payload.header, ensure_ascii=False, separators=(",", ":"))
    buffers = "\n".join(
        f'<script type="text/plain" data-buffer="{index}">'
        f"{base64.b64encode(buffer).decode('ascii')}</script>"
        for index, buffer in enumerate(payload.buffers)
    )
    files = "\n".join(
        f'<script type="text/plain" id="{name}">'
        f"{base64.b64encode(content).decode('ascii')}</script>"
        for name, content in (elements or {}).items()
    )
    data = f"{data_script('headscope-header', header)}\n{buffers}\n{files}"
    return html_page(
        title, style, _stage(waiting), static_file(script), data, preview=preview,
        connect="'self'" if elements == {} else "", wasm=elements is not None,
    )  # fmt: skip


def make_app(start: Mapping[str, object]) -> str:
    """The HTML of the lab, which asks the server it came from for traces.

    `start` has `models`, `examples`, `text` and `limits`, as `web/src/entry/app.ts` reads them.
    """
    data = data_script("headscope-start", json.dumps(start, ensure_ascii=False))
    stage, script = _stage(WAITING), static_file("app.js")
    return html_page("headscope lab", APP_STYLE, stage, script, data, connect="'self'")


def _stage(waiting: str) -> str:
    return f'<main id="headscope"><p>{waiting}</p></main>'


def save_page(
    traces: PageExamples,
    path: str | os.PathLike[str],
    *,
    titles: Sequence[str] | None = None,
    selection: str | Mapping[str, object] = "",
    story: Sequence[Step] = (),
    exercise: Sequence[Question] = (),
    evidence: Result | Iterable[Result] | None = None,
    report: str | None = None,
    wires: Wires | Mapping[str, object] | None = None,
    effects: bool = False,
    neurons: bool | Sequence[int] | None = None,
) -> None:
    """Write one HTML file that shows what every head does, and opens without a network.

        hs.save_page([one, (two, three)], "page.html", story=[
            ("An attention sink: the first token.", {"layer": 3, "head": 0}),
            ("Two readings of one sentence.", {"example": 1, "layer": 9, "head": 3, "word": 8}),
        ])

    Args:
        traces: a trace; two, which are compared; or several examples, each of them a trace or a
            tuple of two that are compared. A dict of traces of one text by training step gives a
            page with a scrubber over the steps (`HeadTracker.traces`).
        path: the file to write; it appears whole or not at all.
        titles: what to call each trace, in the order given; its text, or what was changed, by
            default.
        selection: where to open: `layer`, `head`, `word`, `tab` and so on, as a step of a story
            has it, or a URL fragment. By default the head that shows most, and of a comparison
            the one that differs most.
        story: captions, each with the selection it is about.
        exercise: questions of “Your turn”, each with the selection it opens and its answer:
            `"effect"` (the head with the largest effect), a role such as `"induction"`, or heads
            as `[(layer, head), …]`. Roles and effects are hidden until the answer is shown.
        evidence: what a corpus run measured of the model, for names and cards of its heads.
        report: the address of a report on the model, relative to the page, which the cards of its
            heads link to.
        wires: wires between the model's heads for the tab *Wires*: what `headscope.wires`
            returns, or `wires.to_page(curve=wires.curve())`.
        effects: store what each head does to the prediction (see `Model.trace`), for traces that
            do not have it yet.
        neurons: whether queries, keys and values go along, or the layers whose do; by default
            those of the opening head and of the story.
    """
    payload, listed = page_payload(
        traces, titles=titles, selection=selection, story=story, exercise=exercise,
        evidence=evidence, report=report, wires=wires, effects=effects, neurons=neurons,
    )  # fmt: skip
    write_page(path, page_of(payload, listed[0]))


def page_payload(
    traces: PageExamples,
    *,
    titles: Sequence[str] | None,
    selection: str | Mapping[str, object],
    story: Sequence[Step],
    exercise: Sequence[Question],
    evidence: Result | Iterable[Result] | None,
    report: str | None,
    effects: bool,
    neurons: bool | Sequence[int] | None,
    wires: Wires | Mapping[str, object] | None = None,
    place: PageHost = "file",
) -> tuple[Payload, list[Trace]]:
    """Return the payload of a page and its traces in order. See `save_page`."""
    steps: list[int] = []
    examples: list[tuple[int, ...]]
    if isinstance(traces, Mapping):
        steps = _checked_steps(traces)
        listed, examples = [traces[n] for n in steps], [(i,) for i in range(len(steps))]
        titles = [f"step {n:,}" for n in steps] if titles is None else titles
        if not isinstance(selection, str):
            selection = {"example": len(steps) - 1, **selection}
        elif "example=" not in selection:
            selection = "&".join(filter(None, [selection, f"example={len(steps) - 1}"]))
    else:
        listed, examples = _listed(traces)
    if effects:
        listed = [trace if trace.effects is not None else trace.with_effects() for trace in listed]
    shown = [listed[index] for index in examples[0]]
    contents = Contents(
        titles=titles,
        examples=examples,
        steps=steps,
        selection=make_step(shown, selection),
        story=story,
        exercise=exercise,
        neurons=neurons,
        evidence=None if evidence is None else make_evidence(evidence, listed[0]),
        report=report,
        wires=wires,
        place=place,
    )
    return make_payload(listed, contents), listed


def page_of(payload: Payload, trace: Trace, elements: Mapping[str, bytes] | None = None) -> str:
    """The HTML of an explorer page, with a title of a few words and a picture for links to it.

    `elements` are the files of a live page, see `make_page`.
    """
    text = str(payload.header["traces"][0]["title"])
    short = text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1].rstrip() + "…"
    n_layers, n_heads = trace.main.sizes["layer"], trace.n_heads
    said = f"What {n_layers} × {n_heads} attention heads of {payload.header['traces'][0]['model']} "
    title = f"{short} · headscope"
    preview = preview_tags(title, said + f"do with “{text[:200]}”", sheet_of(trace))
    if elements is None:
        return make_page(payload, title=title, preview=preview)
    return make_page(
        payload, title=title, preview=preview, script="live_page.js", style=APP_STYLE,
        elements=elements,
    )  # fmt: skip


def _checked_steps(traces: Mapping[int, Trace]) -> list[int]:
    """The steps in order; raise InputError unless all are of one text and one architecture."""
    if not traces:
        raise InputError("There is no trace to show: give at least one.")
    for step in traces:
        whole_number("step", step, 0)
    steps = sorted(traces)
    first = need_trace(traces[steps[0]])
    for step in steps:
        trace = need_trace(traces[step])
        same = list(trace.tokens) == list(first.tokens) and [
            (name, block.sizes) for name, block in trace.blocks.items()
        ] == [(name, block.sizes) for name, block in first.blocks.items()]
        if not same:
            raise InputError(
                f"Steps {steps[0]} and {step} are of different texts or models. Give traces of "
                "one text at several steps of one training."
            )
    return steps


def need_trace(given: object) -> Trace:
    """Return the trace; raise InputError for anything else."""
    if not isinstance(given, Trace):
        raise InputError(
            f"A Trace is needed, not {type(given).__name__}. Make one with model.trace(text), or "
            "of attention of your own with headscope.Trace.from_arrays(attention, tokens)."
        )
    return given


def _listed(traces: PageExamples) -> tuple[list[Trace], list[tuple[int, ...]]]:
    """All traces in order, and which of them stand together."""
    if isinstance(traces, Trace):
        return [traces], [(0,)]
    if not isinstance(traces, list | tuple):
        raise InputError(f"A Trace is needed, or several, not {type(traces).__name__}.")
    is_pair = len(traces) == 2 and all(isinstance(trace, Trace) for trace in traces)
    groups = [traces] if is_pair else [[t] if isinstance(t, Trace) else list(t) for t in traces]
    listed: list[Trace] = []
    examples: list[tuple[int, ...]] = []
    for group in groups:
        examples.append(tuple(range(len(listed), len(listed) + len(group))))
        listed += [need_trace(trace) for trace in group]
    if not listed:
        raise InputError("There is no trace to show: give at least one.")
    return listed, examples


CELL = 30
"""Pixels of a head's thumbnail."""
GAP = 3
PAPER = np.array([252, 252, 250], dtype=np.float32)
INK = np.array([12, 44, 77], dtype=np.float32)


def sheet_of(trace: Trace) -> bytes:
    """A PNG picture with one heat map per head of the main block, layers down, heads across."""
    n_layers, n_heads = trace.main.sizes["layer"], trace.n_heads
    pitch = CELL + GAP
    sheet = np.full((n_layers * pitch, n_heads * pitch, 3), 255, dtype=np.uint8)
    for layer in range(n_layers):
        for head in range(n_heads):
            largest = np.nan_to_num(trace.main.head_weights(layer, head))
            for axis in (0, 1):  # the largest weight of each pixel
                edges = np.arange(CELL) * largest.shape[axis] // CELL
                largest = np.maximum.reduceat(largest, edges, axis=axis)
            share = np.sqrt(np.clip(largest, 0, 1))[..., None]
            top, left = layer * pitch, head * pitch
            colors = np.rint(PAPER + (INK - PAPER) * share)
            sheet[top : top + CELL, left : left + CELL] = colors.astype(np.uint8)
    return png(sheet)


def picture_of(trace: Trace, *, css_class: str = "") -> str:
    """The picture as an HTML figure."""
    n_layers, n_heads = trace.main.sizes["layer"], trace.n_heads
    pitch = CELL + GAP
    data = base64.b64encode(sheet_of(trace)).decode("ascii")
    model = html.escape(str(trace.provenance.get("model", "")))
    text = f"Attention of {model}: {n_layers} layers down, {n_heads} heads across"
    return (
        f'<figure class="{css_class}" style="margin:0"><img alt="{text}" '
        f'width="{n_heads * pitch}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}. Run the cell again for the explorer.</figcaption></figure>"
    )


def png(pixels: np.ndarray) -> bytes:
    """`row column rgb` bytes as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()
