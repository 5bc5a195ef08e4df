"""`headscope analyze`: every metric over a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, settings
from headscope.app.cli.models import load_model

if TYPE_CHECKING:
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus


def analyze(
    corpus: options.CorpusName,
    out: options.Out,
    *,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    metrics: Annotated[
        str,
        typer.Option(
            help="Names with commas between; 'all' leaves out js, which takes as long as the "
            "model: all,js adds it."
        ),
    ] = "all",
    unit: options.UnitName = "sentence",
    segments: options.Segments = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=2, help="Cut longer documents. [default: 512, for segments 128]"),
    ] = None,
    sample: options.Sample = None,
    seed: options.Seed = 0,
    by: Annotated[
        str | None, typer.Option(help="Also measure each group of documents: genre.")
    ] = None,
    over: options.Over = "attention",
    running: options.Running,
    figures: Annotated[
        bool,
        typer.Option(
            help="Also draw the papers' figures; of a run that is complete, draw them alone."
        ),
    ] = False,
) -> CommandResult:
    """Measure what every head does over a corpus. A run that was stopped goes on where it was."""
    from headscope.run.engines.processes import warm_up
    from headscope.run.progress import phase

    warm_up(corpus, running.workers)

    import headscope as hs
    from headscope.results.display import display_of
    from headscope.results.files import RESULT_FILE

    if segments:
        unit = "document"
    max_tokens = max_tokens or (128 if segments else 512)
    documents = open_corpus(corpus, unit=unit, sample=sample, seed=seed, on_error=running.on_error)
    loaded = load_model(model, device)
    result = hs.analyze(
        loaded,
        hs.cut_segments(loaded, documents, max_tokens) if segments else documents,
        metrics if metrics == "all" else [name.strip() for name in metrics.split(",")],
        **running.options(out=out, by=by, over=over, max_tokens=max_tokens),
    )
    drawn = []
    if figures:
        with phase("drawing figures", settings.progress):
            drawn = result.save_figures(out / "figures")
    counts = result.provenance["counts"]
    means = _means(result)
    shown = [(display_of(result[name]), value) for name, value in means.items()]
    data = {
        "model": result.model,
        "documents": counts["documents"],
        "unit": result.provenance["corpus"]["unit"],
        "tokens": counts["tokens"],
        "truncated": counts["truncated"],
        "result": str(out / RESULT_FILE),
        "figures": [str(path) for path in drawn],
        "means": means,
    }
    width = max([len("figures"), *(len(known.title) for known, _ in shown)])
    lines = [f"{result.model}: {result.summary}. On average over heads:"]
    lines += [f"  {known.title:<{width}}  {known.show(value)}" for known, value in shown]
    lines.append(f"  {'result':<{width}}  {data['result']} (headscope.open reads it)")
    if drawn:
        lines.append(f"  {'figures':<{width}}  {out / 'figures'}")
    return CommandResult(data, "\n".join(lines))


def open_corpus(
    name: str,
    *,
    unit: Literal["sentence", "paragraph", "document"] = "sentence",
    sample: int | None = None,
    seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> Corpus:
    """The corpus that a verb was given: a file, a folder, or `demo` for the bundled corpus."""
    import headscope as hs

    if name != "demo":
        return hs.read(name, unit=unit, sample=sample, seed=seed, on_error=on_error)
    documents = hs.demo_corpus(unit)
    return documents if sample is None else documents.sample(sample, seed)


def _means(result: Result) -> dict[str, float]:
    """The mean over heads of every variable that has one number for each head."""
    from headscope.heads.cards import shown_variables

    means = {}
    for values in shown_variables(result.dataset):
        if "parent" in values.dims:
            values = values.sel(parent="either")
        if set(values.dims) == {"layer", "head"}:
            # A mean may round to -0.0; adding 0.0 makes it 0.0.
            means[str(values.name)] = round(float(values.mean()), 6) + 0.0
    return means
