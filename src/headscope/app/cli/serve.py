"""`headscope serve`: type a text in the browser, edit heads, and see the new prediction."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, option, print_status
from headscope.app.cli.models import load_model
from headscope.app.cli.shared_options import find_runs, open_results

if TYPE_CHECKING:
    from headscope.results.result import Result


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
    from headscope.errors import InputError, MissingExtra

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
