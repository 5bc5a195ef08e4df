"""What BertViz's `html_action` asks for: show here, or return HTML."""

from __future__ import annotations

import html
import importlib
from typing import TYPE_CHECKING

from headscope.errors import MissingExtra, UnknownName
from headscope.page.payload import Contents, make_payload
from headscope.page.replies import Replies
from headscope.page.save_page import make_page
from headscope.results.trace import Trace

if TYPE_CHECKING:
    from IPython.display import HTML

ACTIONS = ("view", "return")
HEIGHT = 720


def show_or_return(trace: Trace, selection: str, html_action: str) -> HTML | None:
    """Display the explorer and return None, or return it as an `IPython.display.HTML`.

    The HTML is a frame around one self-contained page: it can be displayed, and its `.data`
    can be written to a file that opens without a network.
    """
    if html_action not in ACTIONS:
        raise UnknownName.of("html_action", html_action, ACTIONS)
    payload = make_payload([trace], Contents(selection=selection))
    try:
        display = importlib.import_module("IPython.display")
        if html_action == "view":
            from headscope.page.widget import Explorer
    except ModuleNotFoundError as error:
        library = "IPython" if error.name == "IPython" else "anywidget"
        raise MissingExtra.of(library, "widget", "Showing a view in a notebook") from error
    if html_action == "view":
        display.display(Explorer(Replies([trace]), payload))
        return None
    page = html.escape(make_page(payload), quote=True)
    frame = (
        f'<div><iframe title="headscope" srcdoc="{page}" width="100%" height="{HEIGHT}" '
        f'style="border:0;height:max({HEIGHT}px, 95vh)"></iframe></div>'
    )
    shown: HTML = display.HTML(frame)
    return shown
