"""The texts of a page's lines in a list, the chosen one marked; only rows that changed are drawn anew."""

from collections.abc import Callable, Sequence

from nicegui import ui

from dsocr.workbench.drawing import tinted
from dsocr.workbench.lines import Line, State

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
