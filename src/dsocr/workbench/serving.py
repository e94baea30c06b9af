"""The workbench as a server for browsers on this machine: its pages, its images, and how it ends."""

import hmac
import logging
import signal
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Literal

from fastapi import Request, Response
from nicegui import app, ui
from nicegui.language import Language as Tag
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from dsocr.errors import DsocrError
from dsocr.io.processes import SIGNALS, handling
from dsocr.language import Language, preferred_language
from dsocr.server.access import AccessMiddleware
from dsocr.workbench.session import Session
from dsocr.workbench.start_page import Projects, StartPage
from dsocr.workbench.window import Window

HOST = "127.0.0.1"
ANY = "0.0.0.0"  # noqa: S104 - only where somebody asks for it, and with a token
_COOKIE = "dsocr_token"


class Desk:
    """The session that the windows show; the start page opens another, and closes the one before."""

    def __init__(self, opened: Callable[[Path], AbstractContextManager[Session]]) -> None:
        self.session: Session | None = None
        self._opened = opened
        self._source: Path | None = None
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def open(self, source: Path) -> Session:
        """Open a source unless it is open. Raises DataError or RunError if it cannot be opened."""
        with self._lock:
            if self.session is None or self._source != source:
                self.close()
                self.session, self._source = self._stack.enter_context(self._opened(source)), source
            return self.session

    def close(self) -> None:
        """Close what is open; its windows go to the start page."""
        self.session = None
        self._stack.close()


def serve(
    desk: Desk,
    *,
    language: Language | None,
    port: int,
    show: bool,
    secret: str,
    projects: Projects | None = None,
    host: str = HOST,
    token: str | None = None,
    names: Collection[str] = (),
) -> None:
    """Serve until Ctrl-C (KeyboardInterrupt) or another signal (SystemExit).

    With a `token`, browsers must have opened the page with `?token=...` once. `names` are a proxy's host names, the
    `secret` signs cookies. With `projects` there is a start page. The browser chooses the `language` if it is None.
    """
    _add_routes(desk, language, projects)
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


def _add_routes(desk: Desk, fixed: Language | None, projects: Projects | None) -> None:
    @app.get("/")
    def choose_language(request: Request) -> RedirectResponse:
        language = fixed or preferred_language(request.headers.get("accept-language", ""))
        return RedirectResponse(request.url.replace(path=f"/{language}"))

    @app.get("/picture/{kind}/{number}")
    def picture(kind: Literal["page", "line", "thumbnail"], number: int, width: int = 0) -> Response:
        if (session := desk.session) is None:
            return Response("no scans are open", status_code=404, media_type="text/plain")
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
        if (session := desk.session) is None:
            return []
        progress = session.store.progress()
        return [(number, page.name, *progress.get(number, (0, 0))) for number, page in session.pages.items()]

    def add_pages(language: Language, tag: Tag) -> None:
        @ui.page(f"/{language}", language=tag)
        def window(at: str = "") -> RedirectResponse | None:
            if (session := desk.session) is None:
                return RedirectResponse(f"/{language}/start")
            ui.page_title(f"{session.name} - dsocr")
            Window(session, language, str(app.storage.browser["id"]), at=at, has_start=projects is not None).show()
            return None

        if projects is not None:

            @ui.page(f"/{language}/start", title="DSOCR-HW", language=tag)
            def start() -> None:
                StartPage(desk.open, projects, language).show()

    add_pages("en", "en-US")
    add_pages("ru", "ru")


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for a browser that left before the image it had requested was ready, which Starlette logs as an error."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, RuntimeError) and str(error) == "No response returned.")
