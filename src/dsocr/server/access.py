"""Access to a server: host names, tokens and origins, and the errors that it answers with.

A web page can make its visitor's browser send requests to a server on the visitor's own machine. The checks of host and
origin here keep such pages out.
"""

import hmac
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token."""


class RequestError(Exception):
    """A rejected request: HTTP status, a code for programs and a message for people.

    `retry_after` is in seconds; None where the same request would fail again.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        super().__init__(message)

    def response(self) -> JSONResponse:
        """The answer, in the form that OpenAI's clients expect."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        body = {"error": {"message": self.message, "type": kind, "code": self.code}}
        return JSONResponse(body, self.status, headers)


class AccessMiddleware:
    """Checks host, origin and token before anything else sees a request.

    `hosts` are the host names to answer under, None for any. Without a `token`, requests from pages of other sites are
    rejected too; with one they cannot have it. `csp` is the Content-Security-Policy of every response.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None,
        token: str | None = None,
        csp: str = "frame-ancestors 'none'",
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._token = None if token is None else token.encode()
        self._headers = [
            (b"content-security-policy", csp.encode()),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        error = self._check(scope)
        if error is None:
            await self._app(scope, receive, send_with_headers)
        elif scope["type"] == "http":
            await error.response()(scope, receive, send_with_headers)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": error.code})

    def _check(self, scope: Scope) -> RequestError | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "").lower()
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        if self._hosts is not None and name not in self._hosts:
            return RequestError(421, "unknown_host", "this server does not answer under that host name")
        if self._token is None:
            if not _is_same_origin(scope, headers, host):
                return RequestError(403, "cross_origin", "requests from pages of other sites are not accepted")
        elif scope["path"] not in PUBLIC_PATHS:
            scheme, _, given = headers.get(b"authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self._token):
                return RequestError(401, "invalid_token", "send the server's token: Authorization: Bearer TOKEN")
        return None


def _is_same_origin(scope: Scope, headers: dict[bytes, str], host: str) -> bool:
    """Browsers name a page's origin with every POST and websocket; other programs name none."""
    origin = headers.get(b"origin")
    if origin is None:
        return scope["type"] == "http" and (
            scope["method"] in {"GET", "HEAD"} or headers.get(b"sec-fetch-site") != "cross-site"
        )
    return urlsplit(origin).netloc.lower() == host
