"""Measure both packaged models over the bundled corpus; write pages, a report and a live page.

python examples/demo.py -o demo [--workers N] [--no-resume] [--quiet]
"""

from __future__ import annotations

import argparse
import html
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import headscope as hs
from headscope.atomic import atomic_path
from headscope.errors import RunMismatch
from headscope.page.payload import Step
from headscope.run.engines.processes import n_cores, sigint_held
from headscope.run.progress import phase

PAGE_STYLE = """
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
h1 { margin: 0 auto 0 0; color: var(--quiet); font: inherit; }
a { color: var(--link); }
@media (max-width: 900px) {
  nav { padding: .4rem .8rem; }
  h1 { position: absolute; width: 1px; height: 1px; overflow: hidden; }
}
main { flex: 1; min-height: 0; }
iframe { width: 100%; height: 100%; border: 0; }
"""


def make_demo_page(stories: Mapping[str, str], report: str) -> str:
    """Return HTML with the first story open in a frame, and links without scripts.

    Args:
        stories: file and title of each story.
        report: file of the report.
    """
    escaped = [(html.escape(page), html.escape(title)) for page, title in stories.items()]
    links = "\n".join(f'<a href="{page}" target="story">{title}</a>' for page, title in escaped)
    first, title = escaped[0]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headscope: what attention heads do</title>
<style>{PAGE_STYLE}</style>
</head>
<body>
<nav aria-label="Pages">
<h1>Attention of each head in a text, over a corpus, and its effect</h1>
{links}
<a href="{html.escape(report)}">The report</a>
</nav>
<main><iframe name="story" title="{title}" src="{first}"></iframe></main>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class _DemoModel:
    """Text and tour of one model."""

    alias: str
    title: str
    text: str
    pair: str | None
    story: tuple[Step, ...]
    """Captions and selections of the page's tour."""


