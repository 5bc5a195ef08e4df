"""Which requests the lab answers: those that call this machine by its own name, come from the lab's
own page, and are sent by a reader who had the token.

The address that `headscope serve` prints carries a token. It is exchanged for a cookie by a
redirect, so the address that stays in the browser, and is shared, carries none. The Host header
keeps other web sites from reaching the lab through a name that points here (DNS rebinding), the
Origin header from sending requests in the reader's name. Without a token readers still get a name
of their own with the page, which keeps their texts apart.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Iterable
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANYWHERE = ("0.0.0.0", "::", "")
TOKEN, READER = "headscope_token", "headscope_reader"
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
    """Turns strangers away before the app sees them.

    Args:
        app: what to guard.
        token: what a reader's first address carries; empty for none.
        host: the address that the server listens on.
        names: further names by which readers may call it.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, names: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._names = {*LOOPBACK, host.lower(), *(name.lower() for name in names)}
        self._is_anywhere = host in ANYWHERE
        if self._is_anywhere:
            self._names.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = self._refused(scope, headers) or self._exchanged(scope)
        if answer is None and not self._is_known(_cookie(headers, TOKEN)):
            answer = _no(scope, 403, "Open the address that `headscope serve` printed: it carries "
                                     "the token that this lab asks for.")  # fmt: skip

        is_new = not self._token and scope["path"] == "/" and not _cookie(headers, READER)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                sent.update(SAFE)
                if is_new:
                    name = f"{READER}={secrets.token_urlsafe(12)}"
                    sent.append("set-cookie", f"{name}; HttpOnly; Path=/; SameSite=lax")
            await send(message)

        await (answer or self._app)(scope, receive, send_safely)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return _no(scope, 403, f"This lab is not {_name_of(host)!r:.80}.")
        origin = headers.get("origin")
        if scope["method"] == "POST" and origin is not None and origin != f"http://{host}":
            return _no(scope, 403, f"Requests from {origin!r:.80} are not answered.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            scope["method"] == "POST"
        ):
            return _no(scope, 403, "Requests from another site are not answered.")
        return None

    def _exchanged(self, scope: Scope) -> Response | None:
        """A cookie for the token of a first address."""
        given = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token")
        if scope["method"] != "GET" or scope["path"] != "/" or not given:
            return None
        if not self._is_known(given[0]):
            return _no(scope, 403, "The token of this address is not that of the lab that runs.")
        answer = RedirectResponse("/", 303)
        for name, value in ((TOKEN, self._token), (READER, secrets.token_urlsafe(12))):
            answer.set_cookie(name, value, httponly=True, samesite="lax", path="/")
        return answer

    def _is_known(self, token: str) -> bool:
        return not self._token or secrets.compare_digest(token.encode(), self._token.encode())

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if name in self._names:
            return True
        return self._is_anywhere and _is_address(name)


def reader_of(headers: Headers) -> str:
    """Who asks: the name that the browser was given."""
    return _cookie(headers, READER)


def _cookie(headers: Headers, name: str) -> str:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers.get("cookie", ""))
    except Exception:  # http.cookies raises several kinds for what is no cookie
        return ""
    return cookies[name].value if name in cookies else ""


def _name_of(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _no(scope: Scope, status: int, message: str) -> Response:
    if scope["method"] == "POST":
        return JSONResponse({"error": message}, status)
    return PlainTextResponse(message, status)
