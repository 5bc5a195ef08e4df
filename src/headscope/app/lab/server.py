"""The server of `headscope serve`: one page, and answers to what it asks.

Starlette routes, uvicorn serves. A request is checked (who asks: `gate`; what for: `wishes`) before
it waits for the model (`queue`), which runs one at a time.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headscope.app.lab.access import AccessControl, reader_of
from headscope.app.lab.jobs import Cancelled, DeadlineExceeded, JobQueue, QueueFull
from headscope.app.lab.requests import EFFECTS_TIMES, check_length, read_json, read_wish
from headscope.app.lab.service import LabService, TraceExpired
from headscope.errors import HeadscopeError, InputError

T = TypeVar("T")
LEFT = 499
"""The status of a request whose reader has left; nobody sees it."""
QUICK = ("row", "neurons")
"""What is answered from kept numbers, without the model."""
SLOW = ("edit", "score")
"""What the model runs for once."""
BACKLOG = 2048
"""Connections that wait to be accepted."""


def make_lab(desk: LabService, *, token: str = "", host: str = "127.0.0.1") -> Starlette:
    """The app, as any ASGI server runs it.

    Args:
        desk: the models, and what is kept.
        token: what a reader's first address has to carry; empty for none.
        host: the address that the server listens on.
    """
    queue: JobQueue | None = None

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal queue
        queue = JobQueue(desk.models.values(), desk.limits.waiting)
        try:
            yield
        finally:
            queue.close()

    async def run(request: Request, job: Callable[[], T], seconds: float) -> T:
        assert queue is not None
        return await queue.run(job, request.is_disconnected, seconds)

    async def page(_: Request) -> Response:
        return HTMLResponse(desk.page())

    async def trace(request: Request) -> Response:
        wish = read_wish(await _body(request, desk.limits.body), desk.models)
        await asyncio.to_thread(check_length, wish, desk.models[wish.model], desk.limits)
        job = partial(desk.trace, reader_of(request.headers), wish)
        return JSONResponse(await run(request, job, desk.limits.seconds))

    def ask(kind: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            wanted = await _body(request, desk.limits.body)
            reader = reader_of(request.headers)
            job = partial(desk.ask, reader, kind, wanted)
            if kind in QUICK:
                return _answer(job())
            desk.shelf.find(reader, wanted.get("id"))  # before it waits
            return _answer(await run(request, job, desk.limits.seconds))

        return answer

    async def effects(request: Request) -> Response:
        wanted = await _body(request, desk.limits.body)
        reader = reader_of(request.headers)
        desk.shelf.find(reader, wanted.get("id"))
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Mapping[str, object] | None] = asyncio.Queue()

        def tell(event: Mapping[str, object] | None) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        def advance(done: int, total: int) -> None:
            tell({"done": done, "total": total})

        async def measure() -> None:
            job = partial(desk.measure_effects, reader, wanted, advance)
            try:
                tell(await run(request, job, desk.limits.seconds * EFFECTS_TIMES))
            except Cancelled:
                pass
            except HeadscopeError as error:
                wait = {"wait": error.wait} if isinstance(error, QueueFull) else {}
                tell({"error": str(error), **wait})
            except Exception as error:  # the stream has begun: what failed is said in it
                tell({"error": f"Unexpected {type(error).__name__}: {error}"})
            finally:
                tell(None)

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
        Route("/effects", effects, methods=["POST"]),
        *(Route(f"/{kind}", ask(kind), methods=["POST"]) for kind in (*QUICK, *SLOW)),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(AccessControl, token=token, host=host)],
        exception_handlers={
            HeadscopeError: _refuse,
            Cancelled: _left,
            ClientDisconnect: _left,
            Exception: _fail,
        },
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address.

    Raises:
        InputError: the address cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Cannot listen on {host}:{port}: {error}. Choose another with --host and --port."
        ) from None


def make_server(desk: LabService, host: str, *, token: str = "") -> uvicorn.Server:
    """A server; `server.run(sockets=[bind(host, port)])` starts it."""
    lab = make_lab(desk, token=token, host=host)
    config = uvicorn.Config(
        lab,
        host=host,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def make_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(24)


async def _body(request: Request, most: int) -> Mapping[str, object]:
    """The JSON object of a request, no longer than it may be."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise InputError("Requests must be JSON (Content-Type: application/json).")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise InputError(f"A request has at most {most:,} bytes.")
    return read_json(body)


def _answer(answer: Mapping[str, object] | bytes) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/octet-stream")
    return JSONResponse(answer)


async def _refuse(_: Request, error: Exception) -> Response:
    if isinstance(error, QueueFull):
        headers = {"Retry-After": str(error.wait)}
        return JSONResponse({"error": str(error), "wait": error.wait}, 503, headers)
    status = (
        503
        if isinstance(error, DeadlineExceeded)
        else 410
        if isinstance(error, TraceExpired)
        else 400
    )
    return JSONResponse({"error": str(error)}, status)


async def _left(_: Request, __: Exception) -> Response:
    return Response(status_code=LEFT)


async def _fail(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"Unexpected {type(error).__name__}: {error}"}, 500)
