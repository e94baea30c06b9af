"""The field in which a line is written: it keeps what was not accepted, and tells what is done to the line it shows."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from nicegui import events, ui

from dsocr.workbench.lines import Line


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
