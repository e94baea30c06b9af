"""The workbench as a server for browsers on this machine: its pages, its images, and how it ends."""

import logging
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fastapi import Response
from nicegui import app, ui
from nicegui.language import Language as Tag

from dsocr.errors import DsocrError
from dsocr.server.access import AccessMiddleware
from dsocr.workbench.interface_texts import Language
from dsocr.workbench.session import Session
from dsocr.workbench.window import Window

HOST = "127.0.0.1"
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
"""What ends a process besides Ctrl-C: `kill`, a closed terminal, on Windows a closed console."""


def serve(session: Session, *, language: Language, port: int, show: bool) -> None:
    """Serve until Ctrl-C (KeyboardInterrupt) or another signal (SystemExit)."""
    secret = session.store.setting("secret") or secrets.token_hex(32)
    session.store.set_setting("secret", secret)
    _add_routes(session, language)
    app.add_middleware(AccessMiddleware, hosts={"localhost", HOST})
    logging.getLogger("uvicorn.error").addFilter(_is_relevant)
    with _exit_on_signals():
        ui.run(
            host=HOST,
            port=port,
            show=show,
            reload=False,
            dark=None,
            storage_secret=secret,
            show_welcome_message=False,
            title="dsocr",
        )


def _add_routes(session: Session, default: Language) -> None:
    def respond(make: Callable[[], bytes]) -> Response:
        try:
            return Response(make(), media_type="image/jpeg")
        except DsocrError as error:
            return Response(str(error), status_code=404, media_type="text/plain")

    @app.get("/picture/page/{number}")
    def page_image(number: int, width: int = 0) -> Response:
        return respond(lambda: session.pictures.page(number, width))

    @app.get("/picture/line/{number}")
    def line_image(number: int) -> Response:
        return respond(lambda: session.line_jpeg(number))

    @app.get("/picture/thumbnail/{number}")
    def thumbnail(number: int) -> Response:
        return respond(lambda: session.pictures.thumbnail(number))

    @app.get("/pages.json")
    def pages() -> list[tuple[int, str, int, int]]:
        progress = session.store.progress()
        return [(number, page.name, *progress.get(number, (0, 0))) for number, page in session.pages.items()]

    def open_window(language: Language) -> Callable[[], None]:
        return lambda: Window(session, language, str(app.storage.browser["id"])).show()

    tags: dict[Language, Tag] = {"en": "en-US", "ru": "ru"}
    windows: dict[str, Language] = {"/": default, "/en": "en", "/ru": "ru"}
    for path, language in windows.items():
        ui.page(path, title=f"{session.name} - dsocr", language=tags[language])(open_window(language))


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for a browser that left before the image it had requested was ready, which Starlette logs as an error."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, RuntimeError) and str(error) == "No response returned.")


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn signals that would kill the process into SystemExit inside the block, so that everything is closed."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    former = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number, handler in former.items() if handler is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for number in handled:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, former[number])
