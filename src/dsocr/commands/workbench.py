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
    """Run `dsocr workbench` until a signal ends it."""
    from dsocr.models.checkpoint import require_readable_adapter
    from dsocr.runs import RunFolder
    from dsocr.workbench.background import BackgroundReader, BackgroundTraining, find_training_config

    if not source.exists():
        raise DataError("no such file or folder", where=source)
    reads = None if run is None else RunFolder.open(run)
    if reads is not None:
        require_readable_adapter(reads.adapter)
    training_config = find_training_config(run, config)
    try:  # slow, and not needed to say what is not there
        import nicegui  # noqa: F401
    except ModuleNotFoundError as error:
        hint = 'pip install "dsocr-hw[workbench]"'
        raise RunError(f"the workbench needs {error.name}, which is not installed", hint=hint) from error
    from dsocr.data.source_report import SourceReport
    from dsocr.workbench.app import HOST, serve
    from dsocr.workbench.archive import import_pages, open_archive
    from dsocr.workbench.session import Session
    from dsocr.workbench.store import open_store

    quiet_libraries()
    listening(HOST, port).close()  # before lines are detected, and because NiceGUI reports a used port badly
    folder = work or source.resolve().with_name(f"{source.resolve().stem}.workbench")
    notes = SourceReport(strict=False)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(folder / "corrections.sqlite"))
        archive = stack.enter_context(open_archive(store, source, folder / "unpacked"))
        with printer.progress("finding lines", "pages") as progress:
            options = {"format": format, "writer": writer, "encoding": encoding}
            new = import_pages(store, archive, notes, **options, progress=progress)
        for left in notes.skipped:
            printer.complain(f"left out: {left.where}: {left.message}")
        session = Session(source.resolve().name, store, archive, folder)
        if not session.pages:
            raise DataError("holds no page that can be shown", where=source)
        if reads is not None:
            session.reader = BackgroundReader(store, archive, partial(_load_reader, reads))
            session.reader.start()
            stack.callback(session.reader.stop)
        if training_config is not None:
            session.training = BackgroundTraining(store, archive, folder, training_config)
            stack.callback(session.training.stop)
        printer.say(f"{len(session.pages)} pages, {new} of them new; corrections: {folder / 'corrections.sqlite'}")
        printer.result(f"http://{HOST}:{port}/")
        serve(session, language=language, port=port, show=show)


def _load_reader(run: "RunFolder") -> "Transcriber":
    """The run's model, loaded when there is something to read."""
    from dsocr.inference.reader import Transcriber

    return Transcriber.of_run(run)
