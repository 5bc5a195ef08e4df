"""Access control of the lab: Host header, Origin header and token of each request.

The address that `headscope serve` prints carries a token. A redirect exchanges it for a cookie, so
that an address shared from the browser lacks the token. The Host check prevents DNS rebinding, and
the Origin check cross-site requests. Without a token, each reader still gets an id with the page,
which separates readers' texts.
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
        if name in self._names or not self._is_anywhere:
            return name in self._names
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


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


def _forbid(scope: Scope, message: str) -> Response:
    if scope["method"] == "POST":
        return JSONResponse({"error": message}, 403)
    return PlainTextResponse(message, 403)
