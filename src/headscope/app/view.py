"""`headscope view`: one text, every head, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.app import options
from headscope.app.answer import Answer

__all__ = ["view"]


def view(
    text: Annotated[str, typer.Argument(help="The text to look at.")],
    pair: Annotated[str | None, typer.Option(help="A second text, for sentence pairs.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What the decoder reads, in encoder-decoders.")
    ] = None,
    generate: Annotated[int, typer.Option(min=0, help="Tokens the model may add.")] = 0,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    neurons: Annotated[
        bool, typer.Option(help="Put queries, keys and values into the page.")
    ] = True,
    out: options.Out = Path("headscope.html"),
) -> Answer:
    """Write one HTML page that shows every head at work on a text. Opens without a network."""
    from headscope.model.load import load
    from headscope.views.page import save_page

    trace = load(model, device=device).trace(
        text, pair, target=target, generate=generate, vectors=neurons
    )
    save_page(trace, out, neurons=neurons)
    return Answer({"page": str(out), "tokens": len(trace.tokens)}, str(out))
