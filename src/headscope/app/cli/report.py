"""`headscope report`: write results as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, option, settings
from headscope.app.cli.shared_options import find_runs


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
    import headscope as hs
    from headscope.errors import InputError
    from headscope.run.progress import phase

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
