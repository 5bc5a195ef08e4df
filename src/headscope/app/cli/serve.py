"""`headscope serve`: type a text in the browser and see every head at work on it."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.app.cli import options
from headscope.app.cli.answer import Answer, say


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Packaged model, folder or hub id; may be given again."),
    ] = None,
    text: Annotated[str, typer.Option(help="The text to show first.")] = "The cat sat on the mat.",
    device: options.Device = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")
    ] = 8765,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = False,
) -> Answer:
    """Serve the explorer: type a text, switch heads off, and see what changes. Ctrl-C stops."""
    import webbrowser

    from headscope.app.lab.server import Desk, make_server
    from headscope.model.load import load

    models = {}
    for name in model or ["minilm"]:
        say(f"Loading {name} …")
        models[name] = load(name, device=device)
    server = make_server(Desk(models, text), host, port)
    address = f"http://{host}:{server.server_port}/"
    say(f"Serving {', '.join(models)} at {address} (Ctrl-C stops)")
    if open_browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return Answer({"address": address}, "")
