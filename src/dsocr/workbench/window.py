"""The window of a workbench: a page with its lines, their texts beside it, and a field to correct one in.

It is shown to browsers on this machine only.
"""

import logging
import secrets
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from fastapi import Response
from nicegui import app, events, run, ui
from nicegui.language import Language as Tag

from dsocr.document import format_points
from dsocr.errors import DsocrError
from dsocr.server.access import AccessMiddleware
from dsocr.workbench.line_field import Action, LineField
from dsocr.workbench.page_export import EXPORT_FORMATS, export, export_dataset
from dsocr.workbench.session import Session
from dsocr.workbench.store import StaleError, State, StoredLine, corners, line_at

HOST = "127.0.0.1"
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
"""What ends a process besides Ctrl-C: `kill`, a closed terminal, on Windows a closed console."""

DOUBT = 0.95
"""Characters with a lower probability are highlighted, the lower the stronger."""
_POLL_SECONDS = 1.5
_DATASET = "dataset"
_COLOURS = {
    State.UNREAD: "#64748b",
    State.READ: "#d97706",
    State.ACCEPTED: "#059669",
    State.UNREADABLE: "#9333ea",
}
_MARKS = {State.ACCEPTED: "✓", State.UNREADABLE: "✗"}
_SELECTED, _OTHERS = "bg-amber-100 dark:bg-amber-900", "hover:bg-slate-200 dark:hover:bg-slate-800"

Language = Literal["en", "ru"]

_WORDS: dict[str, tuple[str, str]] = {
    "accept": ("Accept (Enter)", "Принять (Enter)"),
    "unreadable": ("Unreadable (Alt+U)", "Неразборчиво (Alt+U)"),
    "split": ("Split here (Alt+S)", "Разделить здесь (Alt+S)"),
    "join": ("Join with next (Alt+J)", "Объединить со следующей (Alt+J)"),
    "undo": ("Undo (Alt+Z)", "Отменить (Alt+Z)"),
    "nothing_to_undo": ("Nothing to undo in this window", "В этом окне нечего отменять"),
    "undone": ("Undone", "Отменено"),
    "order_pages": ("in order", "по порядку"),
    "order_doubt": ("most doubtful first", "сначала сомнительные"),
    "page": ("Page", "Страница"),
    "line": ("Image of the line", "Изображение строки"),
    "text": ("Text of the line", "Текст строки"),
    "export": ("Export", "Экспорт"),
    "accepted_only": ("only accepted corrections", "только принятые исправления"),
    "folder": ("Output folder", "Папка для сохранения"),
    "dataset": ("training dataset", "набор данных для обучения"),
    "write": ("Save", "Сохранить"),
    "written": (
        "Saved to {out}. Pages: {pages}, lines with text: {texts}",
        "Сохранено в {out}. Страниц: {pages}, строк с текстом: {texts}",
    ),
    "train": ("Train on corrections", "Обучить на исправлениях"),
    "training": ("training: step {steps}", "обучение: шаг {steps}"),
    "trained": ("training finished: {run}", "обучение завершено: {run}"),
    "training_failed": ("training failed: {error}", "ошибка обучения: {error}"),
    "validation_cer": ("validation CER {cer}", "CER на проверочных строках: {cer}"),
    "cer": ("Model's CER so far: {cer} on {lines} lines", "CER модели: {cer} (строк: {lines})"),
    "no_cer": ("Model's CER: no lines accepted yet", "CER модели: пока нет принятых строк"),
    "counts": ("{reviewed} of {all} lines reviewed", "Проверено строк: {reviewed} из {all}"),
    "reading": ("reading: {done} of {total}", "распознавание: {done} из {total}"),
    "no_image": ("This line cannot be shown: {why}", "Строку нельзя показать: {why}"),
    "skipped": (
        "lines that could not be read for lack of an image: {lines}; the first: {first}",
        "не распознано строк без изображения: {lines}; первая: {first}",
    ),
    "reading_failed": ("reading failed: {error}", "ошибка распознавания: {error}"),
    "stale": (
        "Somebody else changed this line to “{text}”. Your text is still in the field; press Enter to keep it.",
        "Эту строку уже изменили: «{text}». Ваш текст остался в поле; нажмите Enter, чтобы оставить его.",
    ),
    "removed": ("Somebody else removed this line", "Эту строку удалил другой пользователь"),
    "all_reviewed": ("All lines are reviewed", "Все строки проверены"),
    "state_unread": ("not read", "не распознана"),
    "state_read": ("to review", "не проверена"),
    "state_accepted": ("accepted", "принята"),
    "state_unreadable": ("unreadable", "неразборчиво"),
    "keys": (
        "Enter: accept. Alt+↑, Alt+↓: previous, next line.",
        "Enter — принять, Alt+↑ и Alt+↓ — перейти к соседней строке",
    ),
}


