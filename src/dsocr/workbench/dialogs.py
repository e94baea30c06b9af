"""The dialogs of a workbench's window."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nicegui import run, ui

from dsocr.errors import DsocrError
from dsocr.workbench.page_export import EXPORT_FORMATS, export, export_dataset
from dsocr.workbench.session import Session

_DATASET = "dataset"

Translate = Callable[..., str]
"""The text of a name in the window's language, with values filled in."""


def notify_error(error: DsocrError) -> None:
    """Show an error with its remedy."""
    ui.notify(f"{error}. {error.hint or ''}", type="negative", multi_line=True)


@contextmanager
def disabled(button: ui.button) -> Iterator[None]:
    """Disable a button inside the block."""
    button.disable()
    try:
        yield
    finally:
        button.enable()


def open_export_dialog(session: Session, translate: Translate) -> None:
    """Ask for a format and a folder, and write all pages."""
    with ui.dialog() as dialog, ui.card().classes("w-96"):
        kinds = {name: name for name in EXPORT_FORMATS} | {_DATASET: translate("dataset")}
        kind = ui.select(kinds, value="page").classes("w-full").props("outlined")
        only = ui.checkbox(translate("accepted_only"), value=True)
        folder = ui.input(translate("folder"), value=str(session.work / "export")).classes("w-full")
        button = ui.button(translate("write"))

        async def write() -> None:
            with disabled(button):
                try:
                    messages = await run.io_bound(
                        _write_files, session, translate, kind.value, Path(folder.value), accepted_only=only.value
                    )
                except DsocrError as error:
                    notify_error(error)
                    return
            if messages is None:  # the workbench is shutting down
                return
            for warning in messages[1:]:
                ui.notify(warning, type="warning")
            dialog.close()
            ui.notify(messages[0], type="positive", timeout=8000)

        button.on_click(write)
    dialog.open()


def _write_files(session: Session, translate: Translate, kind: str, out: Path, *, accepted_only: bool) -> list[str]:
    """Write the export, which may take minutes; returns a summary and warnings."""
    if kind == _DATASET:
        return [str(export_dataset(session.store, session.archive, out, overwrite=True).folder)]
    report = export(session.store, session.archive, out, to=kind, accepted_only=accepted_only, overwrite=out.exists())
    summary = translate("written", pages=report.pages, texts=report.texts, out=report.out)
    return [summary, *(f"{left.where}: {left.message}" for left in report.skipped)]
