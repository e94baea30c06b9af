"""The page for whoever starts without a terminal: choose a folder, drop scans, go on with an earlier project."""

import secrets
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path

from nicegui import run, ui
from nicegui.elements.upload_files import FileUpload

from dsocr.errors import DsocrError
from dsocr.formats.pdf import PDF_SUFFIXES
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.files import safe_stem, shipped_path
from dsocr.io.work import explain_disk_errors, write_file
from dsocr.language import Language, localized
from dsocr.workbench.dialogs import notify_error, opened_dialog, set_colours

_SUFFIXES = IMAGE_SUFFIXES | PDF_SUFFIXES
_EXAMPLE, _EXAMPLE_PAGES = "example", 3
_KEPT = 10
"""Sources that are remembered."""
_MAX_FILE_BYTES = 2**30
_UPLOAD_HEADER = """<div class="row no-wrap items-center q-pa-sm">
    <div class="col text-body1">{label}</div>
    <q-btn flat dense round icon="add_box" aria-label="{label}" @click="props.pickFiles" />
    <div class="hidden"><q-uploader-add-trigger /></div>
</div>"""
"""Instead of Quasar's, whose button has no name for those who do not see it."""


class Projects:
    """The sources that were opened lately, and the folders of dropped scans, in one folder of the user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "recent.txt"
        kept = self._file.read_text(encoding="utf-8", errors="replace").splitlines() if self._file.is_file() else []
        self.secret, *self._recent = kept or [secrets.token_hex(32)]
        """Signs the cookies by which a browser's visitor is known again."""

    def recent(self) -> list[Path]:
        """The sources that are still there, the latest first."""
        return [path for path in map(Path, filter(None, self._recent)) if path.exists()]

    def remember(self, source: Path) -> None:
        """Put a source first, for this start and the next ones."""
        others = [str(path) for path in self.recent() if path != source]
        self._recent = [str(source.absolute()), *others][:_KEPT]
        with explain_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(self._file, "\n".join([self.secret, *self._recent]))

    def new_folder(self, name: str) -> Path:
        """Make a folder of that name, or with a number after it if there is one. Raises DataError if it cannot."""
        with explain_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for number in range(1, sys.maxsize):
                folder = self.folder / (name if number == 1 else f"{name}-{number}")
                with suppress(FileExistsError):
                    folder.mkdir()
                    return folder
        raise AssertionError

    def example(self) -> Path:
        """The folder with the pages of the example, copied if it is not there."""
        if not (folder := self.folder / _EXAMPLE).exists():
            folder = self.new_folder(_EXAMPLE)
            for image in sorted(shipped_path("examples/copiste/jpg").iterdir())[:_EXAMPLE_PAGES]:
                shutil.copy(image, folder)
        return folder