def outlines_svg(lines: Sequence[StoredLine], selected: int | None) -> str:
    """The outlines of a page's lines as SVG, in pixels of the page."""
    polygons = []
    for line in lines:
        points = format_points(line.outline.polygon or corners(line.outline.box))
        colour = _COLOURS[line.state]
        look = 'fill-opacity="0.06" stroke-width="2"'
        if line.number == selected:
            look = 'fill-opacity="0.22" stroke-width="5"'
        attributes = f'points="{points}" fill="{colour}" stroke="{colour}" {look}'
        polygons.append(f'<polygon {attributes} vector-effect="non-scaling-stroke"/>')
    return "".join(polygons)


def highlighted_html(text: str, characters: Sequence[float]) -> str:
    """A text as HTML with doubtful characters highlighted; their probability is the tooltip."""
    if len(characters) != len(text):  # somebody changed what the model had read
        return escape(text)
    pieces = []
    for letter, likely in zip(text, characters, strict=True):
        piece = escape(letter)
        if likely < DOUBT:
            strength = round(25 + 60 * (1 - likely / DOUBT))
            style = f"background:color-mix(in srgb, #f59e0b {strength}%, transparent);border-bottom:2px solid #b45309"
            piece = f'<span style="{style}" title="{likely:.0%}">{piece}</span>'
        pieces.append(piece)
    return "".join(pieces)


class LineList:
    """The lines of a page, below the editor in a scrolling column; `on_select` gets the number of a clicked line."""

    def __init__(self, on_select: Callable[[int], None]) -> None:
        self._on_select = on_select
        self._column = ui.column().classes("w-full gap-0").props('role="list"')
        self._rows: dict[int, _LineRow] = {}

    def show(self, lines: Sequence[StoredLine], selected: int) -> None:
        """Show these lines in their order."""
        if [line.number for line in lines] != [*self._rows]:
            self._column.clear()
            with self._column:
                self._rows = {line.number: _LineRow(line, self._on_select) for line in lines}
        for line in lines:
            self._rows[line.number].show(line, selected=line.number == selected)

    def scroll_to_selected(self) -> None:
        """Scroll so that the selected row and its neighbours are visible below the editor, which is sticky."""
        ui.run_javascript(
            f"requestAnimationFrame(() => {{ const list = getHtmlElement({self._column.id});"
            "const column = list.parentElement;"
            "const row = list.querySelector('[aria-current]')?.getBoundingClientRect();"
            "const top = list.previousElementSibling.getBoundingClientRect().bottom;"
            "const bottom = Math.min(column.getBoundingClientRect().bottom, innerHeight);"
            "if (row && (row.top - row.height < top || row.bottom + row.height > bottom))"
            "column.scrollTop += (row.top + row.bottom - top - bottom) / 2 })"
        )


