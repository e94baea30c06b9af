"""The input field for a line; its other half, in the browser, is `line_field.js`."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from nicegui import events, ui

from dsocr.workbench.store import StoredLine


@dataclass(frozen=True, slots=True)
class Draft:
    """A text typed on a version of a line and not accepted."""

    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody does with the line they see, at its `version`, and the text in the field at that moment.

    `caret` counts the characters before the cursor, `to` is the line to go to, and `drafts` are sent for joining.
    """

    name: str
    line: int
    version: int
    text: str
    caret: int = 0
    to: int | None = None
    drafts: Mapping[int, Draft] = field(default_factory=dict)

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Self:
        """An action as the browser sends it."""
        drafts = {
            int(number): Draft(int(one["version"]), str(one["text"])) for number, one in message["drafts"].items()
        }
        to = None if message.get("to") is None else int(message["to"])
        line, version, caret = (int(message[key]) for key in ("line", "version", "caret"))
        return cls(str(message["action"]), line, version, str(message["text"]), caret, to, drafts)


class LineField(ui.element, component="line_field.js"):
    """The input field; `on_action` carries out an action and returns the lines whose drafts it used up.

    Only the browser knows what is typed and not accepted, so the text of a line is that of the action, never what the
    server believes to be in the field. The browser sends an action again if it is not answered; each is done once.
    """

    def __init__(
        self,
        label: str,
        store: str,
        on_action: Callable[[Action], Collection[int]],
        *,
        marks: Mapping[str, tuple[str, str]],
        shorthands: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._on_action = on_action
        self._answered = 0
        self._cleared: Collection[int] = ()
        self._line: StoredLine | None = None
        self._notified: int | None = None
        self._is_removed = False
        self._props.update({"label": label, "for": self.html_id, "store": store, "state": None})
        self._props.update(
            {"marks": {name: list(pair) for name, pair in marks.items()}, "shorthands": dict(shorthands)}
        )
        self.on("action", self._handle)

    def show(self, line: StoredLine, *, notified: bool = False, removed: bool = False) -> None:
        """Show a line, keeping its draft.

        With `notified` the user has seen its current version and may overwrite it. A `removed` line is left as soon as
        it has no draft.
        """
        self._line, self._is_removed = line, removed
        self._notified = line.version if notified else self._notified
        self._update_state()

    def button(self, label: str, action: str, **look: Any) -> ui.button:
        """A button for an action on the line in the field."""
        return ui.button(label, **look).on("click", js_handler=f"() => getElement({self.id}).act({action!r})")

    def local_button(self, label: str, call: str, *arguments: object, **look: Any) -> ui.button:
        """A button that changes the text in the field by one of its JavaScript methods."""
        values = ", ".join(json.dumps(argument) for argument in arguments)
        # The field keeps the focus and its selection.
        button = ui.button(label, **look).on("mousedown.prevent", js_handler="() => {}")
        return button.on("click", js_handler=f"() => getElement({self.id}).{call}({values})")

    def _handle(self, event: events.GenericEventArguments) -> None:
        if event.args["sequence"] <= self._answered:
            self._update_state()
            return
        self._cleared = ()
        try:
            self._cleared = self._on_action(Action.parse(event.args))
        finally:
            self._answered = event.args["sequence"]
            self._update_state()

    def _update_state(self) -> None:
        if self._line is not None:
            self._props["state"] = {
                "number": self._line.number,
                "version": self._line.version,
                "text": " ".join(self._line.text.splitlines()),  # the browser would drop line breaks
                "removed": self._is_removed,
                "notified": self._notified,
                "answered": self._answered,
                "cleared": list(self._cleared),
            }
