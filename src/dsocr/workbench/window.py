"""The window of a workbench: a page with its lines, their texts beside it, and a field to correct one in."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, get_args

from nicegui import background_tasks, events, run, ui

from dsocr.errors import DataError, DsocrError
from dsocr.language import Language, localized
from dsocr.workbench.archive import detect_outlines
from dsocr.workbench.dialogs import (
    disabled,
    has_training,
    notify_error,
    open_export_dialog,
    open_help_dialog,
    open_install_dialog,
    open_name_dialog,
    open_note_dialog,
    open_search_dialog,
    set_colours,
)
from dsocr.workbench.line_field import GAPS, MARKS, Action, LineField, label_of, load_keyboard
from dsocr.workbench.page_changes import (
    FIND_AGAIN,
    FIND_TABLES,
    carry_out,
    move_beside,
    put_tables,
    replace_unreviewed,
    search_tables,
)
from dsocr.workbench.page_view import DOUBT_COLOURS, LineList, PageOverview, PageView, highlighted_html
from dsocr.workbench.session import Order, Outlook, Session, seconds_a_line
from dsocr.workbench.store import StaleError
from dsocr.workbench.stored_lines import State, StoredLine, line_at
from dsocr.workbench.words import Hit, replace_all, word_at

_POLL_SECONDS = 1.5
_TARGETS = (0.05, 0.02, 0.01, 0.005)
"""CERs to work towards, one after another."""


class Window:
    """The content of one browser tab, first the line at a place of the source. Each tab undoes only its own changes."""

    def __init__(
        self, session: Session, language: Language, visitor: str, *, at: str = "", has_start: bool = False
    ) -> None:
        self._session = session
        self._has_start = has_start
        self._store = session.store
        self._language = language
        self._visitor = visitor
        doubtful = session.next_line("doubt") if session.only else None
        self._line = (session.find(at) if at else None) or doubtful or session.store.first()
        self._order: Order = "doubt" if session.only else "pages"
        self._keyboard = load_keyboard(session.work, language)
        self._stamp = self._store.stamp()
        self._scrolled_to: int | None = None

    @property
    def _user(self) -> str:
        return f"{self._visitor}/{self._field.client.tab_id}"

    @property
    def _name(self) -> str:
        return self._store.names().get(self._visitor, "")

    def _t(self, name: str, /, **values: object) -> str:
        return localized(self._language, name, **values)

    # Layout

    def show(self) -> None:
        """Add the content to the page."""
        set_colours()
        ui.add_css(DOUBT_COLOURS)
        # on a wide screen everything fits the window, and its parts scroll; on a narrow one the window scrolls
        ui.query(".nicegui-content").classes("p-3 gap-2 lg:h-screen lg:overflow-hidden")
        # the image of another line must not stay beside the text of this one while its own is loaded
        ui.add_css(".q-img:has(.q-img__loading:not(.q-transition--fade-leave-active)) img { visibility: hidden; }")
        self._build_header()
        self._build_editor()
        with ui.row().classes("w-full gap-3 items-stretch flex-nowrap max-lg:flex-col lg:grow lg:min-h-0"):
            self._overview = PageOverview(self._t, self._show_page).classes("not-reading")
            self._page_view = PageView(self._t, self._page_clicked, self._select, self._edit_shapes)
            self._page_view.classes("w-full lg:w-0 grow lg:basis-0 max-lg:h-[55vh]")
            # wider than its texts it would waste room that the page can use
            lines = ui.column().classes("not-reading w-full lg:w-0 grow lg:basis-0 gap-0 lg:overflow-auto")
            with lines.classes("lg:max-w-[56rem] 2xl:text-base").props('tabindex="0"'):  # the arrow keys scroll it
                self._list = LineList(self._select, self._reorder)
        ui.timer(_POLL_SECONDS, self._poll)
        self._field.client.on_disconnect(lambda: self._session.presence.leave(self._field.client.id))
        self._show()

    def _build_header(self) -> None:
        with ui.row().classes("not-reading w-full items-center gap-x-3 gap-y-1"):
            pages = ui.button(icon="menu_book").props(f'flat dense aria-label="{self._t("view_pages")}"')
            pages.on("click", lambda: self._overview.run_method("toggle"))
            ui.label(self._session.name).classes("text-lg font-semibold").props('role="heading" aria-level="1"')
            self._pages = ui.select(self._page_names(), on_change=lambda event: self._show_page(event.value))
            self._pages.classes("w-64 max-w-full").props(f'dense outlined aria-label="{self._t("page")}"')
            orders = {order: self._t(f"order_{order}") for order in get_args(Order)}
            toggle = ui.toggle(orders, value=self._order, on_change=self._order_selected)
            toggle.props('no-caps unelevated padding="xs sm"').classes("bg-slate-200 dark:bg-slate-800")
            ui.space()
            self._undo_place = ui.row()
            export = ui.button(self._t("export"), icon="save_alt").props("flat dense no-caps")
            export.on_click(lambda: open_export_dialog(self._session, self._t))
            if self._session.training is not None:
                train = ui.button(self._t("train"), icon="school").props("flat dense no-caps")
                train.on_click(lambda: self._train(train))
                with train:
                    self._training_plan = ui.tooltip()
            with ui.button(icon="menu").props(f'flat dense aria-label="{self._t("menu")}"'), ui.menu():
                actions: dict[str, Callable[[], object]] = {
                    "search": self._search,
                    "your_name": lambda: open_name_dialog(
                        self._name, self._t, partial(self._store.name_person, self._visitor)
                    ),
                    "keys": lambda: open_help_dialog(self._t),
                }
                if self._has_start:
                    actions["start_page"] = lambda: ui.navigate.to(f"/{self._language}/start")
                for word, action in actions.items():
                    ui.menu_item(self._t(word), action).props("role=menuitem")
            name, address = ("English", "/en") if self._language == "ru" else ("Русский", "/ru")
            ui.link(name, address)
        with ui.row().classes("not-reading w-full items-center gap-x-6 gap-y-1 text-sm"):
            self._counts = ui.label()
            self._cer = ui.label()
            self._outlook = ui.label()
            if (learner := self._session.learner) is not None:
                self._learning_switch = ui.switch(self._t("learn"), value=learner.is_on).props("dense")
                self._learning_switch.on_value_change(lambda event: self._let_learn(on=bool(event.value)))
            self._advice = ui.label().classes("font-semibold").props('role="status"')
            self._learn_now = ui.button(self._t("learn_now"), icon="school")
            self._learn_now.on_click(lambda: self._learning_switch.set_value(True))
            self._learn_now.props("outline dense no-caps").set_visibility(False)
            self._activity = ui.label().classes("text-amber-700 dark:text-amber-400").props('role="status"')

    def _page_names(self) -> dict[int, str]:
        return {number: f"{self._t('page')} {page.name}" for number, page in self._session.pages.items()}

    def _build_editor(self) -> None:
        with ui.card().classes("w-full p-3 gap-2 flex-none"):
            # of a fixed height, so that nothing moves from line to line
            self._line_image = ui.image().classes("w-full h-[clamp(5rem,min(22vh,16vw),20rem)]")
            self._line_image.props(f'alt="{self._t("line")}" fit="contain" loading-show-delay=250 no-transition')
            self._line_image.on("error", self._show_image_error)
            self._image_error = ui.label().classes("text-amber-700 dark:text-amber-400")
            with ui.row().classes("w-full items-baseline gap-3 no-wrap"):
                self._highlighted = ui.html(sanitize=False).classes("text-xl grow min-w-0 wrap-anywhere min-h-7")
                self._highlighted.props("dir=auto")
                self._state = ui.badge().props("outline")
            marks = {**MARKS, "mark_gap": ("", GAPS[self._language])}
            shorthands = self._keyboard.shorthands
            self._field = LineField(self._t("text"), self._session.id, self._handle, marks=marks, shorthands=shorthands)
            self._field.classes("w-full text-xl").props("outlined spellcheck=false dir=auto")
            with ui.row().classes("w-full gap-2"):
                self._field.button(self._t("accept"), "accept", icon="check").props('no-caps padding="xs md"')
                for word in ("unreadable", "split", "join"):
                    self._field.button(self._t(word), word).props('outline no-caps padding="xs md"')
                # always there, so that nothing moves when it gets a text
                self._remarks = ui.label().classes("grow basis-64 h-8 line-clamp-2 text-xs/4 self-center")
                self._remarks.classes("text-slate-600 dark:text-slate-300")
            with self._undo_place:
                self._field.button(self._t("undo"), "undo", icon="undo").props("flat dense no-caps")
            self._alternatives = ui.row().classes("w-full gap-2 items-center empty:hidden").props('role="status"')
            self._build_letters(marks)

    def _build_letters(self, marks: Mapping[str, tuple[str, str]]) -> None:
        """The marks, and the sets of letters to click; the chosen set is remembered."""
        with ui.row().classes("w-full gap-x-2 gap-y-0 items-center -my-1"):
            for name, (before, after) in marks.items():
                label = self._t(name.removeprefix("mark_")) if name in MARKS else before + after
                button = self._field.local_button(label, "mark", name)
                button.props(f'flat dense no-caps aria-label="{self._t(name)}"').tooltip(self._t(name))
            self._field.button(self._t("note"), "note").props("flat dense no-caps")
            names = {"": self._t("no_letters")} | {name: name for name in self._keyboard.sets}
            chosen = self._store.setting(f"letters {self._visitor}") or ""
            sets = ui.select(names, value=chosen if chosen in names else "").props("dense borderless options-dense")
            sets.props(f'aria-label="{self._t("letters")}"').classes("ml-3 text-sm")
            keys = ui.row().classes("gap-0 w-full")

        def show() -> None:
            keys.clear()
            keys.set_visibility(bool(sets.value))
            with keys:
                for key in self._keyboard.sets.get(sets.value, ()):
                    button = self._field.local_button(label_of(key), "insert", key)
                    button.props("flat dense no-caps").classes("text-lg")

        def choose() -> None:
            self._store.set_setting(f"letters {self._visitor}", sets.value)
            show()

        sets.on_value_change(choose)
        show()

    def _show(self, *, notified: bool = False, removed: bool = False) -> None:
        """Show the selected line and its page as the store has them; the arguments are those of `LineField.show`."""
        self._stamp = self._store.stamp()
        self._show_counts()
        line = self._line
        if line is None:
            return
        lines = self._store.lines(line.page)
        self._pages.set_value(line.page)
        self._page_view.show(self._session.pages[line.page], lines, self._store.regions(line.page), line.number)
        self._overview.show(line.page, self._stamp)
        if self._line_image.source != (source := f"/picture/line/{line.number}?{line.version}"):
            self._image_error.set_text("")
            self._line_image.set_source(source)
        unknown = self._session.words().unknown(line.text)
        self._highlighted.set_content(highlighted_html(line.text, line.characters, unknown, self._t("unknown_word")))
        self._state.set_text(self._t(f"state_{line.state}"))
        self._show_people(line)
        self._field.show(line, notified=notified, removed=removed)
        self._list.show(lines, line.number)
        if self._scrolled_to != line.number:  # otherwise the user may have scrolled somewhere else
            self._alternatives.clear()
            self._scrolled_to = line.number
            self._list.scroll_to_selected()

    def _show_counts(self) -> None:
        counts = self._store.counts()
        reviewed = counts[State.ACCEPTED] + counts[State.UNREADABLE]
        self._counts.set_text(self._t("counts", reviewed=reviewed, all=sum(counts.values())))

    async def _show_status(self) -> None:
        """Show the model's errors, which take a moment to count in a large archive, and the work in the background."""
        statistics = await run.io_bound(self._session.statistics)
        if statistics is None:  # the workbench is shutting down
            return
        self._show_counts()
        cer, judged = statistics.errors.rate, statistics.judged
        self._cer.set_text(self._t("cer", cer=cer, lines=judged) if judged else self._t("no_cer"))
        self._outlook.set_text(" · ".join(self._outlook_texts(statistics.outlook)))
        if (advice := self._session.advice()) is not None:
            self._advice.set_text(self._t(advice.name, **advice.values))
            self._learn_now.set_visibility(advice.can_learn)
        self._activity.set_text(" · ".join(self._background_status()))
        if self._session.training is not None:
            self._training_plan.set_text(self._plan())

    def _show_people(self, line: StoredLine) -> None:
        """Show who reviewed a line, and who else is at it."""
        if (client := self._field.client).has_socket_connection:
            self._session.presence.enter(client.id, self._visitor, line.number, self._name or self._t("somebody"))
        others = self._session.presence.others(self._visitor)
        names = ", ".join(name for held, name in others if held == line.number)
        remarks = (
            line.author and f"{line.author}, {line.reviewed_at[:16].replace('T', ' ')}",
            line.checked_by and self._t("checked_by", name=line.checked_by),
            names and self._t("here_too", names=names),
            line.note,
        )
        self._remarks.set_text(" · ".join(filter(None, remarks)))
        self._remarks.props["title"] = self._remarks.text

    def _outlook_texts(self, outlook: Outlook) -> Iterator[str]:
        """The estimated CER of all texts, and the work until it is below the next target."""
        if outlook.cer is None:
            return
        yield self._t("outlook", cer=outlook.cer)
        target = next((target for target in _TARGETS if target < outlook.cer), None)
        pace = seconds_a_line(self._store.review_times(f"{self._visitor}/"))
        if target is not None and pace is not None:
            lines = outlook.lines_until(target)
            minutes = max(1, round(lines * pace / 60))
            time = self._t("hours", hours=round(minutes / 60)) if minutes > 90 else self._t("minutes", minutes=minutes)
            yield self._t("effort", lines=lines, time=time, target=target)

    def _background_status(self) -> Iterator[str]:
        if (count := self._session.wrong_texts()) is not None:
            low, high = count.interval
            yield self._t("wrong_texts", **asdict(count), low=low, high=high)
        if (finder := self._session.finder) is not None:
            if finder.error is not None:
                yield self._t("finding_failed", error=finder.error)
            elif finder.is_running:
                name = "finding_pages" if finder.total else "finding"
                yield self._t(name, done=finder.done, total=finder.total)
        if (reader := self._session.reader) is not None:
            if reader.error:
                yield self._t("reading_failed", error=reader.error)
            else:
                if reader.is_running:
                    yield self._t("reading", done=reader.done, total=reader.total)
                if reader.skipped:
                    yield self._t("skipped", lines=len(reader.skipped), first=reader.skipped[0])
        if (learner := self._session.learner) is not None:
            if learner.error:
                yield self._t("learning_failed", error=learner.error)
            if learner.is_on and not learner.is_learning:
                yield self._t("learn_waits", wanted=learner.wanted())
        training = self._session.training
        if training is None or (status := training.status()) is None:
            return
        if status.error:
            yield self._t("training_failed", error=status.error)
            return
        is_running = status.is_running
        name = "trained" if not is_running else "training" if status.share is None else "training_share"
        yield self._t(name, run=training.run, steps=status.steps, share=status.share)
        # The lesson has another CER of the same lines, which are read with the language model then.
        has_lesson = learner is not None and learner.lesson is not None and not is_running
        if status.cer is not None and not has_lesson:
            yield self._t("validation_cer", cer=status.cer)

    def _plan(self) -> str:
        return self._t("plan", lines=self._store.counts()[State.ACCEPTED])

    async def _show_image_error(self) -> None:
        if self._line is not None:
            try:
                await run.io_bound(self._session.line_jpeg, self._line.number)
            except DataError as error:
                self._image_error.set_text(self._t("no_image", why=error.message))

    # Selecting lines

    async def _poll(self) -> None:
        """Show changes by other people and the model; drafts stay."""
        if self._session.is_closed:
            ui.navigate.to("/")
            return
        await self._show_status()
        if self._store.stamp() == self._stamp:
            return
        if len(self._pages.options) < len(self._session.pages):
            self._pages.set_options(self._page_names())
        if self._line is None:  # the first page had no lines
            self._line = self._store.first()
            return
        now = self._store.line(self._line.number)
        if now is None:
            ui.notify(self._t("removed"), type="warning")
        self._line = now or self._line
        self._show(removed=now is None)

    def _select(self, number: int) -> None:
        if self._line is not None and number == self._line.number:  # a region may be chosen in its place
            self._page_view.run_method("leaveRegion", number)
        self._line = self._store.line(number) or self._store.first()
        self._show()

    def _move(self, *, back: bool = False) -> None:
        """Go to the line beside; at an end it is shown again, or the first line if it was removed."""
        if self._line is not None:
            self._select((self._store.neighbour(self._line, before=back) or self._line).number)

    def _next_by_order(self, after: StoredLine | None = None) -> StoredLine | None:
        return self._session.next_line(self._order, after, visitor=self._visitor, name=self._name)

    def _page_clicked(self, x: float, y: float) -> None:
        if self._line is not None and (hit := line_at(self._store.lines(self._line.page), x, y)) is not None:
            self._select(hit.number)

    def _show_page(self, number: int) -> None:
        if self._line is not None and number != self._line.page and (lines := self._store.lines(number)):
            self._select(next((line.number for line in lines if not line.is_reviewed), lines[0].number))

    def _order_selected(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._order = event.value
        if self._order != "pages" and (line := self._next_by_order()) is not None:
            self._select(line.number)

    # Actions

    def _handle(self, action: Action) -> Collection[int]:
        """Carry out an action, or show why it failed; returns the lines whose drafts it used up."""
        handlers: dict[str, Callable[[Action], Collection[int] | None]] = {
            "next": lambda _: self._move(),
            "previous": lambda _: self._move(back=True),
            "go": lambda action: self._select(action.to or 0),
            "leave": lambda _: self._move(),
            "accept": lambda action: self._review(action, State.ACCEPTED),
            "unreadable": lambda action: self._review(action, State.UNREADABLE),
            "split": self._split,
            "join": self._join,
            "undo": lambda _: self._undo(),
            "alternatives": self._show_alternatives,
            "note": self._edit_note,
            "search": lambda _: self._search(),
            "help": lambda _: open_help_dialog(self._t),
        }
        try:
            return handlers[action.action](action) or ()
        except StaleError as error:
            if error.line is None:
                ui.notify(self._t("removed"), type="warning")
            else:
                ui.notify(self._t("stale", text=error.line.text), type="warning", timeout=8000)
                if error.line.number == action.line:
                    self._line = error.line
                    self._show(notified=True)
        except DsocrError as error:
            notify_error(error)
        return ()

    def _line_of(self, action: Action) -> StoredLine:
        """The stored line, at the version the user saw unless only a model read it since. StaleError if it is gone."""
        line = self._store.line(action.line)
        if line is None:
            raise StaleError(None)
        is_machine_text = line.state is State.READ and line.text == line.machine
        return line if is_machine_text and action.text.strip() else replace(line, version=action.version)

    def _review(self, action: Action, state: State) -> Collection[int]:
        line = self._line_of(action)
        self._line = self._store.review(line, action.text, state, who=self._user, name=self._name)
        if (following := self._next_by_order(self._line)) is not None:
            self._select(following.number)
            return (action.line,)
        if self._order != "pages":
            ui.notify(self._t("all_reviewed" if self._order == "doubt" else "all_checked"), type="positive")
        self._show()
        return (action.line,)

    def _split(self, action: Action) -> Collection[int]:
        self._line, _ = self._store.split(self._line_of(action), action.caret, who=self._user, text=action.text)
        self._show()
        return (action.line,)

    def _join(self, action: Action) -> Collection[int]:
        line = self._line_of(action)
        following = self._store.following(line)
        draft = action.drafts.get(following.number) if following else None
        next_text = None
        if following is not None and draft is not None:
            following, next_text = replace(following, version=draft.version), draft.text
        self._line = self._store.join(line, following, who=self._user, text=action.text, next_text=next_text)
        self._show()
        return (action.line,) if following is None else (action.line, following.number)

    def _undo(self) -> Collection[int]:
        change = self._store.undo(self._user)
        if change is None:
            ui.notify(self._t("nothing_to_undo"))
            return ()
        self._read_unread()
        ui.notify(self._t("undone"))
        self._line = next((now for line in change.before if (now := self._store.line(line.number))), self._line)
        if self._line is not None and self._store.line(self._line.number) is None:  # it was drawn
            self._line = self._store.neighbour(self._line) or self._store.first()
        self._show(notified=True)
        return {line.number for line in (*change.before, *change.after)}

    async def _edit_shapes(self, edit: Mapping[str, Any]) -> None:
        page = self._session.pages[int(edit["page"])]
        with self._showing_errors():
            if edit["what"] == FIND_AGAIN:
                ui.notify(self._t("finding"))
                outlines = await run.io_bound(detect_outlines, self._session.archive, page)
                removed, added = replace_unreviewed(self._store, page.number, outlines or [], who=self._user)
                ui.notify(self._t("found_lines", removed=removed, added=added), type="positive")
                self._line = self._store.lines(page.number)[0]
            elif edit["what"] == FIND_TABLES:
                ui.notify(self._t("finding_tables"))
                lines, archive = self._store.lines(page.number), self._session.archive
                search = await run.io_bound(lambda: search_tables(archive.page_image(page), lines))
                if search is not None:  # else the workbench is shutting down
                    tables = put_tables(self._store, page.number, search, who=self._user)
                    ui.notify(self._t("found_tables", tables=tables), type="positive")
                self._refresh()
            else:
                self._refresh(carry_out(self._store, page, edit, who=self._user))
            self._read_unread()
        self._show(notified=True)

    def _refresh(self, number: int | None = None) -> None:
        if self._line is not None:
            self._line = self._store.line(number or self._line.number) or self._line

    def _read_unread(self) -> None:
        if self._session.reader is not None:
            self._session.reader.start()

    def _reorder(self, number: int, target: int, after: bool) -> None:
        with self._showing_errors():
            move_beside(self._store, number, target, after=after, who=self._user)
        self._refresh()
        self._show(notified=True)

    @contextmanager
    def _showing_errors(self) -> Iterator[None]:
        """Show errors of a change; the page is shown as it is afterwards."""
        try:
            yield
        except StaleError:
            ui.notify(self._t("stale_shape"), type="warning")
        except DsocrError as error:
            notify_error(error)

    def _show_alternatives(self, action: Action) -> None:
        """Offer alternatives for the word at the cursor as soon as the model has judged them."""
        line, span = self._store.line(action.line), word_at(action.text, action.caret)
        if line is None or span is None:
            return
        start, end = span
        word = action.text[start:end]

        async def show() -> None:
            readings = await run.io_bound(self._session.alternatives, line, action.text, start, end)
            if self._line is None or self._line.number != line.number:
                return  # the user has gone on
            self._alternatives.clear()
            with self._alternatives:
                ui.label(self._t("alternatives" if readings else "no_alternatives", word=word)).classes("text-sm")
                for other in readings or ():
                    button = self._field.local_button(other, "replaceWord", start, end, other)
                    button.props('outline dense no-caps padding="xs sm"').on_click(self._alternatives.clear)

        background_tasks.create(show())

    def _edit_note(self, action: Action) -> None:
        line = self._line_of(action)

        def save(note: str) -> None:
            with self._showing_errors():
                self._line = self._store.annotate(line, note, who=self._user)
            self._show()

        open_note_dialog(line, self._t, save)

    def _search(self) -> None:
        def replace_hits(hits: Sequence[Hit], replacement: str) -> None:
            with self._showing_errors():
                lines = replace_all(self._store, hits, replacement, who=self._user)
                ui.notify(self._t("replaced", lines=lines), type="positive")
            if self._line is not None:
                self._select(self._line.number)

        page = self._line.page if self._line else None
        open_search_dialog(self._session, self._t, page, self._select, replace_hits)

    # Training

    def _let_learn(self, *, on: bool) -> None:
        if (learner := self._session.learner) is not None:
            learner.is_on = on and has_training()
            if learner.is_on != on:
                self._learning_switch.set_value(False)
                open_install_dialog(self._t)

    async def _train(self, button: ui.button) -> None:
        if not has_training():
            open_install_dialog(self._t)
        elif (training := self._session.training) is not None:
            with self._showing_errors(), disabled(button):
                plan = self._plan()
                await run.io_bound(training.start)
                ui.notify(plan)
            await self._show_status()
