"""`headscope demo`: one page with the stories of both packaged models, and a report.

The page that the demo ends on: each model's story in a frame, the report one click away.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, print_status, settings
from headscope.atomic import atomic_path
from headscope.errors import RunMismatch
from headscope.run.engines.processes import n_cores, sigint_held

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.page.payload import Step
    from headscope.results.result import Result

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --line: #e4e1d8; --quiet: #56606b;
  --link: #0b6bb0; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #1b1f24; --line: #2c3238; --quiet: #a3abb6; --link: #5db2f2; }
}
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; font: 13px/1.4 Inter, Helvetica, Arial, sans-serif;
  background: var(--ground); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; align-items: baseline;
  padding: .45rem 1rem; border-bottom: 1px solid var(--line); }
nav b { margin-right: auto; color: var(--quiet); font-weight: normal; }
a { color: var(--link); }
@media (max-width: 900px) {
  nav { padding: .4rem .8rem; }
  nav b { display: none; }
}
iframe { flex: 1; width: 100%; min-height: 0; border: 0; }
"""


def make_demo_page(stories: Mapping[str, str], report: str) -> str:
    """HTML with the first story open. Links change the frame; no script runs in the page itself.

    Args:
        stories: pages beside this one, and what a link to each says.
        report: the file of the report.
    """
    listed = [(html.escape(page), html.escape(title)) for page, title in stories.items()]
    links = "\n".join(f'<a href="{page}" target="story">{title}</a>' for page, title in listed)
    first, title = listed[0]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headscope: what attention heads do</title>
<style>{STYLE}</style>
</head>
<body>
<nav aria-label="Pages">
<b>What each head reads, whether it always does, and whether it matters</b>
{links}
<a href="{html.escape(report)}">The report</a>
</nav>
<iframe name="story" title="{title}" src="{first}"></iframe>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class _DemoModel:
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
    _DemoModel(
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
    _DemoModel(
        "smollm2",
        "SmolLM2: the next word",
        text="When Mary and John went to the store, John gave a drink to",
        pair=None,
        story=(
            ("Every head by what it does with this text. Most rest.", {"color": "role"}),
            ("This head reads the word before.", {"layer": 16, "head": 0, "word": 4}),
            (
                "Does it always? What this head does over a corpus.",
                {"layer": 16, "head": 0, "word": 4, "tab": "evidence"},
            ),
            (
                "The model says “Mary”, and here its last word reads “Mary”. Is that why?",
                {"layer": 24, "head": 4, "word": 13, "against": "John"},
            ),
            (
                "No: all heads switched off in turn, this one does most for “Mary” over “John”, "
                "and it reads “John”. Without the other, “Mary” even gains.",
                {
                    "layer": 23,
                    "head": 3,
                    "word": 13,
                    "against": "John",
                    "tab": "effect",
                    "color": "effect",
                },
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
) -> CommandResult:
    """Measure both packaged models over the bundled corpus; write one page and a report."""
    import headscope as hs

    out.mkdir(parents=True, exist_ok=True)
    print_status("Measuring two models over the bundled corpus: about a minute")
    traces, results = {}, {}
    with _in_two_processes(out, workers, resume=resume) as wait_for_other_half:
        for job in reversed(JOBS):
            with _under_way(f"{job.alias}: loading"):
                model = hs.load(job.alias)
            runs = _Runs(model, out / job.alias, workers, resume)
            measured = runs.measure()
            with _under_way(f"{job.alias}: what each head does to its text"):
                traces[job.alias] = model.trace(job.text, job.pair, effects=True)
            with _under_way(f"{job.alias}: measuring"):
                wait_for_other_half()
            results[job.alias] = [*measured, *runs.importance()]
    pages = {}
    for job in JOBS:
        page = out / f"{job.alias}.html"
        with _under_way(f"{job.alias}: its page"):
            hs.save_page(
                traces[job.alias],
                page,
                selection={"named": "text"},  # the tour speaks of what heads do with this text
                story=job.story,
                evidence=results[job.alias],
                report="report.html",
            )
        pages[results[job.alias][0].model] = page.name
    with _under_way("the report"):
        everything = [result for job in JOBS for result in results[job.alias]]
        report = hs.report(everything, out / "report.html", pages=pages)
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
    return CommandResult(data, text)


def _under_way(name: str) -> AbstractContextManager[None]:
    """On a terminal, a line with a clock that is gone when the block ends."""
    from headscope.run.progress import phase

    return phase(name, settings.progress)


@contextmanager
def _in_two_processes(
    out: Path, workers: int | None, *, resume: bool
) -> Iterator[Callable[[], None]]:
    """Within the block, a second process measures half of what there is.

    Both write run folders, and a run that is complete is opened, not measured again. So this
    process asks for every run as if it were alone, and nothing is lost if the other one fails.

    Yields:
        A function that waits for the second process. There is none on one core, where the number
        of workers was chosen, or where nothing is to be opened.
    """
    if workers is not None or not resume or n_cores() == 1:
        yield lambda: None
        return
    process = get_context("spawn").Process(target=_measure_half, args=(out,), daemon=True)
    with sigint_held():
        process.start()
    try:
        yield process.join
    finally:
        process.kill()


def _measure_half(out: Path) -> None:
    """The runs of all models but the last, and the last one's importance."""
    import headscope as hs

    with suppress(Exception):  # the other process meets it too, and says so
        for job in JOBS:
            runs = _Runs(hs.load(job.alias), out / job.alias, 1, resume=True)
            if job is not JOBS[-1]:
                runs.measure()
            runs.importance()


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of one model over the bundled corpus, each in a folder of its own."""

    model: Model
    out: Path
    workers: int | None
    resume: bool

    def measure(self) -> list[Result]:
        """Every metric, and heads as classifiers."""
        import headscope as hs

        sentences, documents = hs.demo_corpus("sentence"), hs.demo_corpus("document")
        return [
            self._run("metrics", hs.analyze, sentences, ["all", "js"]),
            self._run("dependencies", hs.probe_dependencies, sentences, FEW),
            self._run("coreference", hs.probe_coreference, documents),
        ]

    def importance(self) -> list[Result]:
        """What the loss depends on, if the model has one."""
        import headscope as hs

        if self.model.info.objective is None:
            return []
        documents = hs.demo_corpus("document")
        segments = hs.cut_segments(self.model, documents, 128).sample(DRAWN, 0)
        return [self._run("importance", hs.importance, segments)]

    def _run(self, name: str, measure: Callable[..., Result], *given: object) -> Result:
        folder = self.out / name
        running = {"out": folder, "workers": self.workers, "progress": False}
        with _under_way(f"{self.out.name}: {name}"):
            try:
                return measure(self.model, *given, **running, resume=self.resume)
            except RunMismatch:
                print_status(f"{folder} was measured by another version; measuring it again")
                return measure(self.model, *given, **running, resume=False)
