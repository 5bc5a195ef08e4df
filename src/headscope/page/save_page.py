"""One offline HTML file with everything in it: no network, no server, a strict policy.

The page holds the built front end (`static/page.js`), the payload's header as JSON and its
buffers as base64. Its content security policy names the one script by its hash and allows
nothing else to run or load.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from headscope.page.html import data_script, html_page, write_page
from headscope.page.payload import Payload, make_payload
from headscope.results.trace import Trace

STYLE = """
html, body { height: 100%; margin: 0; }
#headscope { height: 100vh; }
#headscope > p { font: 15px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 3rem auto; }
""".strip()
APP_STYLE = (
    STYLE
    + """
#headscope { display: flex; flex-direction: column; }
.stage { flex: 1; min-height: 0; }
.stage > div { height: 100%; }
"""
)
WAITING = (
    "Opening the trace … If this text stays, the file is incomplete (save it once more), "
    "or JavaScript is switched off."
)


@cache
def static_file(name: str) -> str:
    """The text of a file of the built front end."""
    return resources.files("headscope.page").joinpath("static", name).read_text("utf-8")


def make_page(
    payload: Payload,
    *,
    title: str = "headscope",
    script: str = "page.js",
    style: str = STYLE,
    waiting: str = WAITING,
) -> str:
    """The HTML of a page that shows `payload`, the explorer's or (by its script) another's.

    Tokens and titles are data in it, never markup: the header's `<` are written as JSON
    escapes, and the front end sets text only.
    """
    header = json.dumps(payload.header, ensure_ascii=False, separators=(",", ":"))
    buffers = "\n".join(
        f'<script type="text/plain" data-buffer="{index}">'
        f"{base64.b64encode(buffer).decode('ascii')}</script>"
        for index, buffer in enumerate(payload.buffers)
    )
    data = f"{data_script('headscope-header', header)}\n{buffers}"
    return html_page(title, style, _stage(waiting), static_file(script), data)


def make_app(start: Mapping[str, object]) -> str:
    """The HTML of the web app, which asks the server it came from for traces.

    Args:
        start: `models` and `text`, as the front end's `entry/app.ts` wants them.
    """
    data = data_script("headscope-start", json.dumps(start, ensure_ascii=False))
    stage, script = _stage(WAITING), static_file("app.js")
    return html_page("headscope", APP_STYLE, stage, script, data, connect="'self'")


def _stage(waiting: str) -> str:
    return f'<main id="headscope"><p>{waiting}</p></main>'


def save_page(
    traces: Trace | Sequence[Trace],
    path: str | os.PathLike[str],
    *,
    neurons: bool | Sequence[int] = True,
    titles: Sequence[str] | None = None,
    selection: str = "",
) -> None:
    """Write one trace, or two to compare, as one HTML file that opens without a network.

    Args:
        traces: a trace, or two.
        path: the file to write; it appears whole or not at all.
        neurons: whether to store queries, keys and values, or the layers for which to.
        titles: what to call each trace.
        selection: where to open, as a URL fragment (`layer=2&heads=8`); `trace.save_page`
            takes it in words.
    """
    listed = [traces] if isinstance(traces, Trace) else list(traces)
    payload = make_payload(listed, neurons=neurons, titles=titles, selection=selection)
    page = make_page(payload, title=f"headscope: {payload.header['traces'][0]['title']}")
    write_page(path, page)