class StartPage:
    """The content of the start page; `open_source` opens what was chosen, and may take seconds."""

    def __init__(self, open_source: Callable[[Path], object], projects: Projects, language: Language) -> None:
        self._open_source = open_source
        self._projects = projects
        self._language = language
        self._dropped: list[FileUpload] = []

    def _t(self, name: str, /, **values: object) -> str:
        return localized(self._language, f"start_{name}", **values)

    def show(self) -> None:
        """Add the content to the page."""
        set_colours()
        ui.query(".nicegui-content").classes("items-center p-6")
        with ui.column().classes("w-full max-w-3xl gap-4"):
            with ui.row().classes("w-full items-baseline justify-between"):
                ui.label("DSOCR-HW").classes("text-2xl font-semibold").props('role="heading" aria-level="1"')
                other, address = ("English", "/en/start") if self._language == "ru" else ("Русский", "/ru/start")
                ui.link(other, address)
            ui.label(self._t("what"))
            with self._card("drop"):
                ui.label(self._t("kept", folder=self._projects.folder)).classes("text-sm")
                upload = ui.upload(
                    multiple=True,
                    auto_upload=True,
                    max_file_size=_MAX_FILE_BYTES,
                    on_upload=lambda event: self._dropped.append(event.file),
                    on_rejected=lambda: ui.notify(self._t("too_large"), type="warning"),
                )
                upload.props(f'flat bordered no-thumbnails accept="{",".join(sorted(_SUFFIXES))}"').classes("w-full")
                upload.add_slot("header", _UPLOAD_HEADER.format(label=self._t("drop_here")))
                upload.on("finish", self._open_dropped, args=[])
            with self._card("folder"), ui.row().classes("w-full items-center gap-3 flex-nowrap"):
                ui.button(self._t("choose"), icon="folder_open", on_click=self._choose).props("no-caps")
                path = ui.input(self._t("path")).classes("grow").props("outlined dense")
                path.on("keydown.enter", lambda: self._open(typed_path(path.value)))
                ui.button(self._t("open"), on_click=lambda: self._open(typed_path(path.value))).props("flat no-caps")
            if recent := self._projects.recent():
                with self._card("recent"):
                    for source in recent:
                        self._link(source.name, str(source.parent), source)
            ui.button(self._t("example"), icon="auto_stories", on_click=self._open_example).props("flat no-caps")

    def _card(self, name: str) -> ui.card:
        card = ui.card().classes("w-full gap-2")
        with card:
            ui.label(self._t(name)).classes("text-lg font-semibold").props('role="heading" aria-level="2"')
        return card

    def _link(self, name: str, place: str, source: Path) -> None:
        button = ui.button(on_click=lambda: self._open(source)).props("flat no-caps align=left").classes("w-full")
        with button, ui.column().classes("gap-0 items-start"):
            ui.label(name)
            ui.label(place).classes("text-xs text-slate-600 dark:text-slate-300 break-all")

    async def _open(self, source: Path | None) -> None:
        """Open a source as soon as its first page is there, or say why not."""
        if source is None:
            return
        waiting = ui.notification(self._t("opening", name=source.name), spinner=True, timeout=None)
        try:
            await run.io_bound(self._open_source, source)
        except DsocrError as error:
            notify_error(error)
        else:
            self._projects.remember(source)
            ui.navigate.to(f"/{self._language}")
        finally:
            waiting.dismiss()

    async def _open_dropped(self) -> None:
        """Copy dropped scans into a folder of their own, and open it."""
        files, self._dropped = self._dropped, []
        scans = [file for file in files if Path(file.name).suffix.lower() in _SUFFIXES]
        if len(scans) < len(files):
            names = ", ".join(file.name for file in files if file not in scans)
            ui.notify(self._t("no_scans", names=names), type="warning", timeout=8000)
        if not scans:
            return
        try:
            folder = self._projects.new_folder(self._t("scans", day=date.today().isoformat()))
            with explain_disk_errors(folder):
                for file in scans:
                    name = Path(file.name.replace("\\", "/"))
                    await file.save(folder / f"{safe_stem(name.stem)}{name.suffix.lower()}")
        except DsocrError as error:
            notify_error(error)
            return
        await self._open(folder)

    async def _open_example(self) -> None:
        await self._open(self._projects.example())

    def _choose(self) -> None:
        """Walk through the folders of this machine."""
        with opened_dialog(self._t("choose"), "w-[40rem]") as dialog:
            place = ui.label().classes("text-sm break-all")
            rows = ui.column().classes("w-full gap-0 overflow-auto max-h-[50vh]")
            with ui.row():
                choose = ui.button().props("no-caps")
                ui.button(localized(self._language, "cancel"), on_click=dialog.close).props("flat no-caps")

        def show(folder: Path) -> None:
            scans, folders = look_into(folder)
            place.set_text(str(folder))
            choose.set_text(self._t("choose_this", scans=scans))
            chosen.append(folder)
            rows.clear()
            with rows:
                for name, target in [(self._t("up"), parent) for parent in above(folder)] + folders:
                    button = ui.button(name, on_click=lambda target=target: show(target))
                    button.props("flat dense no-caps align=left icon=folder").classes("w-full")

        chosen: list[Path] = []
        show(Path.home())

        async def open_chosen() -> None:
            dialog.close()
            await self._open(chosen[-1])

        choose.on_click(open_chosen)


def typed_path(text: str | None) -> Path | None:
    """A path as people paste it, perhaps in quotes; None without one."""
    text = (text or "").strip().strip("\"'")
    return Path(text).expanduser() if text else None


def look_into(folder: Path) -> tuple[int, list[tuple[str, Path]]]:
    """The number of scans in a folder, and its folders that are not hidden, by name."""
    try:
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in ".$")
        scans = sum(1 for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    except OSError:  # nobody may look into it
        return 0, []
    return scans, [(path.name, path) for path in folders]


def above(folder: Path) -> list[Path]:
    """The folder above, or the drives above a drive's root on Windows."""
    if folder.parent != folder:
        return [folder.parent]
    return [Path(f"{letter}:\\") for letter in "CDEFGHIJKLMNOPQRSTUVWXYZ" if Path(f"{letter}:\\").exists()]
