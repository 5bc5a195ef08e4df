"""`headscope publish`: write a page that runs the model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, settings
from headscope.app.cli.models import load_model
from headscope.app.cli.shared_options import open_results


def publish(
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts to show first.", show_default=False)
    ] = None,
    model: options.ModelOption = "minilm",
    evidence: options.EvidenceOption = None,
    effects: Annotated[
        bool, typer.Option(help="Store the effect of each head for the texts.")
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(help="Weights: float16, int8, float32, or gguf.", show_default=False),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest text, in tokens.")] = 256,
    out: options.OutOption = Path("site"),
) -> CommandResult:
    """Write a page that runs the model in the browser: a folder, or one .html file."""
    import headscope as hs
    from headscope.run.progress import phase

    loaded = load_model(model, "cpu")
    with phase(f"exporting {model} and comparing it", settings.progress):
        live = hs.save_live(
            loaded,
            out,
            examples=text or (),
            evidence=open_results(evidence) if evidence else None,
            effects=effects,
            storage=storage,  # type: ignore[arg-type]  # save_live names the known ones
            max_tokens=max_tokens,
        )
    data = {
        "page": str(out if out.suffix else out / "index.html"),
        "bytes": live.bytes,
        "storage": live.storage,
        "export_error": live.export_error._asdict(),
        "storage_error": live.storage_error._asdict(),
        "tokenizer_refusal": live.tokenizer_refusal,
    }
    return CommandResult(data, str(live))
