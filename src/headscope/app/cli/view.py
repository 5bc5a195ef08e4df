"""`headscope view`: show all heads on one text, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, option, settings
from headscope.app.cli.models import load_model
from headscope.app.cli.shared_options import open_results


def view(
    text: Annotated[str | None, argument("The text to look at.", show_default=False)] = None,
    file: Annotated[Path | None, option("A file to read the text from.")] = None,
    pair: Annotated[str | None, option("The second text of a sentence pair.")] = None,
    compare: Annotated[str | None, option("Another text to compare it with.")] = None,
    target: Annotated[str | None, option("Text for the decoder of an encoder-decoder.")] = None,
    generate: Annotated[int, option("How many tokens the model may add.", min=0)] = 0,
    image: Annotated[
        list[Path] | None, option("A picture to show the model; may be given again.")
    ] = None,
    audio: Annotated[Path | None, option("A WAV file to play to the model.")] = None,
    model: options.ModelOption = "minilm",
    device: options.DeviceOption = None,
    neurons: Annotated[
        bool | None,
        option(
            "Put queries, keys and values of all layers into the page, or of none; by "
            "default of the layer that the page opens on.",
            show_default=False,
        ),
    ] = None,
    effects: Annotated[
        bool, option("Also ablate each head and measure the effect on the prediction.")
    ] = False,
    over: options.OverOption = "attention",
    evidence: options.EvidenceOption = None,
    out: options.OutOption = Path("headscope.html"),
) -> CommandResult:
    """Write one HTML page that shows the attention of every head in a text. Works offline."""
    import headscope as hs
    from headscope.run.progress import phase

    has_media = bool(image) or audio is not None
    first = None if has_media and text is None and file is None else _text(text, file)
    loaded = load_model(model, device)
    with phase(f"running {model}", settings.progress):
        traces = [
            loaded.trace(
                item,
                pair,
                image=[str(name) for name in image] if image else None,
                audio=None if audio is None else str(audio),
                target=target,
                generate=generate,
                vectors=neurons is not False or over == "norm",
                effects=effects,
                norms=over == "norm",
            )
            for item in ([first] if compare is None else [first, compare])
        ]
    with phase(f"writing {out}", settings.progress):
        results = open_results(evidence) if evidence else None
        weighted = tuple(trace.norm_weighted() if over == "norm" else trace for trace in traces)
        hs.save_page(
            [weighted[0] if compare is None else weighted], out, neurons=neurons, evidence=results
        )
    return CommandResult({"page": str(out), "tokens": len(traces[0].tokens)}, str(out))


def _text(text: str | None, file: Path | None) -> str:
    from headscope.errors import InputError

    if text is None and file is None:
        raise InputError('Give a text (headscope view "The cat sat.") or --file NAME.')
    if text is not None and file is not None:
        raise InputError(f"Give the text {text!r:.60} or --file {file}, not both.")
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
