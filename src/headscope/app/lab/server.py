"""Server of `headscope serve`: one page, and replies to its requests.

Each request passes `AccessControl` and `requests` before it waits in `jobs` for the model.

The address that `headscope serve` prints carries a token. A redirect exchanges it for a cookie, so
that an address shared from the browser lacks the token. The Host check prevents DNS rebinding, and
the Origin check cross-site requests. Without a token, each reader still gets an id with the page,
which separates readers' texts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http.cookies import SimpleCookie
from typing import TypeVar
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from headscope.app.lab.jobs import Cancelled, DeadlineExceeded, JobQueue, QueueFull
from headscope.app.lab.requests import EFFECTS_TIMES, check_length, read_json, read_trace_request
from headscope.app.lab.service import LabService, TraceExpired
from headscope.errors import HeadscopeError, InputError

T = TypeVar("T")
CLIENT_CLOSED_REQUEST = 499
"""Status of a request whose reader has left."""
QUICK = ("row", "neurons")
"""Requests answered from stored arrays, without the model."""
SLOW = ("edit", "score")
"""Requests that run the model once."""
MEASURED = ("effects", "wires")
"""Requests that run the model many times and report progress."""
BACKLOG = 2048
MAX_CONNECTIONS = 500
IDLE_SECONDS = 10.0
"""Time limit of a request's headers and of its body; idle connections are closed soon after it."""


def make_lab(service: LabService, *, token: str = "", host: str = "127.0.0.1") -> Starlette:
    """Return the ASGI app for an address; an empty token is not required."""
    queue: JobQueue | None = None

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal queue
        queue = JobQueue(service.models.values(), service.limits.waiting)
        try:
            yield
        finally:
            queue.close()

    async def run(request: Request, job: Callable[[], T], seconds: float) -> T:
        assert queue is not None
        return await queue.run(job, request.is_disconnected, seconds)

    async def page(_: Request) -> Response:
        return HTMLResponse(service.page())

    async def trace(request: Request) -> Response:
        body = await _body(request, service.limits.body)
        trace_request = read_trace_request(body, service.models)
        await asyncio.to_thread(
            check_length, trace_request, service.models[trace_request.model], service.limits
        )
        job = partial(service.trace, reader_of(request.scope), trace_request)
        return JSONResponse(await run(request, job, service.limits.seconds))

    def ask(kind: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body = await _body(request, service.limits.body)
            reader = reader_of(request.scope)
            job = partial(service.ask, reader, kind, body)
            if kind in QUICK:
                return _answer(job())
            service.store.find(reader, body.get("id"))  # fails before it waits
            return _answer(await run(request, job, service.limits.seconds))

        return answer

    async def measured(kind: str, request: Request) -> Response:
        body = await _body(request, service.limits.body)
        reader = reader_of(request.scope)
        service.store.find(reader, body.get("id"))
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Mapping[str, object] | None] = asyncio.Queue()

        def send(event: Mapping[str, object] | None) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        def advance(done: int, total: int) -> None:
            send({"done": done, "total": total})

        async def measure() -> None:
            job = partial(service.measure, reader, kind, body, advance)
            try:
                send(await run(request, job, service.limits.seconds * EFFECTS_TIMES))
            except Cancelled:
                pass
            except HeadscopeError as error:
                wait = {"wait": error.wait} if isinstance(error, QueueFull) else {}
                send({"error": str(error), **wait})
            except Exception as error:  # the stream has begun: the error becomes an event
                send({"error": f"Unexpected {type(error).__name__}: {error}"})
            finally:
                send(None)

        async def stream() -> AsyncIterator[bytes]:
            task = asyncio.create_task(measure())
            try:
                while (event := await events.get()) is not None:
                    yield f"data: {json.dumps(event)}\n\n".encode()
            finally:
                task.cancel()

        return StreamingResponse(stream(), media_type="text/event-stream")

    routes = [
        Route("/", page),
        Route("/trace", trace, methods=["POST"]),
        *(Route(f"/{kind}", partial(measured, kind), methods=["POST"]) for kind in MEASURED),
        *(Route(f"/{kind}", ask(kind), methods=["POST"]) for kind in (*QUICK, *SLOW)),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(AccessControl, token=token, host=host)],
        exception_handlers={
            HeadscopeError: _reject,
            Cancelled: _close,
            ClientDisconnect: _close,
            Exception: _fail,
        },
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket; raise InputError if the address cannot be used."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Cannot listen on {host}:{port}: {error}. Choose another with --host and --port."
        ) from None


