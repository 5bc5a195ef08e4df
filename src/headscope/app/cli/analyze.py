"""`headscope analyze`, `sensitivity` and `report`: measure a corpus, and write it up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, option, settings
from headscope.app.cli.shared_options import find_runs
from headscope.errors import InputError
from headscope.run.progress import phase

REPLICATE = "replicate"
"""Folder of the run on the second corpus."""


def analyze(
    corpus: options.CorpusOption,
    out: options.OutOption,
    *,
    metrics: Annotated[
        str,
        option(
            "Names with commas between. 'all' omits js, which takes as long as the model; "
            "all,js adds it."
        ),
    ] = "all",
    unit: options.UnitOption = "sentence",
    segments: options.SegmentsOption = False,
    max_tokens: Annotated[
        int | None, option("Cut longer documents. [default: 512, for segments 128]", min=2)
    ] = None,
    windows: Annotated[
        int | None, option("Read longer documents in overlapping windows, not cut.", min=8)
    ] = None,
    run: options.CorpusRunOptions,
    figures: Annotated[
        bool, option("Also draw the papers' figures, without a new run if complete.")
    ] = False,
    replicate: Annotated[
        str | None, option("A second corpus, measured in OUT/replicate: which findings hold there?")
    ] = None,
) -> CommandResult:
    """Measure every head over a corpus. A stopped run continues where it stopped."""
    from headscope.run.engines.processes import warm_up

    warm_up(corpus, run.workers)

    from headscope.heads.cards import shown_variables
    from headscope.results.display import display_of
    from headscope.results.files import RESULT_FILE

    if segments:
        unit = "document"
    max_tokens = max_tokens or (128 if segments else 512)
    corpora = {out: run.open_corpus(corpus, unit)}
    if replicate is not None:
        corpora[out / REPLICATE] = run.open_corpus(replicate, unit)
    loaded = run.load_model()
    result, *others = (
        hs.analyze(
            loaded,
            hs.cut_segments(loaded, documents, max_tokens) if segments else documents,
            metrics if metrics == "all" else [name.strip() for name in metrics.split(",")],
            **run.options(out=folder, max_tokens=max_tokens, windows=windows),
        )
        for folder, documents in corpora.items()
    )
    replicated = [result.replicates(other) for other in others]
    drawn = []
    if figures:
        with phase("drawing figures", settings.progress):
            drawn = result.save_figures(out / "figures")
    counts = result.provenance["counts"]
    means = {}
    for values in shown_variables(result.dataset):
        if "parent" in values.dims:
            values = values.sel(parent="either")
        if set(values.dims) == {"layer", "head"}:
            # A mean may round to -0.0; adding 0.0 makes it 0.0.
            means[str(values.name)] = round(float(values.mean()), 6) + 0.0
    displays = [(display_of(result[name]), value) for name, value in means.items()]
    data: dict[str, object] = {
        "model": result.model,
        "documents": counts["documents"],
        "unit": result.provenance["corpus"]["unit"],
        "tokens": counts["tokens"],
        "truncated": counts["truncated"],
        "result": str(out / RESULT_FILE),
        "figures": [str(path) for path in drawn],
        "means": means,
    }
    width = max([len("figures"), *(len(display.title) for display, _ in displays)])
    lines = [f"{result.model}: {result.summary}. On average over heads:"]
    lines += [f"  {display.title:<{width}}  {display.show(value)}" for display, value in displays]
    lines.append(f"  {'result':<{width}}  {data['result']} (headscope.open reads it)")
    if drawn:
        lines.append(f"  {'figures':<{width}}  {out / 'figures'}")
    for table in replicated:
        file = out / REPLICATE / "replication.csv"
        table.to_csv(file)
        data["replication"] = {"summary": table.summary, "table": str(file)}
        lines += ["", str(table), f"table {file}"]
    return CommandResult(data, "\n".join(lines))


def sensitivity(
    corpus: options.CorpusOption,
    out: options.OutOption,
    *,
    unit: options.UnitOption = "sentence",
    run: options.CorpusRunOptions,
) -> CommandResult:
    """Measure a corpus under other choices, and say which findings depend on them."""
    documents = run.open_corpus(corpus, unit)
    table = hs.sensitivity(run.load_model(), documents, **run.options(out=out))
    table.to_csv(out / "sensitivity.csv")
    data = {"summary": table.summary, "table": str(out / "sensitivity.csv")}
    return CommandResult(data, f"{table}\ntable {data['table']}")


def report(
    runs: options.RunsOption,
    out: options.OutOption = Path("report.html"),
    title: Annotated[str | None, option("Title of the report.")] = None,
    page: Annotated[
        list[str] | None,
        option(
            "An explorer page that heads link to, as MODEL=PATH; may be given again.",
            show_default=False,
        ),
    ] = None,
    replicate: Annotated[
        list[Path] | None, option("A run of the same model on another corpus: what holds there?")
    ] = None,
) -> CommandResult:
    """Write a report on runs as one HTML page: findings, figures, a card for every head."""
    pages = {}
    for argument in page or ():
        model, sign, path = argument.partition("=")
        if not (model and sign and path):
            raise InputError(f"--page is {argument!r}, expected MODEL=PATH, as in minilm=a.html.")
        pages[model] = path
    with phase("importing libraries", settings.progress):
        write = hs.report
    with phase(f"writing {out}", settings.progress):
        others = find_runs(replicate or [])
        file = write(find_runs(runs), out, title=title, pages=pages, replicate=others)
    size = file.stat().st_size
    return CommandResult({"report": str(file), "bytes": size}, str(file))
