"""A page in the window: its image with the outlines of its lines, these as text, and small images of all pages.

Their other halves are in the browser.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple
from html import escape
from pathlib import Path
from typing import Any

from nicegui import events, ui

from dsocr.formats.page import REGION_TYPES
from dsocr.language import catalogue
from dsocr.registers.edits import nodes_of
from dsocr.text import percentage
from dsocr.workbench.dialogs import Translate
from dsocr.workbench.page_changes import version_by_hand
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage, StoredRegion, tables_of, version_of

_KINDS = tuple(
    kind
    for kind in REGION_TYPES
    if kind not in {"footnote-continued", "endnote", "floating", "credit", "TOC-entry", "list-label"}
)
"""The types of PAGE's regions that occur in handwriting."""

DOUBT = 0.95
"""Characters with a lower probability are highlighted, the lower the stronger."""
DOUBT_COLOURS = """:root { --doubt: #f59e0b; --doubt-line: #b45309; }
.body--dark { --doubt: #b45309; --doubt-line: #fbbf24; }"""
"""The CSS of highlighted characters: the text on them is legible, black or white."""
_UNKNOWN = "text-decoration:underline dotted #dc2626 2px;text-underline-offset:4px"
_MARKS = {State.ACCEPTED: "✓", State.UNREADABLE: "✗"}
_SELECTED, _OTHERS = "bg-amber-100 dark:bg-slate-700", "hover:bg-slate-200 dark:hover:bg-slate-800"
_DRAG = "event => event.dataTransfer.setData('text/plain', event.target.dataset.line)"
_DROP = """event => {
    event.preventDefault();
    const row = event.target.closest("[data-line]"), moved = Number(event.dataTransfer.getData("text/plain"));
    if (!row || !moved) return;
    const { top, height } = row.getBoundingClientRect();
    emit(moved, Number(row.dataset.line), event.clientY > top + height / 2);
}"""


class PageView(ui.element, component="page_view.js", esm={"dsocr-workbench": "scripts"}):
    """A page image to zoom, turn and click in, and the shapes and tables on it to draw and change.

    `on_pick` gets a clicked point in pixels of the page, `on_select` the number of a clicked line while shapes are
    changed, and `on_edit` what is to be done with them.
    """

    def __init__(
        self,
        translate: Translate,
        on_pick: Callable[[float, float], None],
        on_select: Callable[[int], None],
        on_edit: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        super().__init__()
        ui.add_css(Path(__file__).with_name("page_view.css"))
        names = [name for name in catalogue() if name.startswith("view_")]
        labels: dict[str, Any] = {name.removeprefix("view_"): translate(name) for name in names}
        labels["kinds"] = {kind: translate(f"region_{kind}") for kind in _KINDS}
        self._props.update({"labels": labels, "kinds": _KINDS, "answered": 0})
        self._props.update({"page": {"number": 0, "width": 1, "height": 1}, "lines": [], "regions": []})
        self._props["tables"] = []

        def pick(event: events.GenericEventArguments) -> None:
            if "line" in event.args:
                on_select(int(event.args["line"]))
            else:
                on_pick(float(event.args["x"]), float(event.args["y"]))

        async def edit(event: events.GenericEventArguments) -> None:
            try:
                await on_edit(event.args)
            finally:
                self._props["answered"] += 1

        self.on("pick", pick)
        self.on("edit", edit)

    def show(
        self, page: StoredPage, lines: Sequence[StoredLine], regions: Sequence[StoredRegion], selected: int
    ) -> None:
        """Show a page; the browser brings the selected line into view when it becomes another."""
        self._props.update(
            {
                "page": {"number": page.number, "width": page.width, "height": page.height},
                "lines": [
                    {
                        "number": line.number,
                        "version": version_by_hand(line),
                        "state": line.state.value,
                        "polygon": line.outline.border,
                        "baseline": line.outline.baseline,
                        "region": line.region,
                    }
                    for line in lines
                ],
                "regions": [
                    {
                        "number": region.number,
                        "version": region.version,
                        "kind": region.kind,
                        "polygon": region.outline.border,
                    }
                    for region in regions
                    if region.cell is None
                ],
                "tables": [
                    {
                        "id": table.id,
                        "version": version_of(table.id, regions),
                        "nodes": nodes_of(table).round(1).tolist(),
                        "cells": [(int(cell.id), *astuple(cell.place)[:4]) for cell in table.cells],
                    }
                    for table in tables_of(regions)
                ],
                "selected": selected,
            }
        )


class PageOverview(ui.element, component="page_overview.js"):
    """Small images of all pages with their progress; `on_pick` gets the number of a clicked page.

    The browser loads the list, and the images that it shows, only while they are visible.
    """

    def __init__(self, translate: Translate, on_pick: Callable[[int], None]) -> None:
        super().__init__()
        self._props["labels"] = {"pages": translate("view_pages"), "of": translate("view_of")}
        self.on("pick", lambda event: on_pick(int(event.args["page"])))

    def show(self, page: int, stamp: int) -> None:
        """Mark a page; another `stamp` means that progress may have changed."""
        self._props.update({"page": page, "stamp": stamp})


def highlighted_html(
    text: str, characters: Sequence[float], unknown: Sequence[tuple[int, int]] = (), reason: str = ""
) -> str:
    """A text as HTML: doubtful characters with their probability, words at the places `unknown` with the `reason`."""
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
            background = f"color-mix(in srgb, var(--doubt) {strength}%, transparent)"
            style = f"background:{background};border-bottom:2px solid var(--doubt-line)"
            piece = f'<span style="{style}" title="{percentage(likely, 0)}">{piece}</span>'
        pieces.append(piece)
    if len(text) in ends:
        pieces.append("</span>")
    return "".join(pieces)


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
            self._mark = ui.label().classes("w-4 shrink-0 text-emerald-700 dark:text-emerald-400")
            self._text = ui.html(sanitize=False).classes("grow min-w-0 wrap-anywhere").props("dir=auto")

    def show(self, line: StoredLine, *, selected: bool) -> None:
        if line != self._line:
            self._line = line
            self._mark.set_text(_MARKS.get(line.state, "·"))
            self._text.set_content(highlighted_html(line.text, line.characters) or "&nbsp;")
        if selected != self._selected:
            self._selected = selected
            self._row.classes(add=_SELECTED if selected else _OTHERS, remove=_OTHERS if selected else _SELECTED)
            self._row.props(add='aria-current="true"' if selected else "", remove="" if selected else "aria-current")
