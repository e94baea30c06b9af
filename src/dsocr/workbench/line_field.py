"""The input field for a line, and the letters, shorthands and marks to type in it.

Its other half, in the browser, is `line_field.js`.
"""

import json
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from nicegui import events, ui
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsocr.config import problems_in, read_yaml
from dsocr.errors import ConfigError
from dsocr.language import Language
from dsocr.workbench.stored_lines import StoredLine

FILE = "keyboards.yaml"

MARKS: Mapping[str, tuple[str, str]] = {
    "mark_doubtful": ("", "[?]"),
    "mark_struck": ("~~", "~~"),
    "mark_inserted": ("\\", "/"),
}
"""What stands before and after the selected text; the marks that `prepare --text-policy` knows."""
GAPS: Mapping[Language, str] = {"en": "[unclear]", "ru": "[нрзб]"}


class Draft(BaseModel):
    """A text typed on a version of a line and not accepted."""

    version: int
    text: str


class Action(BaseModel):
    """What somebody does with the line they see, at its `version`, and the text in the field at that moment.

    `caret` counts the characters before the cursor, `to` is the line to go to, and `drafts` are sent for joining.
    """

    action: str
    line: int
    version: int
    text: str
    caret: int
    to: int | None = None
    drafts: dict[int, Draft]


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
        self._props.update({"marks": dict(marks), "shorthands": dict(shorthands)})
        self.on("action", self._handle)

    def show(self, line: StoredLine, *, notified: bool = False, removed: bool = False) -> None:
        """Show a line with its draft, none if `removed`; once `notified` of its version, the user may overwrite it."""
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
            self._cleared = self._on_action(Action.model_validate(event.args))
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


class _Set(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | dict[Language, str]
    keys: str


Shorthand = Annotated[str, Field(min_length=1, max_length=20)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sets: list[_Set] = []
    shorthands: dict[Shorthand, str] = {}


@dataclass(frozen=True, slots=True)
class Keyboard:
    """Sets of letters by name, and expansions of shorthands."""

    sets: Mapping[str, tuple[str, ...]]
    shorthands: Mapping[str, str]


def load_keyboard(work: Path, language: Language) -> Keyboard:
    """The program's letters and those of `keyboards.yaml` in a work folder, which win. ConfigError if invalid."""
    sets: dict[str, tuple[str, ...]] = {}
    shorthands: dict[str, str] = {}
    for path in (Path(__file__).with_name(FILE), work / FILE):
        if not path.is_file():
            continue
        hint = "see the guide of the workbench for an example"
        try:
            held = _File.model_validate(read_yaml(path, example="shorthands: {dsq: dominus}", hint=hint))
        except ValidationError as error:
            message = "; ".join(problems_in(error))
            raise ConfigError(message, code="keyboard-invalid", where=path, hint=hint) from error
        for letters in held.sets:
            name = letters.name
            if not isinstance(name, str):
                name = name.get(language) or next(iter(name.values()))
            sets[name] = tuple(unicodedata.normalize("NFC", letters.keys).split())
        shorthands |= held.shorthands
    return Keyboard(sets, shorthands)


def label_of(key: str) -> str:
    """What a key is labelled with: a combining sign needs a letter to stand on."""
    return f"◌{key}" if unicodedata.combining(key[0]) else key
