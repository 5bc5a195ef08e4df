"""One offline HTML file with everything in it: no network, no server, a strict policy.

The page holds the built front end (`static/page.js`), the payload's header as JSON and its
buffers as base64. Its content security policy names the one script by its hash and allows
nothing else to run or load.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from headscope.atomic import atomic_path
from headscope.results.trace import Trace
from headscope.views.payload import Payload, make_payload

__all__ = ["make_app", "make_page", "save_page", "static_file"]

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
    return resources.files("headscope.views").joinpath("static", name).read_text("utf-8")


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
    data = f'<script type="application/json" id="headscope-header">{_inert(header)}</script>\n'
    return _document(script, style, title, data + buffers, waiting=waiting)


def make_app(start: Mapping[str, Any]) -> str:
    """The HTML of the web app, which asks the server it came from for traces.

    Args:
        start: `models` and `text`, as the front end's `entry/app.ts` wants them.
    """
    told = json.dumps(start, ensure_ascii=False)
    data = f'<script type="application/json" id="headscope-start">{_inert(told)}</script>'
    return _document("app.js", APP_STYLE, "headscope", data, connect="'self'")


def _document(
    script_name: str, style: str, title: str, data: str, connect: str = "", waiting: str = WAITING
) -> str:
    script = static_file(script_name)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data: blob:",
            *([f"connect-src {connect}"] if connect else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="headscope">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="headscope"><p>{waiting}</p></main>
<script type="module">{script}</script>
{data}
</body>
</html>
"""


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
        neurons: whether queries, keys and values go along, or the layers whose do.
        titles: what to call each trace.
        selection: where to open, as a URL fragment (`layer=2&heads=8`).
    """
    listed = [traces] if isinstance(traces, Trace) else list(traces)
    payload = make_payload(listed, neurons=neurons, titles=titles, selection=selection)
    page = make_page(payload, title=f"headscope: {payload.header['traces'][0]['title']}")
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace", newline="\n")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _inert(text: str) -> str:
    """JSON that cannot end its script element or start a comment in it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