JOBS = (
    _DemoModel(
        "minilm",
        "MiniLM: two sentences",
        text="The cat sat on the mat.",
        pair="The cat lay on the rug.",
        story=(
            ("Roles of all heads in these two sentences. Many are sinks.", {"color": "role"}),
            ("This head attends to the previous token.", {"layer": 0, "head": 2, "word": 4}),
            (
                "This one attends to the same word in the other sentence.",
                {"layer": 2, "head": 9, "word": 2},
            ),
            (
                "Why that word: query times key, neuron by neuron.",
                {"layer": 2, "head": 9, "word": 2, "tab": "neurons"},
            ),
            (
                "Does it matter? The cosine distance of the text's vector without each head.",
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
            ("Roles of all heads in this text. Most are sinks.", {"color": "role"}),
            ("This head attends to the previous token.", {"layer": 16, "head": 0, "word": 4}),
            (
                "Does it always? The attention of this head over a corpus.",
                {"layer": 16, "head": 0, "word": 4, "tab": "evidence"},
            ),
            (
                "The model predicts “Mary”, and here its last token reads “Mary”. Is that why?",
                {"layer": 24, "head": 4, "word": 13, "against": "John"},
            ),
            (
                "No: with each head ablated in turn, this one does most for “Mary” over “John”, "
                "and it reads “John”. That holds over twelve sentences. What the other head does "
                "changes its sign from one sentence to the next.",
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
MIN_RELATION_WORDS = 20
"""Minimum words of a relation: the usual limit is too high for the bundled corpus."""
LIVE = "live/index.html"
"""Page with MiniLM inside: one file, so that it opens from disk."""
LIVE_TEXTS = ("The cat sat on the mat because it was tired.", "The bank of the river was muddy.")
EXERCISE = "smollm2.html#ex=1"
CONTRAST = "When Mary and John went to the store, Mary gave a drink to"
"""The prediction is explained by the wires that carry its difference from this text."""
N_WIRES = 30
N_SEGMENTS = 8
"""Segments for importance, whose backward passes take longest."""


def demo(out: Path, workers: int | None = None, *, resume: bool = True, quiet: bool = False) -> str:
    """Write all pages to a folder and return where to look."""
    progress = False if quiet else None
    out.mkdir(parents=True, exist_ok=True)
    if not quiet:
        print("Measuring two models over the bundled corpus: about a minute", file=sys.stderr)
    traces, results, wires = {}, {}, None
    (out / LIVE).unlink(missing_ok=True)
    with _second_process(out, workers, resume=resume) as wait_for_other_half:
        for job in reversed(JOBS):
            with phase(f"{job.alias}: loading", progress):
                model = hs.load(job.alias)
            runs = _ModelRuns(model, out / job.alias, workers, resume, progress)
            measured = runs.measure()
            with phase(f"{job.alias}: effect of each head on its text", progress):
                traces[job.alias] = model.trace(job.text, job.pair, effects=True)
            if job.alias == "smollm2":
                with phase("smollm2: wires of its prediction", progress):
                    pair = [(job.text, CONTRAST)]
                    wires = hs.wires(model, pair, " Mary", " John", exact=N_WIRES, progress=False)
            with phase(f"{job.alias}: measuring", progress):
                wait_for_other_half()
            results[job.alias] = [*measured, *runs.importance()]
    pages = {}
    for job in JOBS:
        page = out / f"{job.alias}.html"
        with phase(f"{job.alias}: its page", progress):
            hs.save_page(
                traces[job.alias],
                page,
                selection={"named": "text"},  # the tour shows roles in this text
                story=job.story,
                evidence=results[job.alias],
                report="report.html",
                wires=wires if job.alias == "smollm2" else None,
            )
        pages[results[job.alias][0].model] = page.name
    with phase("the report", progress):
        all_results = [result for job in JOBS for result in results[job.alias]]
        report = hs.report(all_results, out / "report.html", pages=pages)
    if not (out / LIVE).is_file():
        with phase("minilm: a page with the model inside", progress):
            _save_live(out)
    index = out / "index.html"
    stories = {f"{job.alias}.html": job.title for job in JOBS}
    stories |= {EXERCISE: "Your turn: which head decides?", LIVE: "MiniLM, live: type"}
    with atomic_path(index) as path:
        path.write_text(make_demo_page(stories, report.name), encoding="utf-8")
    return (
        f"Open {index} in a browser: the heads of two models, one of them inside its page.\n"
        f"One click from there, or {report}: every head, measured.\n"
        f"The numbers are in {out} too: headscope.open reads every result.nc."
    )


@contextmanager
def _second_process(
    out: Path, workers: int | None, *, resume: bool
) -> Iterator[Callable[[], None]]:
    """Measure half of the runs in a second process during the block.

    Both processes write run folders, and a complete run is opened, not measured again. This
    process requests every run, so that the demo also finishes if the other process fails.

    Yields:
        A function that waits for the second process. The process does not start on one core, with
        a chosen number of workers, or without resume.
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


def _save_live(out: Path) -> None:
    (out / LIVE).parent.mkdir(exist_ok=True)
    hs.save_live(hs.load("minilm"), out / LIVE, examples=LIVE_TEXTS, effects=True)


def _measure_half(out: Path) -> None:
    """Measure all models but the last and the importance of all; write the live page."""
    with suppress(Exception):  # the first process raises the same error
        for job in JOBS:
            runs = _ModelRuns(hs.load(job.alias), out / job.alias, 1, resume=True, progress=False)
            if job is not JOBS[-1]:
                runs.measure()
            runs.importance()
        _save_live(out)


@dataclass(frozen=True, slots=True)
class _ModelRuns:
    """Runs of one model over the bundled corpus, one folder each."""

    model: hs.Model
    out: Path
    workers: int | None
    resume: bool
    progress: bool | None

    def measure(self) -> list[hs.Result]:
        """Measure all metrics and heads as classifiers."""
        sentences, documents = hs.demo_corpus("sentence"), hs.demo_corpus("document")
        return [
            self._run("metrics", hs.analyze, sentences, ["all", "js"]),
            self._run("dependencies", hs.probe_dependencies, sentences, MIN_RELATION_WORDS),
            self._run("coreference", hs.probe_coreference, documents),
        ]

    def importance(self) -> list[hs.Result]:
        """Measure gradient importance, if the model has a loss."""
        if self.model.info.objective is None:
            return []
        documents = hs.demo_corpus("document")
        segments = hs.cut_segments(self.model, documents, 128).sample(N_SEGMENTS, 0)
        return [self._run("importance", hs.importance, segments)]

    def _run(self, name: str, measure: Callable[..., hs.Result], *arguments: object) -> hs.Result:
        folder = self.out / name
        running = {"out": folder, "workers": self.workers, "progress": False}
        with phase(f"{self.out.name}: {name}", self.progress):
            try:
                return measure(self.model, *arguments, **running, resume=self.resume)
            except RunMismatch:
                if self.progress is not False:
                    print(f"{folder} is of another version; measuring it again", file=sys.stderr)
                return measure(self.model, *arguments, **running, resume=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("demo"), help="where to write")
    parser.add_argument("--workers", type=int, help="worker processes; by default by job size")
    parser.add_argument("--no-resume", action="store_true", help="measure complete runs again")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    chosen = parser.parse_args()
    print(demo(chosen.out, chosen.workers, resume=not chosen.no_resume, quiet=chosen.quiet))
