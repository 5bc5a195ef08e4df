"""`headscope demo`: one page with the stories of both packaged models, and a report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.app.cli import options
from headscope.app.cli.answer import Answer, say, settings
from headscope.app.cli.demo_page import make_demo_page
from headscope.atomic import atomic_path
from headscope.errors import OtherRun

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.page.payload import Step
    from headscope.results.result import Result


@dataclass(frozen=True, slots=True)
class _Job:
    """What the demo does with one model."""

    alias: str
    title: str
    """What a link to its story says."""
    text: str
    """What the model reads on that page."""
    pair: str | None
    """A second text beside it."""
    story: tuple[Step, ...]
    """The tour of the page: captions and selections."""


JOBS = (
    _Job(
        "minilm",
        "MiniLM: two sentences",
        text="The cat sat on the mat.",
        pair="The cat lay on the rug.",
        story=(
            ("Every head by what it does with these two sentences. Many rest.", {"color": "role"}),
            ("This head reads the word before.", {"layer": 0, "head": 2, "word": 4}),
            (
                "This one finds the same word in the other sentence.",
                {"layer": 2, "head": 9, "word": 2},
            ),
            (
                "Why that word: query times key, neuron by neuron.",
                {"layer": 2, "head": 9, "word": 2, "tab": "neurons"},
            ),
            (
                "Does it matter? How far the text's vector turns without each head.",
                {"layer": 2, "head": 9, "word": 2, "tab": "effect", "color": "effect"},
            ),
        ),
    ),
    _Job(
        "smollm2",
        "SmolLM2: the next word",
        text="The doctor asked the nurse a question. She",
        pair=None,
        story=(
            ("Every head by what it does with this text. Most rest.", {"color": "role"}),
            ("This head reads the word before.", {"layer": 16, "head": 0, "word": 4}),
            (
                "From the pronoun, this one reads back to the people before it.",
                {"layer": 9, "head": 3, "word": 8},
            ),
            (
                "Does it always? What the reader of the word before does over a corpus.",
                {"layer": 16, "head": 0, "word": 4, "tab": "evidence"},
            ),
            (
                "Does it matter? What the next word gains or loses without each head.",
                {"layer": 9, "head": 3, "word": 8, "tab": "effect", "color": "effect"},
            ),
        ),
    ),
)
FEW = 20
"""Relations of fewer words are left out; the usual limit is too high for the bundled corpus."""
DRAWN = 8
"""Stretches of text for importance, whose backward passes take longest."""


def demo(
    out: options.Out = Path("demo"),
    workers: options.Workers = None,
    resume: options.Resume = True,
) -> Answer:
    """Measure both packaged models over the bundled corpus; write one page and a report."""
    import headscope as hs

    out.mkdir(parents=True, exist_ok=True)
    say("Measuring two models over the bundled corpus: a minute or two")
    results, pages = [], {}
    for job in JOBS:
        with _under_way(f"{job.alias}: loading"):
            model = hs.load(job.alias)
        measured = _measure(model, out / job.alias, workers, resume=resume)
        page = out / f"{job.alias}.html"
        with _under_way(f"{job.alias}: its page"):
            trace = model.trace(job.text, job.pair, effects=True)
            hs.save_page(
                trace,
                page,
                selection={"named": "text"},  # the tour speaks of what heads do with this text
                story=job.story,
                evidence=measured,
                report="report.html",
            )
        pages[model.info.name] = page.name
        results += measured
    with _under_way("the report"):
        report = hs.report(results, out / "report.html", pages=pages)
    index = out / "index.html"
    stories = {f"{job.alias}.html": job.title for job in JOBS}
    with atomic_path(index) as path:
        path.write_text(make_demo_page(stories, report.name), encoding="utf-8")
    data = {
        "page": str(index),
        "report": str(report),
        "stories": [str(out / name) for name in stories],
    }
    text = (
        f"Open {index} in a browser: what the heads of two models do. It needs no network.\n"
        f"One click from there, or {report}: every head, measured.\n"
        f"The numbers are in {out} too: headscope.open reads every result.nc."
    )
    return Answer(data, text)


def _under_way(name: str) -> AbstractContextManager[None]:
    """On a terminal, a line with a clock that is gone when the block ends."""
    from headscope.run.progress import phase

    return phase(name, settings.progress)


def _measure(model: Model, out: Path, workers: int | None, *, resume: bool) -> list[Result]:
    """The results of every analysis that the model and the bundled corpus allow."""
    import headscope as hs

    sentences, documents = hs.demo_corpus("sentence"), hs.demo_corpus("document")

    def run(name: str, measure: Callable[..., Result], *given: object) -> Result:
        folder = out / name
        running = {"out": folder, "workers": workers, "progress": False}
        with _under_way(f"{out.name}: {name}"):
            try:
                return measure(model, *given, **running, resume=resume)
            except OtherRun:
                say(f"{folder} was measured by another version; measuring it again")
                return measure(model, *given, **running, resume=False)

    results = [
        run("metrics", hs.analyze, sentences, ["all", "js"]),
        run("dependencies", hs.probe_dependencies, sentences, FEW),
        run("coreference", hs.probe_coreference, documents),
    ]
    if model.info.objective is not None:
        segments = hs.cut_segments(model, documents, 128).draw(DRAWN, 0)
        results.append(run("importance", hs.importance, segments))
    return results
