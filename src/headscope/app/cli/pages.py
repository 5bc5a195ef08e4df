"""`headscope view`, `serve` and `publish`: a saved page, the lab, and a live page."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, option, print_status, settings
from headscope.app.cli.models import load_model
from headscope.app.cli.shared_options import find_runs, open_results
from headscope.errors import InputError, MissingExtra
from headscope.run.progress import phase

if TYPE_CHECKING:
    from headscope.results.result import Result


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


def serve(
    model: Annotated[
        list[str] | None, option("Packaged model, folder or hub id; may be given again.")
    ] = None,
    text: Annotated[str, option("The text to show first.")] = "",
    pair: Annotated[str, option("The second text of a sentence pair.")] = "",
    compare: Annotated[str, option("Another text to compare it with.")] = "",
    evidence: options.EvidenceOption = None,
    device: options.DeviceOption = None,
    host: Annotated[str, option("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 for any.", min=0, max=65535)] = 8765,
    max_tokens: Annotated[int, option("Longest text, in tokens.", min=2)] = 512,
    seconds: Annotated[float, option("Time limit of one request.", min=1)] = 60,
    token: Annotated[bool, option("Require the token in the printed address.")] = True,
    open_browser: Annotated[
        bool, option("Open the page in the browser.", "--open/--no-open")
    ] = False,
) -> CommandResult:
    """Serve the lab: type a text, ablate heads, and see the new prediction. Ctrl-C stops."""
    import webbrowser

    from headscope.app.lab.requests import Limits

    try:
        from headscope.app.lab.server import bind, make_server
        from headscope.app.lab.service import LabService
    except ModuleNotFoundError as error:
        raise MissingExtra.of(str(error.name), "lab", "The lab") from error
    if (pair or compare) and not text:
        raise InputError("--pair and --compare need a first text: give --text too.")
    models = {}
    for name in model or ["minilm"]:
        print_status(f"Loading {name} …")
        models[name] = load_model(name, device)
        _ = models[name].info  # runs the self-check before the first request
    results: dict[str, list[Result]] = {}
    for folder in find_runs(evidence or []):
        (result,) = open_results([folder])
        names = [name for name, served in models.items() if served.name == result.model]
        if not names:
            served_names = ", ".join(served.name for served in models.values())
            raise InputError(f"{str(folder)!r} is a run of {result.model}; served: {served_names}.")
        results.setdefault(names[0], []).append(result)
    limits = Limits(tokens=max_tokens, seconds=seconds)
    service = LabService(models, text, limits, results, pair, compare)
    secret = secrets.token_urlsafe(24) if token else ""
    listening = bind(host, port)
    address = f"http://{host}:{listening.getsockname()[1]}/"
    first = f"{address}?token={secret}" if secret else address
    print_status(f"Serving {', '.join(models)} at {first} (Ctrl-C stops)")
    if open_browser:
        webbrowser.open(first)
    try:
        make_server(service, host, token=secret).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()
    return CommandResult({"address": address}, "")


def publish(
    text: Annotated[list[str] | None, argument("Texts to show first.", show_default=False)] = None,
    model: options.ModelOption = "minilm",
    evidence: options.EvidenceOption = None,
    effects: Annotated[bool, option("Store the effect of each head for the texts.")] = False,
    storage: Annotated[
        str | None,
        option("Weights: float16, int8, float32, or gguf.", show_default=False),
    ] = None,
    max_tokens: Annotated[int, option("Longest text, in tokens.", min=2)] = 256,
    out: options.OutOption = Path("site"),
) -> CommandResult:
    """Write a page that runs the model in the browser: a folder, or one .html file."""
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
