"""Decides which requests are answered: those with the token, to one of the server's own names, from its own pages.

A page of another site can make a browser send requests here. But it does not know the token, a form that it sends has
another Origin, and if it redirects a name of its own to this machine, the Host is not one of ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Refuse = Callable[[Request, int, str], Response]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without any referrer, the Origin of a form would be "null"
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """An ASGI application that passes allowed requests on to another one."""

    def __init__(self, app: Any, *, token: str, host: str, refuse: Refuse) -> None:
        self._app, self._token, self._refuse = app, token, refuse
        self._names = _names_of(host)
        self._any_address = _is_wildcard(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        response = self._judge(request)

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                extra = {**HEADERS, **({} if b"cache-control" in known else {"Cache-Control": "no-store"})}
                message["headers"] = [*message["headers"], *((n.encode(), v.encode()) for n, v in extra.items())]
            await send(message)

        await (self._app if response is None else response)(scope, receive, send_with_headers)

    def _judge(self, request: Request) -> Response | None:
        """None if the request is allowed, otherwise the refusal."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return self._refuse(request, 403, f"This server does not answer to the name {host!r}.")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return self._refuse(request, 403, "The request comes from a page of another site.")
        if request.url.path.startswith("/static/"):
            return None
        if request.method in ("GET", "HEAD") and "token" in request.query_params:
            return self._enter(request)
        if not self._is_known(self._cookie(request)):
            return self._refuse(request, 401, "")
        if request.method not in ("GET", "HEAD") and origin is None:
            return self._refuse(request, 403, "An action must come from a page of this server.")
        return None

    def _enter(self, request: Request) -> Response:
        if not self._is_known(request.query_params["token"]):
            return self._refuse(request, 401, "")
        rest = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        response = RedirectResponse(f"{request.url.path}?{urlencode(rest)}".rstrip("?"), status_code=303)
        response.set_cookie(self._cookie_name(request), self._token, httponly=True, samesite="lax", path="/")
        return response

    def _is_known(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self._token.encode())

    def _cookie(self, request: Request) -> str:
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(request.headers.get("cookie", ""))
        except CookieError:
            return ""
        found = jar.get(self._cookie_name(request))
        return "" if found is None else found.value

    @staticmethod
    def _cookie_name(request: Request) -> str:
        """Contains the port, because all servers of a host share cookies."""
        return f"holdfast_ui_{_split(request.headers.get('host', ''))[1] or 80}"

    def _is_ours(self, host: str) -> bool:
        name, _ = _split(host)
        return name in self._names or (self._any_address and _is_address(name))


def checks_form(token: str, given: object) -> bool:
    """Whether a page of this server made the form."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(errors="replace"), form_token(token).encode())


def form_token(token: str) -> str:
    """A value that a page may hold, because it does not reveal the token."""
    return hmac.new(token.encode(), b"holdfast form", "sha256").hexdigest()


def _split(host: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None


def _is_wildcard(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    """The owner of a name can redirect it to this machine. An address cannot be redirected."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _names_of(host: str) -> set[str]:
    if is_loopback(host):
        return {host.lower(), *_LOOPBACK}
    if _is_wildcard(host):
        return {*_LOOPBACK, socket.gethostname().lower(), socket.getfqdn().lower()}
    return {host.lower()}
