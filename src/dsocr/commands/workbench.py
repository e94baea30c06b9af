"""`dsocr workbench`."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.listening import listening
from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.errors import DataError, RunError

if TYPE_CHECKING:
    from dsocr.inference.reader import Transcriber
    from dsocr.runs import RunFolder
    from dsocr.workbench.window import Language


def workbench_command(
    printer: Printer,
    source: Path,
    *,
    run: Path | None,
    config: Path | None,
    work: Path | None,
    format: str | None,
    writer: str | None,
    encoding: str | None,
    port: int,
    show: bool,
    language: "Language",
) -> None:
    """`dsocr workbench`: until a signal ends it."""
    from dsocr.models.checkpoint import require_readable_adapter
    from dsocr.runs import RunFolder
    from dsocr.workbench.background import Training, recipe_of

    if not source.exists():
        raise DataError("no such file or folder", where=source)
    reads = None if run is None else RunFolder.open(run)
    if reads is not None:
        require_readable_adapter(reads.adapter)
    recipe = recipe_of(run, config)
    try:  # slow, and not needed to say what is not there
        import nicegui  # noqa: F401
    except ModuleNotFoundError as error:
        hint = 'pip install "dsocr-hw[workbench]"'
        raise RunError(f"the workbench needs {error.name}, which is not installed", hint=hint) from error
    from dsocr.data.source_report import SourceReport
    from dsocr.workbench.app import HOST, serve
    from dsocr.workbench.archive import fill, opened_shelf
    from dsocr.workbench.background import Reading
    from dsocr.workbench.session import Workbench
    from dsocr.workbench.store import kept_in

    quiet_libraries()
    listening(HOST, port).close()  # before pages are looked for, and as NiceGUI has no sentence for it
    folder = work or source.resolve().with_name(f"{source.resolve().stem}.workbench")
    notes = SourceReport(strict=False)
    with ExitStack() as stack:
        store = stack.enter_context(kept_in(folder / "corrections.sqlite"))
        shelf = stack.enter_context(opened_shelf(store, source, folder / "unpacked"))
        with printer.progress("finding lines", "pages") as tell:
            new = fill(store, shelf, notes, format=format, writer=writer, encoding=encoding, tell=tell)
        for left in notes.skipped:
            printer.complain(f"left out: {left.where}: {left.message}")
        bench = Workbench(source.resolve().name, store, shelf, folder)
        if not bench.pages:
            raise DataError("holds no page that can be shown", where=source)
        if reads is not None:
            bench.reading = Reading(store, shelf, partial(_reader, reads))
            bench.reading.start()
            stack.callback(bench.reading.end)
        if recipe is not None:
            bench.training = Training(store, shelf, folder, recipe)
            stack.callback(bench.training.end)
        printer.say(f"{len(bench.pages)} pages, {new} of them new; corrections: {folder / 'corrections.sqlite'}")
        printer.result(f"http://{HOST}:{port}/")
        serve(bench, language=language, port=port, show=show)


def _reader(run: "RunFolder") -> "Transcriber":
    """The run's own network, loaded when there is something to read."""
    from dsocr.inference.reader import Transcriber

    return Transcriber.of_run(run)
