"""`headscope analyze`: every metric over a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headscope.app.cli import options
from headscope.app.cli.answer import Answer, settings

if TYPE_CHECKING:
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus

__all__ = ["analyze", "n_workers", "open_corpus"]

SHOWN = {
    "null_share": "of the attention is null (special tokens, or the first token)",
    "distance": "tokens from query to key, on average over heads",
    "entropy": "nats of entropy, on average over heads",
    "dep_alignment": "of the attention follows a dependency (either direction)",
    "variability": "of the attention varies with content rather than position",
}


def analyze(
    corpus: options.CorpusName,
    out: options.Out,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="'all' (but js, which costs as much as the model), or names with commas "
            "between: all,js."
        ),
    ] = "all",
    unit: options.UnitName = "sentence",
    segments: options.Segments = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=2, help="Longer documents are cut. [default: 512, of segments 128]"),
    ] = None,
    sample: options.Sample = None,
    seed: options.Seed = 0,
    by: Annotated[str | None, typer.Option(help="Also by a group of documents: genre.")] = None,
    workers: options.Workers = None,
    engine: options.EngineName = "local",
    resume: options.Resume = True,
    on_error: options.OnError = "raise",
    figures: Annotated[bool, typer.Option(help="Draw the papers' figures.")] = True,
) -> Answer:
    """Measure what every head does over a corpus; a stopped run goes on where it was."""
    import headscope as hs
    from headscope.results.opening import RESULT

    if segments:
        unit = "document"
    max_tokens = max_tokens or (128 if segments else 512)
    documents = open_corpus(corpus, unit=unit, sample=sample, seed=seed, on_error=on_error)
    loaded = hs.load(model, device=device)
    result = hs.analyze(
        loaded,
        hs.cut_segments(loaded, documents, max_tokens) if segments else documents,
        metrics if metrics == "all" else [name.strip() for name in metrics.split(",")],
        out=out,
        by=by,
        max_tokens=max_tokens,
        engine=engine,
        workers=n_workers(workers),
        resume=resume,
        progress=settings.progress,
    )
    drawn = result.save_figures(out / "figures") if figures else []
    counts = result.provenance["counts"]
    means = _means(result)
    data = {
        "model": result.model,
        "documents": counts["documents"],
        "tokens": counts["tokens"],
        "result": str(out / RESULT),
        "figures": [str(path) for path in drawn],
        "means": means,
    }
    n, tokens = counts["documents"], counts["tokens"]
    lines = [f"{result.model}: {n:,} document{'s' * (n != 1)}, {tokens:,} tokens"]
    for name, value in means.items():
        value = round(value, 4) + 0.0  # a sum of zeros may be a hair below 0
        shown = f"{value:.1%}" if "of the" in SHOWN[name] else f"{value:.2f}"
        lines.append(f"  {name:<14} {shown:>6} {SHOWN[name]}")
    lines.append(f"  result         {data['result']} (headscope.open reads it)")
    if drawn:
        lines.append(f"  figures        {out / 'figures'}")
    return Answer(data, "\n".join(lines))


def open_corpus(
    name: str,
    *,
    unit: Literal["sentence", "paragraph", "document"] = "sentence",
    sample: int | None = None,
    seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> Corpus:
    """The corpus a verb was given: a file or folder, or the bundled one (`demo`)."""
    import headscope as hs

    if name != "demo":
        return hs.read(name, unit=unit, sample=sample, seed=seed, on_error=on_error)
    documents = hs.demo_corpus(unit)
    return documents if sample is None else documents.draw(sample, seed)


def n_workers(asked: int | None) -> int:
    """The number of workers a verb was given; one for each core by default."""
    from headscope.run.engines.local import n_cores

    return n_cores() if asked is None else asked


def _means(result: Result) -> dict[str, float]:
    """The mean over heads of a few variables."""
    means = {}
    for name in SHOWN:
        if name in result:
            values = result[name]
            if "parent" in values.dims:
                values = values.sel(parent="either")
            means[name] = float(values.mean())
    return means
