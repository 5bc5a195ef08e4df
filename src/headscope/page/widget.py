"""Notebook widget of the explorer. The only module that imports anywidget."""

from __future__ import annotations

import html
import importlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

from headscope.arguments import whole_number
from headscope.errors import HeadscopeError, InputError, MissingExtra
from headscope.page.codec import Payload
from headscope.page.evidence import make_evidence
from headscope.page.payload import Contents, make_payload
from headscope.page.replies import Replies, replies_for
from headscope.page.save_page import make_page, page_of, picture_of, static_file, write_page
from headscope.results.result import Result

try:
    import anywidget
    import traitlets
except ModuleNotFoundError as error:
    raise MissingExtra.of("anywidget", "widget", "The explorer in a notebook") from error

HEIGHT = 680
MAX_OFFLINE = 8 << 20
"""Characters of an offline page that a notebook carries; of a larger one it carries a picture."""


class Explorer(anywidget.AnyWidget):
    """The explorer of one trace, or of two, as a Jupyter widget.

    `selection` is what the reader has selected, as a URL fragment (`head=L2H8&word=4`); setting it
    changes the selection. What the page asks the kernel answers: exact rows, the vectors of a
    layer, and where the traces know their model also edits, effects, scores and other texts.
    """

    _esm = static_file("widget.js")

    header = traitlets.Unicode().tag(sync=True)
    buffers = traitlets.List(traitlets.Bytes()).tag(sync=True)
    selection = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(HEIGHT).tag(sync=True)
    static_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, replies: Replies, payload: Payload, *, height: int = HEIGHT) -> None:
        self._replies = replies
        self._payload = payload
        super().__init__(
            header=json.dumps(payload.header),
            buffers=list(payload.buffers),
            selection=str(payload.header["selection"]),
            height=height,
            static_id=uuid4().hex,
        )
        self.on_msg(self._answer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explorer as one HTML file that opens here, without a network."""
        write_page(path, page_of(self._offline(), self._replies.traces[0]))

    def _offline(self) -> Payload:
        """The payload as a file has it, opened where the reader is."""
        header = {**self._payload.header, "selection": self.selection, "place": "file"}
        return Payload(header, self._payload.buffers)

    def _ipython_display_(self, **_: object) -> None:
        """Show the offline page and the widget, which hides the page while it lives.

        A notebook that is opened again without its kernel shows the page.
        """
        display = importlib.import_module("IPython.display")
        display.display(display.HTML(self._still()))
        bundle = self._repr_mimebundle_()
        if bundle is not None:
            display.display(bundle[0], raw=True)

    def _still(self) -> str:
        """The offline page in a frame, which a notebook without a kernel shows.

        There JupyterLab puts a message in the widget's place; the style hides that message.
        """
        name = f"headscope-still-{self.static_id}"
        page = make_page(self._offline())
        if len(page) > MAX_OFFLINE:
            return picture_of(self._replies.traces[0], css_class=name)
        lost = ".jp-OutputArea-child:not(:has(> .jp-OutputArea-output *))"
        return (
            f"<style>.jp-OutputArea-child:has(.{name}) + {lost} {{ display: none; }}</style>"
            f'<div class="{name}"><iframe title="headscope" loading="lazy" '
            f'srcdoc="{html.escape(page, quote=True)}" width="100%" height="{self.height}" '
            'style="border:0"></iframe></div>'
        )

    def _answer(self, _: object, content: Mapping[str, object], __: object) -> None:
        kind = content.get("kind")
        if kind == "read":
            self.send({"id": content.get("id"), **self._read(content.get("text"))})
        elif isinstance(kind, str):
            answer, buffers = self._replies.reply(kind, content)
            self.send({"id": content.get("id"), **answer}, buffers=buffers)

    def _read(self, text: object) -> dict[str, object]:
        """Trace another text with the same model, and show it in place of the first."""
        try:
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"The sentence should be a text, not {text!r:.80}.")
            origin = self._replies.traces[0].require_origin("read")
            with origin.as_it_was():
                trace = origin.model.trace(text)
            payload = make_payload([trace], Contents(place="notebook"))
        except HeadscopeError as error:
            return {"error": str(error)}
        self._replies, self._payload = replies_for([trace]), payload
        with self.hold_sync():
            self.buffers = list(payload.buffers)
            self.selection = str(payload.header["selection"])
            self.header = json.dumps(payload.header)
        return {"found": True}


def explore(
    replies: Replies,
    *,
    selection: str = "",
    neurons: bool | Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    evidence: Result | Iterable[Result] | None = None,
    height: int = HEIGHT,
) -> Explorer:
    """The widget for one trace, or for two to compare; `Trace.explore` says more."""
    contents = Contents(
        neurons=neurons,
        titles=titles,
        selection=selection,
        evidence=None if evidence is None else make_evidence(evidence, replies.traces[0]),
        place="notebook",
    )
    payload = make_payload(replies.traces, contents)
    whole_number("height", height)
    return Explorer(replies, payload, height=height)