def make_server(service: LabService, host: str, *, token: str = "") -> uvicorn.Server:
    """Return a server; `server.run(sockets=[bind(host, port)])` starts it."""
    lab = make_lab(service, token=token, host=host)
    config = uvicorn.Config(
        lab,
        host=host,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        http=_TimedProtocol,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


class _TimedProtocol(H11Protocol):
    """HTTP connection that is closed while it sends no request, and beyond a number of others."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._was_idle = False
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(IDLE_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._was_idle:
            self.transport.close()
        if not self.transport.is_closing():
            self._was_idle = is_idle
            self.loop.call_later(IDLE_SECONDS, self._close_if_idle)


async def _body(request: Request, most: int) -> Mapping[str, object]:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise InputError("Requests must be JSON (Content-Type: application/json).")
    body = b""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise InputError(f"A request has at most {most:,} bytes.")
    except TimeoutError:
        raise InputError(f"The request was not complete after {IDLE_SECONDS:g} seconds.") from None
    return read_json(body)


def _answer(answer: Mapping[str, object] | bytes) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/octet-stream")
    return JSONResponse(answer)


async def _reject(_: Request, error: Exception) -> Response:
    if isinstance(error, QueueFull):
        headers = {"Retry-After": str(error.wait)}
        return JSONResponse({"error": str(error), "wait": error.wait}, 503, headers)
    expired = 410 if isinstance(error, TraceExpired) else 400
    status = 503 if isinstance(error, DeadlineExceeded) else expired
    return JSONResponse({"error": str(error)}, status)


async def _close(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _fail(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"Unexpected {type(error).__name__}: {error}"}, 500)


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANYWHERE = ("0.0.0.0", "::", "")
TOKEN, READER = "headscope_token", "headscope_reader"
"""Names of cookies, followed by the port: browsers send cookies to all ports of a host."""
SAFE = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class AccessControl:
    """Rejects requests of other sites and hosts, and without the token (empty for none)."""

    def __init__(self, app: ASGIApp, token: str, host: str, names: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = {*LOOPBACK, host.lower(), *(name.lower() for name in names)}
        self._is_anywhere = host in ANYWHERE
        if self._is_anywhere:
            self._names.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = self._reject(scope, headers) or self._exchange(scope)
        if answer is None and not self._is_valid(_cookie(scope, TOKEN)):
            answer = _forbid(scope, "This lab requires a token. Open the address that "
                                    "`headscope serve` printed.")  # fmt: skip

        is_new = not self._token and scope["path"] == "/" and not reader_of(scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                sent.update(SAFE)
                if is_new:
                    cookie = f"{_name(scope, READER)}={secrets.token_urlsafe(12)}"
                    sent.append("set-cookie", f"{cookie}; HttpOnly; Path=/; SameSite=lax")
            await send(message)

        await (answer or self._app)(scope, receive, send_safely)

    def _reject(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return _forbid(scope, f"This lab is not {_host_name(host)!r:.80}.")
        origin = headers.get("origin")
        if scope["method"] == "POST" and origin is not None and origin != f"http://{host}":
            return _forbid(scope, f"Requests from {origin!r:.80} are not answered.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            scope["method"] == "POST"
        ):
            return _forbid(scope, "Requests from another site are not answered.")
        return None

    def _exchange(self, scope: Scope) -> Response | None:
        """Exchange the token of a printed address for a cookie."""
        tokens = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token")
        if scope["method"] != "GET" or scope["path"] != "/" or not tokens:
            return None
        if not self._is_valid(tokens[0]):
            return _forbid(scope, "The token of this address is not that of the running lab.")
        answer = RedirectResponse("/", 303)
        for name, value in ((TOKEN, self._token), (READER, secrets.token_urlsafe(12))):
            cookie = _name(scope, name)
            answer.set_cookie(cookie, value, httponly=True, samesite="lax", path="/")
        return answer

    def _is_valid(self, token: str) -> bool:
        return not self._token or secrets.compare_digest(token.encode(), self._token.encode())

    def _is_ours(self, host: str) -> bool:
        name = _host_name(host)
        if name in self._names:
            return True
        return self._is_anywhere and _is_address(name)


def reader_of(scope: Scope) -> str:
    """Return the reader's id from the cookie."""
    return _cookie(scope, READER)


def _name(scope: Scope, name: str) -> str:
    return f"{name}_{(scope.get('server') or ('', 0))[1]}"


def _cookie(scope: Scope, name: str) -> str:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(Headers(scope=scope).get("cookie", ""))
    except Exception:  # http.cookies raises several kinds for a malformed cookie
        return ""
    cookie = cookies.get(_name(scope, name))
    return cookie.value if cookie is not None else ""


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _forbid(scope: Scope, message: str) -> Response:
    if scope["method"] == "POST":
        return JSONResponse({"error": message}, 403)
    return PlainTextResponse(message, 403)
