"""`headscope view`: one text and every head on it, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.app.cli import options
from headscope.app.cli.answer import Answer


def view(
    text: Annotated[
        str | None, typer.Argument(help="The text to look at.", show_default=False)
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file to read the text from.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of a sentence pair.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What the decoder of an encoder-decoder reads.")
    ] = None,
    generate: Annotated[int, typer.Option(min=0, help="How many tokens the model may add.")] = 0,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    neurons: Annotated[
        bool, typer.Option(help="Put queries, keys and values into the page.")
    ] = True,
    out: options.Out = Path("headscope.html"),
) -> Answer:
    """Write one HTML page that shows every head at work on a text. Opens without a network."""
    from headscope.model.load import load
    from headscope.page.save_page import save_page

    text = _text(text, file)
    trace = load(model, device=device).trace(
        text, pair, target=target, generate=generate, vectors=neurons
    )
    save_page(trace, out, neurons=neurons)
    return Answer({"page": str(out), "tokens": len(trace.tokens)}, str(out))


def _text(text: str | None, file: Path | None) -> str:
    """The text that was given, or the text of a file."""
    from headscope.errors import InputError

    if (text is None) == (file is None):
        raise InputError('Give a text (headscope view "The cat sat.") or --file NAME, not both.')
    if file is None:
        if text and len(text) < 200 and Path(text).is_file():
            raise InputError(
                f"{text!r} is the name of a file. To show its text, use --file {text}."
            )
        return str(text)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{str(file)!r} cannot be read as text: {error}") from error