class _LineRow:
    def __init__(self, line: StoredLine, on_select: Callable[[int], None]) -> None:
        self._line: StoredLine | None = None
        self._selected = False
        with ui.row().classes(f"w-full no-wrap gap-2 px-2 py-1 cursor-pointer rounded {_OTHERS}") as self._row:
            self._row.props('role="listitem"').on("click", lambda: on_select(line.number))
            self._mark = ui.label().classes("w-4 text-emerald-700 dark:text-emerald-400")
            self._text = ui.html(sanitize=False)

    def show(self, line: StoredLine, *, selected: bool) -> None:
        if line != self._line:
            self._line = line
            self._mark.set_text(_MARKS.get(line.state, "·"))
            self._text.set_content(highlighted_html(line.text, line.characters) or "&nbsp;")
        if selected != self._selected:
            self._selected = selected
            self._row.classes(add=_SELECTED if selected else _OTHERS, remove=_OTHERS if selected else _SELECTED)
            self._row.props(add='aria-current="true"' if selected else "", remove="" if selected else "aria-current")


class Window:
    """The content of one browser tab. Each tab undoes only its own changes."""

    def __init__(self, session: Session, language: Language, visitor: str) -> None:
        self._session = session
        self._store = session.store
        self._language = language
        self._visitor = visitor
        self._line = (session.most_doubtful() if session.only else None) or session.store.first()
        self._by_doubt = bool(session.only)
        self._stamp = self._store.stamp()
        self._scrolled_to: int | None = None

    @property
    def _user(self) -> str:
        """Who a change is recorded for: the tab, which keeps its id when the page is reloaded."""
        return f"{self._visitor}/{self._field.client.tab_id}"

    def _t(self, name: str, **values: object) -> str:
        """The text of that name in the window's language, with values filled in."""
        return _WORDS[name][self._language == "ru"].format(**values)

    # Layout

    def show(self) -> None:
        """Add the content to the page."""
        ui.colors(primary="#1d4ed8")  # white text on it is legible, unlike on the default
        # but as text on a dark background it is not
        ui.add_css(".body--dark :is(.text-primary, .q-field, .nicegui-link) { --q-primary: #93c5fd; color: #93c5fd; }")
        ui.query("body").classes("bg-slate-100 dark:bg-slate-900")
        ui.query(".nicegui-content").classes("p-3 gap-3")
        self._build_header()
        # two columns if the screen is wide enough
        with ui.row().classes("w-full gap-3 items-start lg:flex-nowrap"):
            with ui.card().classes("w-full lg:w-1/2 p-2 overflow-auto max-h-[40vh] lg:max-h-[calc(100vh-6.5rem)]"):
                self._page_image = ui.interactive_image(on_mouse=self._page_clicked, events=["click"]).classes("w-full")
                self._page_image.on("loaded", self._scroll_page)
                self._page_image.props(f'role="img" aria-label="{self._t("page")}"')
            with ui.column().classes("w-full lg:w-1/2 gap-3 lg:overflow-auto lg:max-h-[calc(100vh-6.5rem)]"):
                self._build_editor()
                self._list = LineList(self._select)
        ui.timer(_POLL_SECONDS, self._poll)
        self._show()

    def _build_header(self) -> None:
        with ui.row().classes("w-full items-center gap-4"):
            ui.label(self._session.name).classes("text-lg font-semibold")
            pages = {number: f"{self._t('page')} {page.name}" for number, page in self._session.pages.items()}
            self._pages = ui.select(pages, on_change=self._page_selected).props("dense outlined").classes("w-64")
            self._pages.props(f'aria-label="{self._t("page")}"')
            orders = {False: self._t("order_pages"), True: self._t("order_doubt")}
            ui.toggle(orders, value=self._by_doubt, on_change=self._order_selected).props("dense no-caps")
            self._counts = ui.label()
            self._cer = ui.label()
            self._activity = ui.label().classes("text-amber-700 dark:text-amber-400")
            ui.space()
            self._undo_place = ui.row()
            ui.button(self._t("export"), on_click=self._export, icon="save_alt").props("flat dense no-caps")
            if self._session.training is not None:
                train = ui.button(self._t("train"), icon="school").props("flat dense no-caps")
                train.on_click(lambda: self._train(train))
            ui.link(*(("English", "/en") if self._language == "ru" else ("Русский", "/ru")))

    def _build_editor(self) -> None:
        with ui.card().classes("w-full p-3 gap-2 sticky top-0 z-10"):
            self._line_image = ui.image().classes("w-full").props('fit="contain" no-spinner').style("max-height: 9rem")
            self._line_image.props(f'alt="{self._t("line")}"')
            self._line_image.on("error", self._show_image_error)
            self._line_image.on("load", lambda: self._list.scroll_to_selected())  # the editor may have become higher
            self._image_error = ui.label().classes("text-amber-700 dark:text-amber-400")
            with ui.row().classes("w-full items-baseline gap-3 no-wrap"):
                self._highlighted = ui.html(sanitize=False).classes("text-xl grow")
                self._state = ui.badge().props("outline")
            self._field = LineField(self._t("text"), self._session.id, self._handle)
            self._field.classes("w-full text-xl").props("outlined spellcheck=false")
            with ui.row().classes("gap-2"):
                self._field.button(self._t("accept"), "accept", icon="check").props('no-caps padding="xs md"')
                for word in ("unreadable", "split", "join"):
                    self._field.button(self._t(word), word).props('outline no-caps padding="xs md"')
            with self._undo_place:
                self._field.button(self._t("undo"), "undo", icon="undo").props("flat dense no-caps")
            ui.label(self._t("keys")).classes("text-xs text-slate-500")

    def _show(self, *, notified: bool = False, removed: bool = False) -> None:
        """Show the selected line and its page as the store has them; the arguments are those of `LineField.show`."""
        self._stamp = self._store.stamp()
        self._show_status()
        line = self._line
        if line is None:
            return
        lines = self._store.lines(line.page)
        self._pages.set_value(line.page)
        self._page_image.set_source(f"/picture/page/{line.page}")
        self._page_image.set_content(outlines_svg(lines, line.number))
        if self._line_image.source != (source := f"/picture/line/{line.number}?{line.version}"):
            self._image_error.set_text("")
            self._line_image.set_source(source)
        self._highlighted.set_content(highlighted_html(line.text, line.characters))
        self._state.set_text(self._t(f"state_{line.state}"))
        self._field.show(line, notified=notified, removed=removed)
        self._list.show(lines, line.number)
        if self._scrolled_to != line.number:  # otherwise the user may have scrolled somewhere else
            self._scrolled_to = line.number
            self._scroll_page()
            self._list.scroll_to_selected()

    def _scroll_page(self) -> None:
        """Scroll a page that is higher than its column so that the selected line is in the middle."""
        line = self._line
        if line is None:
            return
        _, top, _, bottom = line.outline.box
        share = (top + bottom) / 2 / self._session.pages[line.page].height
        ui.run_javascript(
            f"const page = getHtmlElement({self._page_image.id}), column = page.parentElement;"
            f"column.scrollTop = page.clientHeight * {share:.4f} - column.clientHeight / 2"
        )

    def _show_status(self) -> None:
        statistics = self._session.statistics()
        self._counts.set_text(self._t("counts", reviewed=statistics.reviewed, all=sum(statistics.counts.values())))
        cer = f"{statistics.errors.rate:.1%}"
        judged = statistics.judged
        self._cer.set_text(self._t("cer", cer=cer, lines=judged) if judged else self._t("no_cer"))
        self._activity.set_text(" · ".join(self._background_status()))

    def _background_status(self) -> Iterator[str]:
        if (reader := self._session.reader) is not None:
            if reader.error:
                yield self._t("reading_failed", error=reader.error)
            else:
                if reader.is_running:
                    yield self._t("reading", done=reader.done, total=reader.total)
                if reader.skipped:
                    yield self._t("skipped", lines=len(reader.skipped), first=reader.skipped[0])
        training = self._session.training
        if training is None or (status := training.status()) is None:
            return
        if status.error:
            yield self._t("training_failed", error=status.error)
            return
        share = f" ({status.share:.0%})" if status.share is not None else ""
        is_running = status.is_running
        yield self._t("training", steps=status.steps) + share if is_running else self._t("trained", run=training.run)
        if status.cer is not None:
            yield self._t("validation_cer", cer=f"{status.cer:.1%}")

    async def _show_image_error(self) -> None:
        line = self._line
        if line is not None and (why := await run.io_bound(self._session.why_no_image, line.number)):
            self._image_error.set_text(self._t("no_image", why=why))

    # Selecting lines

    def _poll(self) -> None:
        """Show what other people and the model changed meanwhile; drafts stay."""
        self._show_status()
        if self._store.stamp() == self._stamp or self._line is None:
            return
        now = self._store.line(self._line.number)
        if now is None:
            ui.notify(self._t("removed"), type="warning")
        self._line = now or self._line
        self._show(removed=now is None)

    def _select(self, number: int) -> None:
        self._line = self._store.line(number) or self._store.first()
        self._show()

    def _move(self, *, back: bool = False) -> None:
        neighbour = self._store.neighbour(self._line, before=back) if self._line else None
        if neighbour is not None:
            self._select(neighbour.number)

    def _select_next(self) -> None:
        """Go to the next line to review, in the selected order."""
        if self._by_doubt:
            line = self._session.most_doubtful(self._line)
        else:
            line = self._store.neighbour(self._line) if self._line else None
        if line is not None:
            self._select(line.number)
            return
        if self._by_doubt:
            ui.notify(self._t("all_reviewed"), type="positive")
        self._show()

    def _page_clicked(self, event: events.MouseEventArguments) -> None:
        if self._line is not None:
            hit = line_at(self._store.lines(self._line.page), event.image_x, event.image_y)
            if hit is not None:
                self._select(hit.number)

    def _page_selected(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if self._line is None or event.value == self._line.page:
            return
        lines = self._store.lines(event.value)
        if lines:
            self._select(next((line.number for line in lines if not line.is_reviewed), lines[0].number))

    def _order_selected(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._by_doubt = bool(event.value)
        if self._by_doubt and (line := self._session.most_doubtful()) is not None:
            self._select(line.number)

    # Actions

    def _handle(self, action: Action) -> Collection[int]:
        """Carry out an action, or show why it failed; returns the lines whose drafts it used up."""
        handlers: dict[str, Callable[[Action], Collection[int] | None]] = {
            "next": lambda _: self._move(),
            "previous": lambda _: self._move(back=True),
            "go": lambda action: self._select(action.to or 0),
            "leave": lambda _: self._leave(),
            "accept": lambda action: self._review(action, State.ACCEPTED),
            "unreadable": lambda action: self._review(action, State.UNREADABLE),
            "split": self._split,
            "join": self._join,
            "undo": lambda _: self._undo(),
        }
        try:
            return handlers[action.name](action) or ()
        except StaleError as error:
            if error.line is None:
                ui.notify(self._t("removed"), type="warning")
            else:
                ui.notify(self._t("stale", text=error.line.text), type="warning", timeout=8000)
                if error.line.number == action.line:
                    self._line = error.line
                    self._show(notified=True)
        except DsocrError as error:
            _notify_error(error)
        return ()

    def _line_of(self, action: Action) -> StoredLine:
        """The stored line, with the version that the user saw. Raises StaleError if it was removed.

        A text that somebody typed may replace what only a model read meanwhile.
        """
        line = self._store.line(action.line)
        if line is None:
            raise StaleError(None)
        is_machine_text = line.state is State.READ and line.text == line.machine
        return line if is_machine_text and action.text.strip() else replace(line, version=action.version)

    def _review(self, action: Action, state: State) -> Collection[int]:
        self._line = self._store.review(self._line_of(action), action.text, state, who=self._user)
        self._select_next()
        return (action.line,)

    def _split(self, action: Action) -> Collection[int]:
        self._line, _ = self._store.split(self._line_of(action), action.caret, who=self._user, text=action.text)
        self._show()
        return (action.line,)

    def _join(self, action: Action) -> Collection[int]:
        line = self._line_of(action)
        following = self._store.following(line)
        draft = action.drafts.get(following.number) if following else None
        if following is not None and draft is not None:
            following = replace(following, version=draft.version, text=draft.text)
        self._line = self._store.join(line, following, who=self._user, text=action.text)
        self._show()
        return (action.line,) if following is None else (action.line, following.number)

    def _undo(self) -> Collection[int]:
        change = self._store.undo(self._user)
        if change is None:
            ui.notify(self._t("nothing_to_undo"))
            return ()
        ui.notify(self._t("undone"))
        self._select(change.before[0].number)
        return {line.number for line in (*change.before, *change.after)}

    def _leave(self) -> None:
        """Go on from a line that was removed."""
        neighbour = self._store.neighbour(self._line) if self._line else None
        self._line = neighbour or self._store.first()
        self._show()

    # Export and training

    def _export(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-96"):
            kinds = {name: name for name in EXPORT_FORMATS} | {_DATASET: self._t("dataset")}
            kind = ui.select(kinds, value="page").classes("w-full").props("outlined")
            only = ui.checkbox(self._t("accepted_only"), value=True)
            folder = ui.input(self._t("folder"), value=str(self._session.work / "export")).classes("w-full")
            button = ui.button(self._t("write"))

            async def write() -> None:
                with _disabled(button):
                    await self._write(dialog, kind.value, only.value, folder.value)

            button.on_click(write)
        dialog.open()

    async def _write(self, dialog: ui.dialog, kind: str, accepted_only: bool, folder: str) -> None:
        try:
            messages = await run.io_bound(self._write_files, kind, Path(folder), accepted_only=accepted_only)
        except DsocrError as error:
            _notify_error(error)
            return
        if messages is None:  # the workbench is shutting down
            return
        for warning in messages[1:]:
            ui.notify(warning, type="warning")
        dialog.close()
        ui.notify(messages[0], type="positive", timeout=8000)

    def _write_files(self, kind: str, out: Path, *, accepted_only: bool) -> list[str]:
        """Write the export, which may take minutes; returns a summary and warnings."""
        store, archive = self._session.store, self._session.archive
        if kind == _DATASET:
            return [str(export_dataset(store, archive, out, overwrite=True).folder)]
        report = export(store, archive, out, to=kind, accepted_only=accepted_only, overwrite=out.exists())
        summary = self._t("written", pages=report.pages, texts=report.texts, out=report.out)
        return [summary, *(f"{left.where}: {left.message}" for left in report.skipped)]

    async def _train(self, button: ui.button) -> None:
        if self._session.training is None:
            return
        try:
            with _disabled(button):
                await run.io_bound(self._session.training.start)
        except DsocrError as error:
            _notify_error(error)
        self._show_status()


def _notify_error(error: DsocrError) -> None:
    ui.notify(f"{error}. {error.hint or ''}", type="negative", multi_line=True)


@contextmanager
def _disabled(button: ui.button) -> Iterator[None]:
    """Disable a button inside the block."""
    button.disable()
    try:
        yield
    finally:
        button.enable()


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
    def respond(make: Callable[[int], bytes], number: int) -> Response:
        try:
            return Response(make(number), media_type="image/jpeg")
        except DsocrError as error:
            return Response(str(error), status_code=404, media_type="text/plain")

    @app.get("/picture/page/{number}")
    def page_image(number: int) -> Response:
        return respond(session.page_jpeg, number)

    @app.get("/picture/line/{number}")
    def line_image(number: int) -> Response:
        return respond(session.line_jpeg, number)

    def open_window(language: Language) -> Callable[[], None]:
        return lambda: Window(session, language, str(app.storage.browser["id"])).show()

    tags: dict[Language, Tag] = {"en": "en-US", "ru": "ru"}
    pages: dict[str, Language] = {"/": default, "/en": "en", "/ru": "ru"}
    for path, language in pages.items():
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
