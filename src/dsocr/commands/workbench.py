"""`dsocr workbench`."""

import secrets
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.listening import listening
from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.errors import DataError, RunError

if TYPE_CHECKING:
    from dsocr.workbench.words import Language

_HOST = "127.0.0.1"


def workbench_command(
    printer: Printer,
    source: Path,
    *,
    run: Path | None,
    config: Path | None,
    work: Path | None,
    format: str | None,
    writer: str | None,
    port: int,
    show: bool,
    language: "Language",
) -> None:
    """`dsocr workbench`: until a signal ends it."""
    try:
        from nicegui import app, ui
    except ModuleNotFoundError as error:
        hint = 'pip install "dsocr-hw[workbench]"'
        raise RunError(f"the workbench needs {error.name}, which is not installed", hint=hint) from error
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from dsocr.data.notes import Notes
    from dsocr.inference.transcriber import Transcriber
    from dsocr.runs import RunFolder
    from dsocr.workbench.bench import Workbench
    from dsocr.workbench.opening import fill, opened_shelf
    from dsocr.workbench.reading import Reading
    from dsocr.workbench.store import Store
    from dsocr.workbench.training import Training, recipe_of
    from dsocr.workbench.window import Window, serve_pictures

    quiet_libraries()
    if not source.exists():
        raise DataError("no such file or folder", where=source)
    listening(_HOST, port).close()  # before pages are looked for, and as NiceGUI has no sentence for it
    folder = work or source.resolve().with_name(f"{source.resolve().stem}.workbench")
    reads = None if run is None else RunFolder.open(run)
    recipe = recipe_of(run, config)
    notes = Notes(strict=False)
    with ExitStack() as stack:
        store = stack.enter_context(closing(Store.open(folder / "corrections.sqlite")))
        shelf = stack.enter_context(opened_shelf(store, source, folder / "unpacked"))
        new = fill(store, shelf, notes, format=format, writer=writer)
        for left in notes.left_out:
            printer.complain(f"left out: {left.where}: {left.message}")
        bench = Workbench(source.resolve().name, store, shelf, folder)
        if not bench.pages:
            raise DataError("holds no page that can be shown", where=source)
        if reads is not None:
            bench.reading = Reading(store, shelf, partial(Transcriber.of_run, reads))
            bench.reading.start()
            stack.callback(bench.reading.end)
        if recipe is not None:
            bench.training = Training(store, shelf, folder, recipe)
            stack.callback(bench.training.end)
        secret = store.setting("secret") or secrets.token_hex(32)
        store.set_setting("secret", secret)
        serve_pictures(bench)

        def window(language: str = language) -> None:  # what stands in the address may be anything
            Window(bench, "ru" if language == "ru" else "en", str(app.storage.browser["id"]))

        ui.page("/", title=f"{bench.name} - dsocr")(window)
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", _HOST])
        printer.say(f"{len(bench.pages)} pages, {new} of them new; corrections: {folder / 'corrections.sqlite'}")
        printer.result(f"http://{_HOST}:{port}/")
        ui.run(
            host=_HOST,
            port=port,
            show=show,
            reload=False,
            dark=None,
            storage_secret=secret,
            show_welcome_message=False,
            title="dsocr",
        )
