"""The dialogs of a workbench."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

from nicegui import run, ui

from dsocr.data.convert import CONVERSION_FILE
from dsocr.errors import DsocrError
from dsocr.formats.documents import DOCUMENTS
from dsocr.io.files import safe_stem
from dsocr.io.work import explain_disk_errors
from dsocr.workbench.page_export import EXPORT_FORMATS, WITH_CONFIDENCES
from dsocr.workbench.session import DATASET, LOG, Session
from dsocr.workbench.stored_lines import State, StoredLine
from dsocr.workbench.words import Hit, Query, search

_SHOWN = 200
_KEY = "px-1.5 rounded border border-slate-400 text-sm whitespace-nowrap bg-slate-100 dark:bg-slate-700"

KEYS = (
    ("Enter", "key_enter"),
    ("Alt+↓ Alt+↑", "key_move"),
    ("Alt+U", "key_unreadable"),
    ("Alt+S", "key_split"),
    ("Alt+J", "key_join"),
    ("Alt+Z", "key_undo"),
    ("Alt+A", "key_alternatives"),
    ("Alt+Q Alt+G Alt+X Alt+I", "key_marks"),
    ("Alt+N", "key_note"),
    ("Alt+R", "key_search"),
    ("Alt++ Alt+- Alt+0", "key_view"),
    ("Alt+F Alt+L Alt+T Alt+C", "key_fit"),
    ("Alt+V", "key_read"),
    ("Alt+E", "key_shape"),
    ("B N K M G Del [ ] Enter", "key_shapes"),
    ("1 … 9", "key_kinds"),
    ("Tab ←↑→↓ Ins Del", "key_points"),
    ("Alt+B", "key_grid"),
    ("R G Ins Del M K", "key_grids"),
    ("F1 Alt+H ?", "key_help"),
)
"""Every key of the window and its action."""

Translate = Callable[..., str]
"""The text of a name in the window's language, with values filled in."""


def set_colours() -> None:
    """Give a page colours that are legible on light and on dark backgrounds."""
    ui.colors(primary="#1d4ed8", dark="#1e293b")  # white text on them is legible, unlike on the default primary
    ui.add_css(".body--light .nicegui-link { color: #1d4ed8; }")
    # but as text on a dark background it is not
    ui.add_css(".body--dark :is(.text-primary, .q-field, .nicegui-link) { --q-primary: #93c5fd; color: #93c5fd; }")
    ui.query("body").classes("bg-slate-100 dark:bg-slate-900")


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


@contextmanager
def opened_dialog(name: str, width: str, *, has_title: bool = True) -> Iterator[ui.dialog]:
    """A dialog to fill inside the block, opened at its end."""
    with ui.dialog().props(f'aria-label="{name}"') as dialog, ui.card().classes(f"{width} max-w-full"):
        if has_title:
            ui.label(name).classes("text-lg font-semibold").props('role="heading" aria-level="2"')
        yield dialog
    dialog.open()


def _add_buttons(dialog: ui.dialog, action: str, cancel: str) -> ui.button:
    """Add a button for the action, which is returned, and one that closes the dialog."""
    with ui.row():
        button = ui.button(action).props("no-caps")
        ui.button(cancel, on_click=dialog.close).props("flat no-caps")
    return button


