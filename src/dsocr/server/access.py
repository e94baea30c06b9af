"""Who may talk to a server: host names, tokens, origins, and how many requests at once.

A web page can make its visitor's browser send requests to a server on the visitor's own machine. The checks of host and
origin here keep such pages out.
"""

import hmac
import json
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token and are answered however many requests are open."""


class RequestError(Exception):
    """A request that is not served: HTTP status, a code for programs and a message for people.

    `retry_after` is in seconds; None where the same request would fail again.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        super().__init__(message)

    def headers(self) -> dict[str, str]:
        """The HTTP headers that belong to the status."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers

    def body(self) -> dict[str, Any]:
        """The JSON body, in the form that OpenAI's clients expect."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "code": self.code}}


class AccessMiddleware:
    """Checks host, origin, token and the number of open requests before anything else sees a request.

    `hosts` are the host names to answer under, None for any. Without a `token`, requests that another site's page
    sends are rejected too; with one they cannot have it. `csp` is the Content-Security-Policy of every response.
    `on_reject` is called with the code of each rejected request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None,
        token: str | None = None,
        max_open: int | None = None,
        csp: str = "frame-ancestors 'none'",
        on_reject: Callable[[str], None] = lambda code: None,
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._token = None if token is None else token.encode()
        self._max_open = max_open
        self._on_reject = on_reject
        self._headers = [
            (b"content-security-policy", csp.encode()),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
        ]
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with the reason why not."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        self._open += 1
        try:
            error = self._check(scope)
            if error is None:
                await self._app(scope, receive, send_with_headers)
                return
            self._on_reject(error.code)
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": error.code})
            else:
                await _send_error(error, send_with_headers)
        finally:
            self._open -= 1

    def _check(self, scope: Scope) -> RequestError | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return RequestError(421, "unknown_host", "this server does not answer under that host name")
        if self._token is None and not _is_same_origin(scope, headers, host):
            return RequestError(403, "cross_origin", "requests from pages of other sites are not accepted")
        if scope["path"] in PUBLIC_PATHS:
            return None
        if self._token is not None and not _has_token(headers.get(b"authorization", ""), self._token):
            return RequestError(401, "invalid_token", "send the server's token: Authorization: Bearer TOKEN")
        if self._max_open is not None and self._open > self._max_open:
            return RequestError(503, "overloaded", "too many requests are open; try again in 1 s", retry_after=1)
        return None


async def _send_error(error: RequestError, send: Send) -> None:
    body = json.dumps(error.body()).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers()}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _is_same_origin(scope: Scope, headers: dict[bytes, str], host: str) -> bool:
    """Browsers name a page's origin with every POST and websocket; other programs name none."""
    origin = headers.get(b"origin")
    if origin is None:
        return scope["type"] == "http" and (
            scope["method"] in {"GET", "HEAD"} or headers.get(b"sec-fetch-site") != "cross-site"
        )
    return urlsplit(origin).netloc.lower() == host


def _has_token(authorization: str, token: bytes) -> bool:
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), token)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]
