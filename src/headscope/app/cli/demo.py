"""`headscope demo`: a report and two explorer pages of the packaged models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.app.cli import options
from headscope.app.cli.analyze import n_workers
from headscope.app.cli.answer import Answer, say, settings
from headscope.errors import OtherRun

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.result import Result


@dataclass(frozen=True, slots=True)
class _Job:
    """What the demo does with one model."""

    alias: str
    page: str
    """What the explorer page shows, in words."""
    text: dict[str, Any]
    """What the model reads on that page: arguments of `Model.trace`."""


JOBS = (
    _Job(
        "minilm",
        "a sentence pair",
        {"text": "The cat sat on the mat.", "pair": "The cat lay on the rug."},
    ),
    _Job(
        "smollm2",
        "a paragraph",
        {
            "text": "The doctor asked the nurse a question about the patient. She looked at the "
            "chart, thought for a while, and then said that the fever had gone down. The doctor "
            "thanked her and went to the next room, where",
            "generate": 12,
        },
    ),
)
FEW = 20
"""Relations of fewer words are left out; the usual limit is too high for the bundled corpus."""


def demo(
    out: options.Out = Path("demo"),
    workers: options.Workers = None,
    resume: options.Resume = True,
) -> Answer:
    """Measure both packaged models over the bundled corpus; write a report and two pages."""
    import headscope as hs

    out.mkdir(parents=True, exist_ok=True)
    running = {"workers": n_workers(workers), "resume": resume, "progress": settings.progress}
    results, pages, lines = [], {}, []
    for number, job in enumerate(JOBS, 1):
        say(f"[{number}/{len(JOBS)}] {job.alias}: loading")
        model = hs.load(job.alias)
        page = out / f"{job.alias}.html"
        model.trace(**job.text).save_page(page)
        pages[model.info.name] = page.name
        results += _measure(model, job.alias, out, running)
        lines.append(f"  explorer  {page} ({model.info.name}, {job.page})")
    say("Writing the report")
    report = hs.report(results, out / "report.html", pages=pages)
    data = {"report": str(report), "pages": [str(out / f"{job.alias}.html") for job in JOBS]}
    text = [
        "Open these in any browser; none of them needs a network:",
        f"  report    {report} (what every head of both models does)",
        *lines,
        f"The numbers are in {out} too: headscope.open reads every result.nc.",
    ]
    return Answer(data, "\n".join(text))


def _measure(model: Model, alias: str, out: Path, running: dict[str, Any]) -> list[Result]:
    """The results of every analysis that the model and the bundled corpus allow."""
    import headscope as hs

    sentences, documents = hs.demo_corpus("sentence"), hs.demo_corpus("document")

    def run(name: str, measure: Callable[..., Result], *given: Any) -> Result:
        say(f"    {alias}: {name}")
        folder = out / alias / name
        try:
            return measure(model, *given, out=folder, **running)
        except OtherRun:
            say(f"    {folder} was measured by another version; measuring it again")
            return measure(model, *given, out=folder, **{**running, "resume": False})

    results = [
        run("metrics", hs.analyze, sentences, ["all", "js"]),
        run("dependencies", hs.probe_dependencies, sentences, FEW),
        run("coreference", hs.probe_coreference, documents),
    ]
    if model.info.objective is not None:
        results.append(run("importance", hs.importance, hs.cut_segments(model, documents, 128)))
    return results
