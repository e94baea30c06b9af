"""The workbench as a server for browsers on this machine: its pages, its images, and how it ends."""

import hmac
import logging
import secrets
import signal
import sys
from collections.abc import Callable, Collection
from typing import Literal

from fastapi import Response
from nicegui import app, ui
from nicegui.language import Language as Tag
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from dsocr.errors import DsocrError
from dsocr.io.processes import SIGNALS, handling
from dsocr.language import Language
from dsocr.server.access import AccessMiddleware
from dsocr.workbench.session import Session
from dsocr.workbench.window import Window

HOST = "127.0.0.1"
ANY = "0.0.0.0"  # noqa: S104 - only where somebody asks for it, and with a token
_COOKIE = "dsocr_token"


def serve(
    session: Session,
    *,
    language: Language,
    port: int,
    show: bool,
    host: str = HOST,
    token: str | None = None,
    names: Collection[str] = (),
) -> None:
    """Serve until Ctrl-C (KeyboardInterrupt) or another signal (SystemExit).

    With a `token`, browsers must have opened the page with `?token=...` once. `names` are a proxy's host names.
    """
    secret = session.store.setting("secret") or secrets.token_hex(32)
    session.store.set_setting("secret", secret)
    _add_routes(session, language)
    if token is not None:
        app.add_middleware(TokenMiddleware, token=token, secret=secret)
    app.add_middleware(AccessMiddleware, hosts=None if host == ANY else {"localhost", HOST, *names})
    logging.getLogger("uvicorn.error").addFilter(_is_relevant)
    with handling(set(SIGNALS) - {signal.SIGINT}, lambda number, _: sys.exit(128 + number)):  # closes everything
        ui.run(
            host=host,
            port=port,
            show=show,
            reload=False,
            dark=None,
            storage_secret=secret,
            show_welcome_message=False,
            title="dsocr",
        )


class TokenMiddleware:
    """Lets in browsers that have shown the token once, in the address; a cookie remembers it for a month.

    The cookie holds a keyed hash of the token, so that another token, or another store, makes it worthless.
    """

    def __init__(self, app: ASGIApp, *, token: str, secret: str) -> None:
        self._app = app
        self._token = token.encode()
        self._cookie = hmac.new(secret.encode(), self._token, "sha256").hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        given = connection.cookies.get(_COOKIE, "").encode()
        shown = connection.query_params.get("token", "").encode()
        if hmac.compare_digest(given, self._cookie.encode()):
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and hmac.compare_digest(shown, self._token):
            answer = RedirectResponse(scope["path"], status_code=303)  # the address without the token
            answer.set_cookie(_COOKIE, self._cookie, max_age=30 * 86400, httponly=True, samesite="strict")
            await answer(scope, receive, send)
        elif scope["type"] == "http":
            text = "Open the address that dsocr workbench printed, with its token."
            await PlainTextResponse(text, status_code=401)(scope, receive, send)
        else:
            await WebSocketClose(1008, "invalid_token")(scope, receive, send)


def _add_routes(session: Session, default: Language) -> None:
    @app.get("/picture/{kind}/{number}")
    def picture(kind: Literal["page", "line", "thumbnail"], number: int, width: int = 0) -> Response:
        try:
            match kind:
                case "page":
                    content = session.pictures.page(number, width)
                case "line":
                    content = session.line_jpeg(number)
                case "thumbnail":
                    content = session.pictures.thumbnail(number)
        except DsocrError as error:
            return Response(str(error), status_code=404, media_type="text/plain")
        return Response(content, media_type="image/jpeg")

    @app.get("/pages.json")
    def pages() -> list[tuple[int, str, int, int]]:
        progress = session.store.progress()
        return [(number, page.name, *progress.get(number, (0, 0))) for number, page in session.pages.items()]

    def open_window(language: Language) -> Callable[[str], None]:
        def show(at: str = "") -> None:
            Window(session, language, str(app.storage.browser["id"]), at=at).show()

        return show

    tags: dict[Language, Tag] = {"en": "en-US", "ru": "ru"}
    windows: dict[str, Language] = {"/": default, "/en": "en", "/ru": "ru"}
    for path, language in windows.items():
        ui.page(path, title=f"{session.name} - dsocr", language=tags[language])(open_window(language))


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for a browser that left before the image it had requested was ready, which Starlette logs as an error."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, RuntimeError) and str(error) == "No response returned.")
