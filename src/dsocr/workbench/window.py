"""The window of a workbench: a page with its lines, the texts beside it, and a field to correct one in."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, Self

from nicegui import events, run, ui

from dsocr.errors import DsocrError
from dsocr.workbench.archive import EXPORT_FORMATS, export, export_dataset
from dsocr.workbench.session import Workbench
from dsocr.workbench.store import Line, StaleError, State, line_at

_COLOUR_BY_STATE = {
    State.UNREAD: "#64748b",
    State.READ: "#d97706",
    State.ACCEPTED: "#059669",
    State.UNREADABLE: "#9333ea",
}
DOUBT = 0.95
"""A character less likely right than this is tinted, the deeper the less likely."""


def drawn(lines: Sequence[Line], chosen: int | None) -> str:
    """The outlines of a page's lines as SVG in its pixels, one of them chosen."""
    return "".join(_outline(line, is_chosen=line.number == chosen) for line in lines)


def _outline(line: Line, *, is_chosen: bool) -> str:
    left, top, right, bottom = line.outline.box
    points = line.outline.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))
    where = " ".join(f"{x},{y}" for x, y in points)
    colour = _COLOUR_BY_STATE[line.state]
    look = 'fill-opacity="0.22" stroke-width="5"' if is_chosen else 'fill-opacity="0.06" stroke-width="2"'
    return f'<polygon points="{where}" fill="{colour}" stroke="{colour}" {look} vector-effect="non-scaling-stroke"/>'


def tinted(text: str, characters: Sequence[float]) -> str:
    """A text as HTML; where it is doubtful it stands on a ground, and says how likely it is right."""
    if len(characters) != len(text):  # what stands there is not what the model read
        return escape(text)
    return "".join(_letter(letter, likely) for letter, likely in zip(text, characters, strict=True))


def _letter(letter: str, likely: float) -> str:
    if likely >= DOUBT:
        return escape(letter)
    strength = round(25 + 60 * (1 - likely / DOUBT))
    ground = f"background:color-mix(in srgb, #f59e0b {strength}%, transparent);border-bottom:2px solid #b45309"
    return f'<span style="{ground}" title="{likely:.0%}">{escape(letter)}</span>'


_CHOSEN, _OTHERS = "bg-amber-100 dark:bg-amber-900", "hover:bg-slate-200 dark:hover:bg-slate-800"
_MARKS = {State.ACCEPTED: "✓", State.UNREADABLE: "✗"}


class LineRows:
    """The list, below an editor in a column that scrolls; `choose` is told the number of a line that is clicked."""

    def __init__(self, choose: Callable[[int], None]) -> None:
        self._choose = choose
        self._list = ui.column().classes("w-full gap-0").props('role="list"')
        self._rows: dict[int, _Row] = {}

    def show(self, lines: Sequence[Line], chosen: int) -> None:
        """Show these lines in their order, and which one is chosen."""
        if [line.number for line in lines] != [*self._rows]:
            self._list.clear()
            with self._list:
                self._rows = {line.number: _Row(line, self._choose) for line in lines}
        for line in lines:
            self._rows[line.number].show(line, chosen=line.number == chosen)

    def bring_to_sight(self) -> None:
        """Scroll so that the chosen row and those beside it are seen, below the editor, which stays."""
        ui.run_javascript(
            f"requestAnimationFrame(() => {{ const list = getHtmlElement({self._list.id}), place = list.parentElement;"
            "const row = list.querySelector('[aria-current]')?.getBoundingClientRect();"
            "const above = list.previousElementSibling.getBoundingClientRect().bottom;"
            "const below = Math.min(place.getBoundingClientRect().bottom, innerHeight);"
            "if (row && (row.top - row.height < above || row.bottom + row.height > below))"
            "place.scrollTop += (row.top + row.bottom - above - below) / 2 })"
        )


