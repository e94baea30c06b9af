"""The lines of a page as text, with what the model doubts highlighted."""

from collections.abc import Callable, Sequence
from html import escape

from nicegui import ui

from dsocr.workbench.store import State, StoredLine

DOUBT = 0.95
"""Characters with a lower probability are highlighted, the lower the stronger."""
_UNKNOWN = "text-decoration:underline dotted #dc2626 2px;text-underline-offset:4px"
_MARKS = {State.ACCEPTED: "✓", State.UNREADABLE: "✗"}
_SELECTED, _OTHERS = "bg-amber-100 dark:bg-amber-900", "hover:bg-slate-200 dark:hover:bg-slate-800"


def highlighted_html(
    text: str, characters: Sequence[float], unknown: Sequence[tuple[int, int]] = (), reason: str = ""
) -> str:
    """A text as HTML with doubtful characters highlighted; their probability is the tooltip.

    Words at the places `unknown` are underlined; `reason` is their tooltip.
    """
    starts, ends = {start for start, _ in unknown}, {end for _, end in unknown}
    known = characters if len(characters) == len(text) else [1.0] * len(text)  # somebody changed what the model read
    pieces = []
    for place, (letter, likely) in enumerate(zip(text, known, strict=True)):
        if place in ends:
            pieces.append("</span>")
        if place in starts:
            pieces.append(f'<span style="{_UNKNOWN}" title="{escape(reason)}">')
        piece = escape(letter)
        if likely < DOUBT:
            strength = round(25 + 60 * (1 - likely / DOUBT))
            style = f"background:color-mix(in srgb, #f59e0b {strength}%, transparent);border-bottom:2px solid #b45309"
            piece = f'<span style="{style}" title="{likely:.0%}">{piece}</span>'
        pieces.append(piece)
    if len(text) in ends:
        pieces.append("</span>")
    return "".join(pieces)


_DRAG = "event => event.dataTransfer.setData('text/plain', event.target.dataset.line)"
_DROP = """event => {
    event.preventDefault();
    const row = event.target.closest("[data-line]"), moved = Number(event.dataTransfer.getData("text/plain"));
    if (!row || !moved) return;
    const { top, height } = row.getBoundingClientRect();
    emit(moved, Number(row.dataset.line), event.clientY > top + height / 2);
}"""


class LineList:
    """The lines of a page, in a scrolling column; `on_select` gets the number of a clicked line.

    `on_drop` gets the number of a line that was dragged, that of the one it was dropped on, and whether behind it.
    """

    def __init__(self, on_select: Callable[[int], None], on_drop: Callable[[int, int, bool], None]) -> None:
        self._on_select = on_select
        self._column = ui.column().classes("w-full gap-0").props('role="list"')
        self._column.on("dragstart", js_handler=_DRAG).on("dragover", js_handler="event => event.preventDefault()")
        self._column.on("drop", lambda event: on_drop(*event.args), js_handler=_DROP)
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
        """Scroll the column so that the selected row and its neighbours are visible."""
        ui.run_javascript(
            f"requestAnimationFrame(() => {{ const list = getHtmlElement({self._column.id});"
            "const column = list.parentElement.getBoundingClientRect();"
            "const row = list.querySelector('[aria-current]')?.getBoundingClientRect();"
            "if (row && (row.top - row.height < column.top || row.bottom + row.height > column.bottom))"
            "list.parentElement.scrollTop += (row.top + row.bottom - column.top - column.bottom) / 2 })"
        )


class _LineRow:
    def __init__(self, line: StoredLine, on_select: Callable[[int], None]) -> None:
        self._line: StoredLine | None = None
        self._selected = False
        with ui.row().classes(f"w-full no-wrap gap-2 px-2 py-1 cursor-pointer rounded {_OTHERS}") as self._row:
            self._row.props(f'role="listitem" draggable="true" data-line="{line.number}"').on(
                "click", lambda: on_select(line.number)
            )
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
