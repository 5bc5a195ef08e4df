"""The server of `headscope serve`: one page, and on request traces and exact rows of them.

It is for one reader on one machine. By default it listens on the loopback interface. It answers
only requests whose Host header names it, so that no other web site can reach it through a domain
name that points here (DNS rebinding). It takes only JSON, which a page of another origin
cannot send unless the server allows it to.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypedDict

from headscope.errors import HeadscopeError, InputError, UnknownName
from headscope.page.exact import exact_row
from headscope.page.payload import make_payload
from headscope.page.save_page import make_app

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.trace import Trace

KEPT = 8
"""How many traces are kept, so that the page can ask for their exact rows."""
MOST_BYTES = 1 << 20
MOST_TOKENS = 1024
Request = Mapping[str, object]
"""The JSON object that the page sends."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Answer(TypedDict):
    """A trace for the explorer: its id for later requests, and its payload."""

    id: str
    header: Mapping[str, Any]
    buffers: list[str]


@dataclass(eq=False)
class Desk:
    """The models, which run one request at a time, and the traces made last."""

    models: Mapping[str, Model]
    text: str = ""
    _traces: OrderedDict[str, list[Trace]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self) -> str:
        """The page, with the names of the models and the first text in it."""
        models = []
        for name, model in self.models.items():
            is_pair = "decoder" in model.info.blocks
            models.append(
                {
                    "name": name,
                    "title": model.info.name,
                    "pairs": not model.info.is_causal and not is_pair,
                    "targets": is_pair,
                    "generates": model.info.objective == "causal" or is_pair,
                }
            )
        return make_app({"models": models, "text": self.text})

    def trace(self, request: Request) -> Answer:
        """A trace as the explorer reads it; a second one if heads are to be switched off.

        Raises:
            InputError: the request names what does not exist, or a value is of the wrong kind.
        """
        model = self.models.get(str(request.get("model")))
        if model is None:
            raise UnknownName.of("model", request.get("model"), self.models)
        text, pair, target = (_text(request, name) for name in ("text", "pair", "target"))
        generate = _number(request, "generate", 0, 200)
        ablate = _heads(request.get("ablate", []))
        with self._lock:
            traces = self._run(model, text, pair or None, target or None, generate, ablate)
            name = secrets.token_urlsafe(9)
            self._traces[name] = traces
            while len(self._traces) > KEPT:
                self._traces.popitem(last=False)
        titles = None
        if len(traces) == 2:
            shown = ", ".join(f"L{layer} H{head}" for layer, head in ablate)
            titles = ["the model as it is", f"without {shown}"]
        payload = make_payload(traces, titles=titles)
        buffers = [base64.b64encode(buffer).decode("ascii") for buffer in payload.buffers]
        return {"id": name, "header": payload.header, "buffers": buffers}

    def row(self, request: Request) -> bytes:
        """One exact row of attention, in little-endian float32.

        Raises:
            InputError: the trace is no longer kept, or has no such row.
        """
        traces = self._traces.get(str(request.get("id")))
        if traces is None:
            raise InputError("The server no longer keeps this trace; show the text again.")
        row = exact_row(traces, request)
        if row is None:
            raise InputError("There is no such row of attention in the trace.")
        return row

    def _run(
        self,
        model: Model,
        text: str,
        pair: str | None,
        target: str | None,
        generate: int,
        ablate: Sequence[tuple[int, int]],
    ) -> list[Trace]:
        from headscope.model.edit import ablate as without

        trace = model.trace(text, pair, target=target, generate=generate)
        if len(trace.tokens) > MOST_TOKENS:
            raise InputError(
                f"The text has {len(trace.tokens)} tokens; this page shows up to {MOST_TOKENS}. "
                "Use `headscope view` for longer ones."
            )
        if not ablate:
            return [trace]
        # The second trace reads what the model wrote for the first, so that both have one text.
        if generate:
            text, generate = "".join(trace.text.texts), 0
        with model.edit(*(without(layer, head) for layer, head in ablate)):
            return [trace, model.trace(text, pair, target=target)]


def make_server(desk: Desk, host: str = "127.0.0.1", port: int = 8765) -> ThreadingHTTPServer:
    """A server that is bound to its address; `serve_forever` starts it.

    Raises:
        InputError: the address cannot be used.
    """
    names = {*LOOPBACK, host}

    class Handler(_Handler):
        pass

    Handler.desk, Handler.names = desk, frozenset(names)
    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Cannot listen on {host}:{port}: {error}. Choose another with --host and --port."
        ) from None
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    """GET / sends the page; POST /trace and /row answer its requests."""

    desk: Desk
    names: frozenset[str]
    server_version = "headscope"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        """Send the page."""
        if not self._is_ours():
            return
        if self.path.split("?")[0] != "/":
            self._refuse(HTTPStatus.NOT_FOUND, f"There is nothing at {self.path}.")
            return
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.desk.page().encode())

    def do_POST(self) -> None:
        """Send a trace, or a row of a trace."""
        if not self._is_ours():
            return
        try:
            request = self._body()
            if self.path == "/trace":
                answer = json.dumps(self.desk.trace(request)).encode()
                self._send(HTTPStatus.OK, "application/json", answer)
            elif self.path == "/row":
                self._send(HTTPStatus.OK, "application/octet-stream", self.desk.row(request))
            else:
                self._refuse(HTTPStatus.NOT_FOUND, f"There is nothing at {self.path}.")
        except HeadscopeError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # a request that fails must not end the server
            message = f"Unexpected {type(error).__name__}: {error}"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, message)

    def log_message(self, *_: object) -> None:
        """Print nothing: the page shows answers and errors."""

    def _is_ours(self) -> bool:
        name = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if name in self.names:
            return True
        self._refuse(HTTPStatus.FORBIDDEN, f"This server is not {name!r}.")
        return False

    def _body(self) -> Request:
        if self.headers.get_content_type() != "application/json":
            raise InputError("Requests must be JSON (Content-Type: application/json).")
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = 0
        if not 0 < length <= MOST_BYTES:
            raise InputError(f"A request has 1 to {MOST_BYTES:,} bytes, not {length:,}.")
        try:
            request = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            raise InputError("The request is not JSON.") from None
        if not isinstance(request, dict):
            raise InputError("The request is not a JSON object.")
        return request

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True
        self._send(status, "application/json", json.dumps({"error": message}).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)


def _text(request: Request, name: str) -> str:
    value = request.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"{name} should be a text, not {value!r}.")
    return value


def _number(request: Request, name: str, least: int, most: int) -> int:
    value = request.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f"{name} should be a whole number from {least} to {most}, not {value!r}.")
    return value


def _heads(value: Any) -> list[tuple[int, int]]:
    try:
        return [(int(layer), int(head)) for layer, head in value]
    except (TypeError, ValueError):
        raise InputError(f"ablate should be pairs of layer and head, not {value!r}.") from None