class _Row:
    def __init__(self, line: Line, choose: Callable[[int], None]) -> None:
        self._shown: Line | None = None
        self._chosen = False
        with ui.row().classes(f"w-full no-wrap gap-2 px-2 py-1 cursor-pointer rounded {_OTHERS}") as self._row:
            self._row.props('role="listitem"').on("click", lambda: choose(line.number))
            self._mark = ui.label().classes("w-4 text-emerald-700 dark:text-emerald-400")
            self._text = ui.html(sanitize=False)

    def show(self, line: Line, *, chosen: bool) -> None:
        if line != self._shown:
            self._shown = line
            self._mark.set_text(_MARKS.get(line.state, "·"))
            self._text.set_content(tinted(line.text, line.characters) or "&nbsp;")
        if chosen != self._chosen:
            self._chosen = chosen
            self._row.classes(add=_CHOSEN if chosen else _OTHERS, remove=_OTHERS if chosen else _CHOSEN)
            self._row.props(add='aria-current="true"' if chosen else "", remove="" if chosen else "aria-current")


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that was written on a version of a line, and not accepted."""

    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody does with the number `line` that they see, at its `version`, and what stood in the field then.

    `caret` counts the characters before the cursor; `to` is the line to go to; `drafts` are told to join lines.
    """

    action: str
    line: int
    version: int
    text: str
    caret: int = 0
    to: int | None = None
    drafts: Mapping[int, Draft] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """An act as the browser tells it."""
        drafts = {int(number): Draft(int(one["version"]), str(one["text"])) for number, one in told["drafts"].items()}
        to = None if told.get("to") is None else int(told["to"])
        return cls(
            str(told["action"]),
            int(told["line"]),
            int(told["version"]),
            str(told["text"]),
            int(told["caret"]),
            to,
            drafts,
        )


class LineField(ui.element, component="line_field.js"):
    """The field; `act` carries out what is done, and gives the numbers of lines whose drafts are taken by it.

    The browser alone knows what is written and not accepted, so the text of a line is that of the act, never what the
    server believes to stand in the field. An act that is not answered is told again; each is carried out once.
    """

    def __init__(self, label: str, store: str, act: Callable[[Act], Collection[int]]) -> None:
        super().__init__()
        self._carry_out = act
        self._answered = 0
        self._took: Collection[int] = ()
        self._line: Line | None = None
        self._told: int | None = None
        self._is_gone = False
        self._props.update({"label": label, "for": self.html_id, "store": store, "shown": None})
        self.on("act", self._acted)

    def show(self, line: Line, *, told: bool = False, gone: bool = False) -> None:
        """Show a line, and keep what was written on it.

        `told`: whoever writes knows how it stands now, and may accept over it. `gone`: it is no more, and its field
        stays only as long as something is written there.
        """
        self._line, self._is_gone = line, gone
        self._told = line.version if told else self._told
        self._tell()

    def button(self, word: str, action: str, **look: Any) -> ui.button:
        """A button that does something with the line in the field."""
        act = f"() => getElement({self.id}).act({action!r})"
        return ui.button(word, **look).on("click", js_handler=act)

    def _acted(self, event: events.GenericEventArguments) -> None:
        if event.args["turn"] <= self._answered:
            self._tell()
            return
        self._took = ()
        try:
            self._took = self._carry_out(Act.of(event.args))
        finally:
            self._answered = event.args["turn"]
            self._tell()

    def _tell(self) -> None:
        if self._line is not None:
            self._props["shown"] = {
                "number": self._line.number,
                "version": self._line.version,
                "text": " ".join(self._line.text.splitlines()),  # else the browser leaves out what parts them
                "gone": self._is_gone,
                "told": self._told,
                "answered": self._answered,
                "took": list(self._took),
            }


Language = Literal["en", "ru"]

