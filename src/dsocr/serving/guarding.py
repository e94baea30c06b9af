"""What stands before every request: who may ask, under which host name, and that each answer is counted.

Plain ASGI, so that nothing of a body is read before.
"""

import hmac
import json
import time
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsocr.serving.limits import RefusedError
from dsocr.serving.measures import Measures

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need no token: they tell nothing but whether the server lives."""


class Gate:
    """Lets a request pass that has the token and asks for a host of ours, `most` at once; counts what is answered.

    The host is looked at because a web page can make its visitor's browser ask a server on the visitor's own machine
    under a name that the page's owner made point there.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, hosts: Collection[str] | None, measures: Measures, most: int
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = hosts
        self._measures = measures
        self._most = most
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, statuses = time.monotonic(), [500]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[0] = message["status"]
            await send(message)

        self._open += 1
        try:
            if refusal := self._refusal(scope):
                self._measures.was_refused(refusal.code)
                await answer_refusal(refusal, sending)
            else:
                await self._app(scope, receive, sending)
        finally:
            self._open -= 1
            route = scope.get("route")
            path = route.path if route is not None else "other"  # what anybody may write is no label
            self._measures.was_answered(path, statuses[0], time.monotonic() - started)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        headers = {name: value for name, value in scope["headers"] if name in {b"host", b"authorization"}}
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return RefusedError(421, "other_host", "this server does not answer under that host name")
        if scope["path"] in OPEN:
            return None
        if self._token is not None and not _tells(headers.get(b"authorization", b""), self._token):
            return RefusedError(401, "no_token", "give the server's token: Authorization: Bearer TOKEN")
        if self._open > self._most:
            return RefusedError(503, "crowded", "too many requests are open; try again in 1 s", retry_after=1)
        return None


def refusal_headers(refusal: RefusedError) -> dict[str, str]:
    """The headers that belong to a refusal's status."""
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    return headers


def refusal_body(refusal: RefusedError) -> dict[str, Any]:
    """A refusal as OpenAI's clients read it."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {"error": {"message": refusal.message, "type": kind, "code": refusal.code}}


async def answer_refusal(refusal: RefusedError, send: Send) -> None:
    """Send a refusal as an answer of its own."""
    body = json.dumps(refusal_body(refusal)).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refusal_headers(refusal)}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _tells(authorization: bytes, token: bytes) -> bool:
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]
