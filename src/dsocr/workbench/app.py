"""A workbench answered for to browsers on this machine, until a signal ends it."""

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
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dsocr.errors import DsocrError
from dsocr.workbench.session import Workbench
from dsocr.workbench.window import Language, Window

HOST = "127.0.0.1"

_TAGS: dict[Language, Tag] = {"en": "en-US", "ru": "ru"}
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
"""What ends a process besides Ctrl-C: `kill`, a closed terminal, on Windows a closed console."""


def serve(bench: Workbench, *, language: Language, port: int, show: bool) -> None:
    """Answer until Ctrl-C (KeyboardInterrupt) or another signal (SystemExit) ends it."""
    secret = bench.store.setting("secret") or secrets.token_hex(32)
    bench.store.set_setting("secret", secret)
    _serve_pictures(bench)
    _serve_windows(bench, language)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", HOST])
    logging.getLogger("uvicorn.error").addFilter(_is_of_interest)
    with _unwinding():
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


def _serve_pictures(bench: Workbench) -> None:
    def picture(make: Callable[[int], bytes], number: int) -> Response:
        try:
            return Response(make(number), media_type="image/jpeg")
        except DsocrError as error:
            return Response(str(error), status_code=404, media_type="text/plain")

    @app.get("/picture/page/{number}")
    def page_picture(number: int) -> Response:
        return picture(bench.page_picture, number)

    @app.get("/picture/line/{number}")
    def line_picture(number: int) -> Response:
        return picture(bench.line_picture, number)


def _serve_windows(bench: Workbench, usual: Language) -> None:
    def windows(language: Language) -> Callable[[], None]:
        return lambda: _open_window(bench, language)

    title = f"{bench.name} - dsocr"
    ui.page("/", title=title, language=_TAGS[usual])(windows(usual))
    for language, tag in _TAGS.items():
        ui.page(f"/{language}", title=title, language=tag)(windows(language))


def _open_window(bench: Workbench, language: Language) -> None:
    Window(bench, language, str(app.storage.browser["id"]))


def _is_of_interest(record: logging.LogRecord) -> bool:
    """False where somebody left before the picture they had asked for was made: Starlette takes that for a fault."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, RuntimeError) and str(error) == "No response returned.")


@contextmanager
def _unwinding() -> Iterator[None]:
    """Inside, a signal that would end the process at once raises SystemExit, so that all is closed on the way out."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    former = {number: signal.getsignal(number) for number in _ENDING}
    heard = [number for number, handler in former.items() if handler is not signal.SIG_IGN]  # as nohup has it
    for number in heard:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, former[number])