_WORDS: dict[str, tuple[str, str]] = {
    "accept": ("Accept (Enter)", "Принять (Enter)"),
    "unreadable": ("Unreadable (Alt+U)", "Нечитаемо (Alt+U)"),
    "part": ("Split here (Alt+S)", "Разделить здесь (Alt+S)"),
    "join": ("Join with next (Alt+J)", "Слить со следующей (Alt+J)"),
    "undo": ("Undo (Alt+Z)", "Отменить (Alt+Z)"),
    "nothing_to_undo": ("nothing was changed in this window that could be undone", "в этом окне отменять нечего"),
    "undone": ("undone", "отменено"),
    "order_pages": ("in order", "по порядку"),
    "order_doubt": ("by doubt", "по сомнению"),
    "page": ("Page", "Страница"),
    "line": ("Picture of the line", "Изображение строки"),
    "text": ("Text of the line", "Текст строки"),
    "export": ("Export", "Выгрузить"),
    "accepted_only": ("accepted lines only", "только принятые строки"),
    "folder": ("Folder to write", "Папка для записи"),
    "dataset": ("dataset to train on", "набор для обучения"),
    "write": ("Write", "Записать"),
    "written": (
        "written: {pages} pages, {texts} texts, in {out}",
        "записано: страниц {pages}, текстов {texts}, в {out}",
    ),
    "train": ("Train on corrections", "Обучить на исправлениях"),
    "training": ("training: step {steps}", "обучение: шаг {steps}"),
    "trained": ("trained: {run}", "обучено: {run}"),
    "training_failed": ("the training ended: {fault}", "обучение прервалось: {fault}"),
    "validation_cer": ("CER {cer} on lines kept for validation", "CER {cer} на отложенных строках"),
    "cer": ("CER of the machine so far: {cer} on {lines} lines", "CER машины пока: {cer}, строк {lines}"),
    "no_cer": ("CER: no line of the machine accepted yet", "CER: пока не принято ни одной строки машины"),
    "counts": ("{settled} of {all} lines settled", "решено строк: {settled} из {all}"),
    "reading": ("reading: {done} of {total}", "чтение: {done} из {total}"),
    "not_shown": ("no picture of this line: {why}", "изображения строки нет: {why}"),
    "left_out": (
        "without a picture, so not read: {lines}, the first: {first}",
        "без изображения, поэтому не прочитано строк: {lines}, первая: {first}",
    ),
    "reading_failed": ("reading ended: {fault}", "чтение прервалось: {fault}"),
    "stale": (
        "somebody changed this line meanwhile: «{text}»; your text is still in the field",
        "строку тем временем изменил кто-то другой: «{text}»; ваш текст остался в поле",
    ),
    "gone": ("somebody removed this line meanwhile", "строку тем временем кто-то удалил"),
    "all_settled": ("every line is settled", "все строки решены"),
    "state_unread": ("not read", "не прочитана"),
    "state_read": ("to be looked at", "не проверена"),
    "state_accepted": ("accepted", "принята"),
    "state_unreadable": ("unreadable", "нечитаема"),
    "keys": ("Enter accepts, Alt+↑ and Alt+↓ walk", "Enter — принять, Alt+↑ и Alt+↓ — ходить"),
}