def open_export_dialog(session: Session, translate: Translate) -> None:
    """Ask for a format and a folder, and write all pages."""
    with opened_dialog(translate("export"), "w-[32rem]") as dialog:
        kinds = {name: translate(f"export_{name}") for name in (*EXPORT_FORMATS, DATASET, LOG)}
        kind = ui.select(kinds, value="page", label=translate("format")).classes("w-full").props("outlined")
        left_out = session.store.counts()[State.READ]
        unaccepted = ui.radio({}, value=None).props("dense")

        def offer_unaccepted() -> None:
            marks = "mark" if kind.value in DOCUMENTS else "doubt" if kind.value in WITH_CONFIDENCES else "include"
            choices = {name: translate(f"unaccepted_{name}", lines=left_out) for name in ("omit", marks)}
            unaccepted.set_options(choices, value=unaccepted.value if unaccepted.value in choices else "omit")
            unaccepted.set_visibility(left_out > 0 and kind.value not in {DATASET, LOG})

        offer_unaccepted()
        kind.on_value_change(offer_unaccepted)
        folders = {name: str(session.work / "exports" / name) for name in kinds}
        folder = ui.input(translate("folder"), value=folders["page"]).classes("w-full").props("outlined")
        # A folder of one's own stays.
        kind.on_value_change(lambda: folder.value in folders.values() and folder.set_value(folders[kind.value]))
        with ui.row():
            buttons = [ui.button(translate(name)).props("no-caps") for name in ("download", "write")]
            buttons[1].props("outline")
            ui.button(translate("cancel"), on_click=dialog.close).props("flat no-caps")

        async def write(button: ui.button, *, is_download: bool) -> None:
            out = folders[kind.value] if is_download else folder.value
            with disabled(button):
                try:
                    only = unaccepted.value == "omit"
                    report = await run.io_bound(session.export, kind.value, out, accepted_only=only)
                    file = await run.io_bound(pack, report.out) if is_download and report is not None else None
                except DsocrError as error:
                    notify_error(error)
                    return
            if report is None:  # the workbench is shutting down
                return
            for left in report.skipped:
                ui.notify(f"{left.where}: {left.message}", type="warning")
            dialog.close()
            if file is not None:
                ui.download.file(file, f"{safe_stem(session.name)}-{file.name}")
            summary = translate("written", pages=report.pages, texts=report.texts, out=report.out)
            ui.notify(summary if report.pages else str(report.out), type="positive", timeout=8000)

        for button in buttons:
            button.on_click(partial(write, button, is_download=button is buttons[0]))


def pack(folder: Path) -> Path:
    """The only file of an export, or a ZIP file of all of them, beside the folder. Raises DataError if it cannot."""
    if folder.is_file():
        return folder
    files = [path for path in folder.iterdir() if path.name != CONVERSION_FILE]
    if len(files) == 1 and files[0].is_file():
        return files[0]
    with explain_disk_errors(folder):
        return Path(shutil.make_archive(str(folder), "zip", folder))


def has_training() -> bool:
    """Whether the packages that train are installed."""
    return find_spec("torch") is not None


def open_install_dialog(translate: Translate) -> None:
    """Offer to install what training needs."""
    with opened_dialog(translate("install"), "w-[32rem]") as dialog:
        ui.label(translate("install_why"))
        button = _add_buttons(dialog, translate("install"), translate("cancel"))

        async def install() -> None:
            command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "dsocr-hw[train]"]
            with disabled(button):
                button.set_text(translate("installing"))
                done = await run.io_bound(subprocess.run, command, capture_output=True, text=True)
            dialog.close()
            invalidate_caches()
            if has_training():
                ui.notify(translate("installed"), type="positive", timeout=8000)
            elif done is not None:
                ui.notify(translate("not_installed", error=done.stderr.strip()[-300:]), type="negative", timeout=0)

        button.on_click(install)


def open_help_dialog(translate: Translate) -> None:
    """Show all keys."""
    with opened_dialog(translate("keys"), "w-[48rem]") as dialog:
        with ui.grid(columns="fit-content(45%) 1fr").classes("gap-x-6 gap-y-1 items-baseline"):
            for keys, name in KEYS:
                with ui.row().classes("gap-1"):
                    for key in keys.split():
                        ui.html(escape(key), tag="kbd", sanitize=False).classes(_KEY)
                ui.label(translate(name))
        ui.button(translate("close"), on_click=dialog.close).props("flat no-caps")


def open_note_dialog(line: StoredLine, translate: Translate, save: Callable[[str], None]) -> None:
    """Ask for a remark on a line."""
    with opened_dialog(translate("note_of"), "w-[32rem]", has_title=False) as dialog:
        note = ui.textarea(translate("note_of"), value=line.note).classes("w-full").props("outlined autofocus")

        def close() -> None:
            dialog.close()
            save(note.value or "")

        _add_buttons(dialog, translate("save"), translate("cancel")).on_click(close)


