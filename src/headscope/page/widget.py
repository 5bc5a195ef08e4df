"""The notebook widget. The one file that imports anywidget."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

from headscope.page.exact import exact_row
from headscope.page.html import write_page
from headscope.page.payload import Payload
from headscope.page.picture import picture_of
from headscope.page.save_page import make_page, static_file
from headscope.results.trace import Trace


class Explorer(anywidget.AnyWidget):
    """The explorer of one trace, or of two, as a Jupyter widget.

    `selection` is what the reader has selected, as a URL fragment (`layer=2&heads=8`); setting it
    changes the selection. Tooltips ask the kernel for weights, so these are exact.
    """

    _esm = static_file("widget.js")

    header = traitlets.Unicode().tag(sync=True)
    buffers = traitlets.List(traitlets.Bytes()).tag(sync=True)
    selection = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(680).tag(sync=True)
    static_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, traces: Sequence[Trace], payload: Payload, *, height: int = 680) -> None:
        self._traces = list(traces)
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
        header = {**self._payload.header, "selection": self.selection}
        page = make_page(Payload(header, self._payload.buffers), title=self._title)
        write_page(path, page)

    @property
    def _title(self) -> str:
        return f"headscope: {self._payload.header['traces'][0]['title']}"

    def _ipython_display_(self, **_: object) -> None:
        """Show a still picture and the widget, which hides the picture while it lives.

        A notebook that is opened again without its kernel still shows the picture.
        """
        display = importlib.import_module("IPython.display")
        still = picture_of(self._traces[0], css_class=f"headscope-still-{self.static_id}")
        display.display(display.HTML(still))
        bundle = self._repr_mimebundle_()
        if bundle is not None:
            display.display(bundle[0], raw=True)

    def _answer(self, _: object, content: Mapping[str, Any], __: object) -> None:
        """One exact row of attention for the front end."""
        if content.get("kind") != "row":
            return
        row = exact_row(self._traces, content)
        self.send(
            {"id": content.get("id"), "found": row is not None},
            buffers=[] if row is None else [row],
        )