class Speech:
    """All sentences in one language."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def __call__(self, name: str, **values: object) -> str:
        """A sentence, with values in it."""
        english, russian = _WORDS[name]
        return (russian if self.language == "ru" else english).format(**values)


_LOOK_AGAIN = 1.5
"""Seconds between two looks at what others did."""
_DATASET = "dataset"


class Window:
    """What a tab of a visitor's browser shows. Each tab takes back what was changed in it, and no other's changes."""

    def __init__(self, bench: Workbench, language: Language, visitor: str) -> None:
        self._bench = bench
        self._store = bench.store
        self._say = Speech(language)
        self._visitor = visitor
        self._line = bench.store.first()
        self._by_doubt = False
        self._stamp = self._store.stamp()
        self._brought: int | None = None  # the number of the line that was brought to sight
        self._build()

    @property
    def _who(self) -> str:
        """Whose changes stand in the history: the tab's, which keeps its name when its page is loaded again."""
        return f"{self._visitor}/{self._field.client.tab_id}"

    # What is seen

    def _build(self) -> None:
        ui.colors(primary="#1d4ed8")  # white on it can be read, as on the usual one it cannot
        # and as letters on dark ground it cannot
        ui.add_css(".body--dark :is(.text-primary, .q-field, .nicegui-link) { --q-primary: #93c5fd; color: #93c5fd; }")
        ui.query("body").classes("bg-slate-100 dark:bg-slate-900")
        ui.query(".nicegui-content").classes("p-3 gap-3")
        self._head()
        # two columns where there is room for them
        with ui.row().classes("w-full gap-3 items-start lg:flex-nowrap"):
            with ui.card().classes("w-full lg:w-1/2 p-2 overflow-auto max-h-[40vh] lg:max-h-[calc(100vh-6.5rem)]"):
                self._picture = ui.interactive_image(on_mouse=self._clicked, events=["click"]).classes("w-full")
                self._picture.on("loaded", self._bring_page_to_sight)
                self._picture.props(f'role="img" aria-label="{self._say("page")}"')
            with ui.column().classes("w-full lg:w-1/2 gap-3 lg:overflow-auto lg:max-h-[calc(100vh-6.5rem)]"):
                self._editor()
                self._rows = LineRows(self._choose)
        ui.timer(_LOOK_AGAIN, self._look_again)
        self._show()

    def _head(self) -> None:
        with ui.row().classes("w-full items-center gap-4"):
            ui.label(self._bench.name).classes("text-lg font-semibold")
            pages = {number: f"{self._say('page')} {page.name}" for number, page in self._bench.pages.items()}
            self._pages = ui.select(pages, on_change=self._page_chosen).props("dense outlined").classes("w-64")
            self._pages.props(f'aria-label="{self._say("page")}"')
            orders = {False: self._say("order_pages"), True: self._say("order_doubt")}
            ui.toggle(orders, value=False, on_change=self._order_chosen).props("dense no-caps")
            self._counts = ui.label()
            self._cer = ui.label()
            self._work = ui.label().classes("text-amber-700 dark:text-amber-400")
            ui.space()
            self._undoing = ui.row()
            ui.button(self._say("export"), on_click=self._export, icon="save_alt").props("flat dense no-caps")
            if self._bench.training is not None:
                train = ui.button(self._say("train"), icon="school").props("flat dense no-caps")
                train.on_click(lambda: self._train(train))
            other = "en" if self._say.language == "ru" else "ru"
            ui.link("English" if other == "en" else "Русский", f"/{other}")

    def _editor(self) -> None:
        with ui.card().classes("w-full p-3 gap-2 sticky top-0 z-10"):
            self._shown = ui.image().classes("w-full").props('fit="contain" no-spinner').style("max-height: 9rem")
            self._shown.props(f'alt="{self._say("line")}"')
            self._shown.on("error", self._explain)
            self._shown.on("load", lambda: self._rows.bring_to_sight())  # the editor may be higher by it
            self._unshown = ui.label().classes("text-amber-700 dark:text-amber-400")
            with ui.row().classes("w-full items-baseline gap-3 no-wrap"):
                self._doubt = ui.html(sanitize=False).classes("text-xl grow")
                self._state = ui.badge().props("outline")
            self._field = LineField(self._say("text"), self._bench.id, self._acted)
            self._field.classes("w-full text-xl").props("outlined spellcheck=false")
            with ui.row().classes("gap-2"):
                self._field.button(self._say("accept"), "accept", icon="check").props('no-caps padding="xs md"')
                for word in ("unreadable", "part", "join"):
                    self._field.button(self._say(word), word).props('outline no-caps padding="xs md"')
            with self._undoing:
                self._field.button(self._say("undo"), "undo", icon="undo").props("flat dense no-caps")
            ui.label(self._say("keys")).classes("text-xs text-slate-500")

    def _show(self, *, told: bool = False, gone: bool = False) -> None:
        """Show what the store holds of the chosen line and its page; `told` and `gone` are the field's."""
        self._stamp = self._store.stamp()
        self._tell()
        line = self._line
        if line is None:
            return
        lines = self._store.lines(line.page)
        self._pages.set_value(line.page)
        self._picture.set_source(f"/picture/page/{line.page}")
        self._picture.set_content(drawn(lines, line.number))
        if self._shown.source != (source := f"/picture/line/{line.number}?{line.version}"):
            self._unshown.set_text("")
            self._shown.set_source(source)
        self._doubt.set_content(tinted(line.text, line.characters))
        self._state.set_text(self._say(f"state_{line.state}"))
        self._field.show(line, told=told, gone=gone)
        self._rows.show(lines, line.number)
        if self._brought != line.number:  # else somebody may have scrolled elsewhere, to look around
            self._brought = line.number
            self._bring_page_to_sight()
            self._rows.bring_to_sight()

    def _bring_page_to_sight(self) -> None:
        """Scroll the page, where it is higher than its place, so that the chosen line stands in the middle."""
        line = self._line
        if line is None:
            return
        _, top, _, bottom = line.outline.box
        share = (top + bottom) / 2 / self._bench.pages[line.page].height
        ui.run_javascript(
            f"const page = getHtmlElement({self._picture.id}), place = page.parentElement;"
            f"place.scrollTop = page.clientHeight * {share:.4f} - place.clientHeight / 2"
        )

    def _tell(self) -> None:
        tally = self._bench.tally()
        counts = tally.counts
        settled = counts[State.ACCEPTED] + counts[State.UNREADABLE]
        self._counts.set_text(self._say("counts", settled=settled, all=sum(counts.values())))
        cer = f"{tally.errors.rate:.1%}"
        self._cer.set_text(self._say("cer", cer=cer, lines=tally.judged) if tally.judged else self._say("no_cer"))
        self._work.set_text(" · ".join(filter(None, (self._told_of_reading(), self._told_of_training()))))

    def _told_of_reading(self) -> str:
        reading = self._bench.reading
        if reading is None:
            return ""
        if reading.fault:
            return self._say("reading_failed", fault=reading.fault)
        told = [self._say("reading", done=reading.done, total=reading.total)] if reading.is_at_work else []
        if left := reading.left_out:
            told.append(self._say("left_out", lines=len(left), first=left[0]))
        return " · ".join(told)

    def _told_of_training(self) -> str:
        standing = self._bench.training.standing() if self._bench.training else None
        if standing is None or self._bench.training is None:
            return ""
        if standing.fault:
            return self._say("training_failed", fault=standing.fault)
        share = f" ({standing.share:.0%})" if standing.share is not None else ""
        told = self._say("training", steps=standing.steps) + share
        if not standing.is_at_work:
            told = self._say("trained", run=self._bench.training.run)
        cer = "" if standing.cer is None else self._say("validation_cer", cer=f"{standing.cer:.1%}")
        return " · ".join(filter(None, (told, cer)))

    async def _explain(self) -> None:
        """Say why the chosen line has no picture."""
        line = self._line
        if line is not None and (why := await run.io_bound(self._bench.why_not_shown, line.number)):
            self._unshown.set_text(self._say("not_shown", why=why))

    # What is done

    def _look_again(self) -> None:
        """Show what others, and the model, changed meanwhile; what is written in the field stays there."""
        self._tell()
        if self._store.stamp() == self._stamp or self._line is None:
            return
        now = self._store.line(self._line.number)
        if now is None:
            ui.notify(self._say("gone"), type="warning")
        self._line = now or self._line
        self._show(gone=now is None)

    def _choose(self, number: int) -> None:
        """Go to a line; what was written on another and not accepted is there again when one comes back."""
        self._line = self._store.line(number) or self._store.first()
        self._show()

    def _walk(self, *, before: bool = False) -> None:
        further = self._store.neighbour(self._line, before=before) if self._line else None
        if further is not None:
            self._choose(further.number)

    def _go_on(self) -> None:
        """To the next line that wants to be looked at."""
        further = self._bench.next_in_doubt(self._line) if self._by_doubt else None
        if further is not None:
            self._choose(further.number)
        elif self._by_doubt:
            ui.notify(self._say("all_settled"), type="positive")
            self._show()
        elif self._line is not None and (following := self._store.neighbour(self._line)) is not None:
            self._choose(following.number)
        else:
            self._show()

    def _clicked(self, event: events.MouseEventArguments) -> None:
        if self._line is not None:
            hit = line_at(self._store.lines(self._line.page), event.image_x, event.image_y)
            if hit is not None:
                self._choose(hit.number)

    def _page_chosen(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if self._line is None or event.value == self._line.page:
            return
        lines = self._store.lines(event.value)
        if lines:
            self._choose(next((line.number for line in lines if not line.is_settled), lines[0].number))

    def _order_chosen(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._by_doubt = bool(event.value)
        if self._by_doubt and (line := self._bench.next_in_doubt(None)) is not None:
            self._choose(line.number)

    def _acted(self, act: Act) -> Collection[int]:
        """Carry out what was done in the field; where it cannot be, say so. The lines whose drafts are taken by it."""
        carry_out: dict[str, Callable[[Act], Collection[int] | None]] = {
            "next": lambda _: self._walk(),
            "previous": lambda _: self._walk(before=True),
            "go": lambda act: self._choose(act.to or 0),
            "leave": lambda _: self._leave(),
            "accept": lambda act: self._settle(act, State.ACCEPTED),
            "unreadable": lambda act: self._settle(act, State.UNREADABLE),
            "part": self._part,
            "join": self._join,
            "undo": lambda _: self._undo(),
        }
        try:
            return carry_out[act.action](act) or ()
        except StaleError as error:
            if error.line is None:
                ui.notify(self._say("gone"), type="warning")
            else:
                ui.notify(self._say("stale", text=error.line.text), type="warning", timeout=8000)
                if error.line.number == act.line:
                    self._line = error.line
                    self._show(told=True)
        except DsocrError as error:
            ui.notify(f"{error.message}. {error.hint or ''}", type="negative")
        return ()

    def _seen(self, act: Act) -> Line:
        """The line that somebody saw, whatever has become of it since. Raises StaleError where it is gone.

        What somebody wrote may take the place of what only a machine read meanwhile.
        """
        line = self._store.line(act.line)
        if line is None:
            raise StaleError(None)
        is_machine_s = line.state is State.READ and line.text == line.machine
        return line if is_machine_s and act.text.strip() else replace(line, version=act.version)

    def _settle(self, act: Act, state: State) -> Collection[int]:
        self._line = self._store.settle(self._seen(act), act.text, state, who=self._who)
        self._go_on()
        return (act.line,)

    def _part(self, act: Act) -> Collection[int]:
        self._line, _ = self._store.part(self._seen(act), act.caret, who=self._who, text=act.text)
        self._show()
        return (act.line,)

    def _join(self, act: Act) -> Collection[int]:
        line = self._seen(act)
        following = self._store.following(line)
        draft = act.drafts.get(following.number) if following else None
        if following is not None and draft is not None:  # what was written there and not accepted goes along
            following = replace(following, version=draft.version, text=draft.text)
        self._line = self._store.join(line, following, who=self._who, text=act.text)
        self._show()
        return (act.line,) if following is None else (act.line, following.number)

    def _undo(self) -> Collection[int]:
        change = self._store.undo(self._who)
        if change is None:
            ui.notify(self._say("nothing_to_undo"))
            return ()
        ui.notify(self._say("undone"))
        self._choose(change.before[0].number)
        return {line.number for line in (*change.before, *change.after)}

    def _leave(self) -> None:
        """Go on from a line that is no more."""
        further = self._store.neighbour(self._line) if self._line else None
        self._line = further or self._store.first()
        self._show()

    def _export(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-96"):
            kinds = {name: name for name in EXPORT_FORMATS} | {_DATASET: self._say("dataset")}
            kind = ui.select(kinds, value="page").classes("w-full").props("outlined")
            only = ui.checkbox(self._say("accepted_only"), value=True)
            folder = ui.input(self._say("folder"), value=str(self._bench.work / "export")).classes("w-full")
            button = ui.button(self._say("write"))

            async def write() -> None:
                with _disabled(button):
                    await self._write(dialog, kind.value, only.value, folder.value)

            button.on_click(write)
        dialog.open()

    async def _write(self, dialog: ui.dialog, kind: str, accepted_only: bool, folder: str) -> None:
        try:
            said = await run.io_bound(self._written, kind, Path(folder), accepted_only=accepted_only)
        except DsocrError as error:
            ui.notify(f"{error}. {error.hint or ''}", type="negative", multi_line=True)
            return
        if said is None:  # the workbench is being closed
            return
        for left in said[1:]:
            ui.notify(left, type="warning")
        dialog.close()
        ui.notify(said[0], type="positive", timeout=8000)

    def _written(self, kind: str, out: Path, *, accepted_only: bool) -> list[str]:
        """Write it out, which may take minutes: what was written, and what was left out."""
        bench = self._bench
        if kind == _DATASET:
            return [str(export_dataset(bench.store, bench.shelf, out, overwrite=True).folder)]
        done = export(bench.store, bench.shelf, out, to=kind, accepted_only=accepted_only, overwrite=out.exists())
        told = self._say("written", pages=done.pages, texts=done.texts, out=done.out)
        return [told, *(f"{left.where}: {left.message}" for left in done.skipped)]

    async def _train(self, button: ui.button) -> None:
        if self._bench.training is None:
            return
        try:
            with _disabled(button):
                await run.io_bound(self._bench.training.start)
        except DsocrError as error:
            ui.notify(f"{error}. {error.hint or ''}", type="negative", multi_line=True)
        self._tell()


@contextmanager
def _disabled(button: ui.button) -> Iterator[None]:
    """While something is being made, it is not asked for again."""
    button.disable()
    try:
        yield
    finally:
        button.enable()