def open_name_dialog(name: str, translate: Translate, save: Callable[[str], None]) -> None:
    """Ask for the name of whoever works in this window."""
    with opened_dialog(translate("your_name"), "w-96", has_title=False) as dialog:
        field = ui.input(translate("your_name"), value=name).classes("w-full").props("outlined autofocus maxlength=60")
        ui.label(translate("why_name")).classes("text-sm text-slate-600 dark:text-slate-300")

        def close() -> None:
            if name := " ".join((field.value or "").split()):
                dialog.close()
                save(name)

        field.on("keydown.enter", close)
        _add_buttons(dialog, translate("save"), translate("cancel")).on_click(close)


def open_search_dialog(
    session: Session,
    translate: Translate,
    page: int | None,
    select: Callable[[int], None],
    replace: Callable[[Sequence[Hit], str], None],
) -> None:
    """Find a text on all pages, show where, and replace it."""
    with opened_dialog(translate("search"), "gap-2 w-[56rem]") as dialog:
        with ui.row().classes("w-full gap-3 items-center"):
            sought = ui.input(translate("find")).classes("grow").props("outlined dense autofocus")
            replacement = ui.input(translate("replace_with")).classes("grow").props("outlined dense")
        with ui.row().classes("w-full gap-x-6 gap-y-2 items-center py-1"):
            case, words, here = (
                ui.checkbox(translate(name)).props("dense") for name in ("match_case", "whole_words", "this_page")
            )
        count = ui.label().props('role="status"')
        results = ui.column().classes("w-full gap-0 overflow-auto max-h-[50vh]").props('role="list"')
        do = _add_buttons(dialog, translate("replace_all", lines=0), translate("close"))
        do.disable()
        hits: list[Hit] = []

        def go(number: int) -> None:
            dialog.close()
            select(number)

        def show() -> None:
            hits.clear()
            results.clear()
            if sought.value and sought.value.strip():
                limit = page if here.value else None
                query = Query(sought.value, match_case=case.value, whole_words=words.value, page=limit)
                hits.extend(search(session.store, query))
            places = sum(len(hit.spans) for hit in hits)
            shown = "; " + translate("found_more", shown=_SHOWN) if len(hits) > _SHOWN else ""
            count.set_text(translate("found", places=places, lines=len(hits)) + shown if sought.value else "")
            do.set_text(translate("replace_all", lines=len(hits)))
            do.set_enabled(bool(hits))
            with results:
                for hit in hits[:_SHOWN]:
                    row = ui.row().classes(
                        "w-full sm:flex-nowrap gap-x-3 gap-y-0 px-2 py-1 cursor-pointer rounded items-baseline"
                    )
                    row.classes("hover:bg-slate-200 dark:hover:bg-slate-800").props('role="listitem" tabindex=0')
                    row.on("click", lambda number=hit.line.number: go(number))
                    row.on("keydown.enter", lambda number=hit.line.number: go(number))
                    with row:
                        name = session.pages[hit.line.page].name
                        ui.label(name).classes("text-sm text-slate-600 dark:text-slate-300 w-40 shrink-0 truncate")
                        ui.html(found_html(hit, replacement.value or ""), sanitize=False)

        def replace_found() -> None:
            dialog.close()
            replace(list(hits), replacement.value or "")

        do.on_click(replace_found)
        for field in (sought, replacement):
            field.on("update:model-value", show, throttle=0.3, leading_events=False)
        for box in (case, words, here):
            box.on_value_change(show)


def found_html(hit: Hit, replacement: str) -> str:
    """The text of a line with matches struck out before their replacement; only marked without one."""
    pieces = [*map(escape, hit.pieces)]
    new = f"<ins class='text-emerald-800 dark:text-emerald-300'>{escape(replacement)}</ins>"
    for place, old in list(enumerate(pieces))[1::2]:
        struck = f"<del class='text-red-700 dark:text-red-300'>{old}</del>{new}"
        pieces[place] = struck if replacement else f"<mark>{old}</mark>"
    return "".join(pieces)
