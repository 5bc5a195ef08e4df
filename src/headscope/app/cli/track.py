"""`headscope track`: measure saved checkpoints of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, option, print_status
from headscope.app.cli.shared_options import open_corpus
from headscope.errors import InputError


def track(
    sources: Annotated[
        list[str],
        argument(
            "Folders named after their steps (checkpoint-500), or a hub id with --revision; "
            "then a file or folder of text, or 'demo'.",
            metavar="CHECKPOINTS... CORPUS",
            show_default=False,
        ),
    ],
    out: options.OutOption,
    *,
    revision: Annotated[
        list[str] | None, option("Revision on the hub, named after its step; may be given again.")
    ] = None,
    metrics: Annotated[
        str | None, option("Names with commas between. [default: those of roles]")
    ] = None,
    detect: Annotated[bool, option("Score heads on repeated random tokens.")] = True,
    effects: Annotated[bool, option("Ablate each head: effects on the loss.")] = False,
    text: Annotated[str | None, option("Text to trace at each step; writes page.html.")] = None,
    unit: options.UnitOption = "sentence",
    sample: options.SampleOption = None,
    max_tokens: options.MaxTokensOption = 128,
) -> CommandResult:
    """Measure every head at each checkpoint. A stopped command continues where it stopped."""
    from headscope.figures.layer_charts import SCORES
    from headscope.results.steps import with_previous

    if len(sources) < 2:
        raise InputError(f"{sources[0]!r} is all there is: give checkpoints, then a corpus.")
    *checkpoints, corpus = sources
    chosen = {} if metrics is None else {"metrics": [name.strip() for name in metrics.split(",")]}
    results = hs.track_checkpoints(
        checkpoints,
        open_corpus(corpus, unit=unit, sample=sample),
        revisions=revision or [],
        out=out,
        on_step=lambda step, source: print_status(f"step {step}: {source}"),
        detect=detect,
        effects=effects,
        max_tokens=max_tokens,
        text=text,
        **chosen,
    )
    data: dict[str, object] = {"out": str(out)}
    lines = []
    for kind, result in results.items():
        rises = {}
        for name in SCORES if len(result.steps) > 1 and result.states else ():
            if name in with_previous(result):
                rises[name] = result.onsets(name)
        data[kind] = {"steps": result.steps, "onsets": {n: t.records() for n, t in rises.items()}}
        lines.append(f"{kind}: {result!r}")
        lines += [str(table) for table in rises.values() if table.rows]
    if text is not None:
        files = out.glob("traces/steps/*.nc")
        traces = {int(f.stem): t for f in files if isinstance(t := hs.open(f), hs.Trace)}
        page = Path(out) / "page.html"
        hs.save_page(traces, page)
        data["page"] = str(page)
        lines.append(f"page: {page}")
    lines.append(f"headscope report {Path(out)} -o report.html")
    return CommandResult(data, "\n".join(lines))
