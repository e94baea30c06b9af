"""Tables of pages as rows of a register: CSV, Excel and Parquet, one row for each row of a table.

A row says its page, a link to the picture and its place there, its table and number, and how sure its texts are; then
the texts of its columns, by the names in the heading of the table, or of the last table with as many columns that had a
heading, since many books print it once. Lines in no table are rows with their text in the column `outside`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from dsocr.document import Line, Page, ProcessingStep, Table, bounds_of_boxes
from dsocr.errors import DataError, option
from dsocr.formats.documents import save_without_times
from dsocr.formats.format import Format
from dsocr.formats.tables import escape_formula, spreadsheet
from dsocr.formats.xml import replace_forbidden
from dsocr.io import arrow

OWN_COLUMNS = ("page", "link", "box", "table", "row", "confidence")
OUTSIDE = "outside"

_NUMERIC = 0.6
"""Least share of numbers among the cells of a column of numbers."""
_DITTO = frozenset({"", "-", "–", "—", '"', "„", "''", "//"})
_LONGEST_CELL = 32_767
"""Characters that a cell of Excel takes."""


@dataclass(frozen=True, slots=True)
class RegisterRow:
    """A row of a table, or a line outside tables: its values for `OWN_COLUMNS`, and its texts by column."""

    facts: Mapping[str, Any]
    cells: Mapping[str, str]


def mark_headings(table: Table, lines: Sequence[Line]) -> Table:
    """Return a table with its heading rows marked: those with letters and no digits above its columns of numbers.

    A title above them and a row with the numbers of the columns below them are headings, too. A table without a column
    of numbers stays as it is.
    """
    texts = {id_: _join(inside) for id_, inside in _lines_by_cell(table, lines).items()}
    numbers = _number_columns(table, texts)
    if not numbers:
        return table
    headings = reach = 0
    for row in range(table.size[0] - 1):
        cells = [cell for cell in table.cells if cell.place.row == row and texts[cell.id] not in _DITTO]
        is_title = len(cells) == 1 and cells[0].place.column_span > 2
        if not headings and (is_title or not cells):
            continue
        counted = [int(text) for cell in cells if (text := texts[cell.id].strip(" .")).isdecimal()]
        if (
            headings
            and len(counted) == len(cells) > 2
            and all(after == before + 1 for before, after in pairwise(counted))
        ):
            headings = row + 1
            break
        above = [texts[cell.id] for cell in cells if numbers.intersection(cell.place.columns)]
        has_letters = any(re.search(r"[^\W\d_]|№", text) for text in above)
        if any(re.search(r"\d", texts[cell.id]) for cell in cells) or not (has_letters or row < reach):
            break
        headings, reach = row + 1, max([reach, *(cell.place.rows.stop for cell in cells)])
    marked = (replace(cell, place=replace(cell.place, is_heading=cell.place.row < headings)) for cell in table.cells)
    return replace(table, cells=tuple(marked))


def _lines_by_cell(table: Table, lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the lines with a text in each cell, by its id."""
    by_cell: dict[str, list[Line]] = {cell.id: [] for cell in table.cells}
    for line in lines:
        if line.text and line.region and line.region.id in by_cell:
            by_cell[line.region.id].append(line)
    return by_cell


def _join(lines: Iterable[Line]) -> str:
    return " ".join(line.text for line in lines)


def _number_columns(table: Table, texts: Mapping[str, str]) -> set[int]:
    """Return the columns whose cells are numbers, as a rule."""
    filled, numbers = Counter[int](), Counter[int]()
    for cell in table.cells:
        if texts[cell.id] not in _DITTO and cell.place.column_span == 1 and cell.place.row:
            filled[cell.place.column] += 1
            digits = sum(map(str.isdigit, texts[cell.id]))
            numbers[cell.place.column] += 2 * digits >= len(texts[cell.id].replace(" ", ""))
    return {column for column, count in filled.items() if count >= 2 and numbers[column] >= _NUMERIC * count}


def register_rows(pages: Iterable[Page]) -> Iterator[RegisterRow]:
    """Yield the rows of all tables, and the lines outside them, page by page. Raises DataError if there is no table."""
    names: dict[int, list[str]] = {}
    for page in pages:
        tables = {cell.id: number for number, table in enumerate(page.tables) for cell in table.cells}
        done: set[int] = set()
        for line in page.transcribed_lines:
            number = tables.get(line.region.id if line.region else "")
            if number is None:
                yield _row(page, None, None, {OUTSIDE: [line]})
            elif number not in done:
                done.add(number)
                table = mark_headings(page.tables[number], page.lines)
                by_cell = _lines_by_cell(table, page.lines)
                width = table.size[1]
                default = names.get(width) or [f"column {place + 1}" for place in range(width)]
                names[width] = _column_names(table, by_cell) or default
                yield from _table_rows(page, table, number + 1, by_cell, names[width])
    if not names:
        hint = f"{option('format', 'page')} or text holds lines; a table has at least two columns side by side"
        raise DataError("no table is on these pages", code="no-tables", hint=hint)


def _row(page: Page, table: int | None, row: int | None, cells: Mapping[str, Sequence[Line]]) -> RegisterRow:
    """Return the row of a table's lines by column, with the mean of their confidences, long lines counting more."""
    lines = [line for inside in cells.values() for line in inside]
    link = page.image.resolve().as_uri() + (f"#page={page.number}" if page.number else "")
    box = None
    if boxes := [line.outline.box for line in lines if line.outline]:
        left, top, right, bottom = bounds_of_boxes(boxes)
        box = f"{left},{top} {right},{bottom}"
    known = [(line.confidence, len(line.text)) for line in lines if line.confidence is not None]
    letters = sum(length for _, length in known)
    confidence = round(sum(sure * length for sure, length in known) / letters, 4) if letters else None
    texts = {name: "\n".join(line.text for line in inside) for name, inside in cells.items()}
    facts = (page.name, link, box, table, row, confidence)
    return RegisterRow(dict(zip(OWN_COLUMNS, facts, strict=True)), texts)


def _column_names(table: Table, by_cell: Mapping[str, Sequence[Line]]) -> list[str]:
    """Return the name of each column by the heading's cells above it; empty without a heading."""
    parts: list[list[str]] = [[] for _ in range(table.size[1])]
    for cell in sorted(table.cells, key=lambda cell: cell.place.row):
        text = " ".join(_join(by_cell[cell.id]).split())
        if cell.place.is_heading and text and not text.isdecimal():
            for column in cell.place.columns:
                parts[column].append(text)
    if not any(parts):
        return []
    names: list[str] = []
    for place, part in enumerate(parts, start=1):
        name = " / ".join(part) or f"column {place}"
        taken = {*names, *OWN_COLUMNS, OUTSIDE}
        names.append(name if name not in taken else f"{name} ({place})")
    return names


def _table_rows(
    page: Page, table: Table, number: int, by_cell: Mapping[str, Sequence[Line]], names: Sequence[str]
) -> Iterator[RegisterRow]:
    """Yield the rows of the body that have a text; a cell over several rows or columns is in the first of them."""
    rows: dict[int, dict[str, Sequence[Line]]] = {}
    for cell in table.cells:
        if not cell.place.is_heading and by_cell[cell.id]:
            rows.setdefault(cell.place.row, {})[names[cell.place.column]] = by_cell[cell.id]
    first = max((cell.place.rows.stop for cell in table.cells if cell.place.is_heading), default=0)
    for row, cells in sorted(rows.items()):
        yield _row(page, number, row - first + 1, cells)


def _read_table(pages: Iterable[Page]) -> tuple[list[RegisterRow], list[str]]:
    """Return the rows of pages, and the names of their columns in their first order, `outside` last."""
    rows = list(register_rows(pages))
    names = dict.fromkeys(name for row in rows for name in row.cells)
    return rows, sorted(names, key=lambda name: name == OUTSIDE)


def write_csv(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write the rows as CSV in UTF-8 with a mark, which Excel wants."""
    rows, columns = _read_table(pages)
    cells = ([*row.facts.values(), *map(row.cells.get, columns)] for row in rows)
    path.write_text(spreadsheet([[*OWN_COLUMNS, *columns], *cells]), encoding="utf-8-sig", newline="")


def write_xlsx(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write the rows as an Excel workbook, with the pages as links; the same texts give the same bytes."""
    from openpyxl import Workbook
    from openpyxl.styles import Alignment, Font

    rows, columns = _read_table(pages)
    shown = [name for name in OWN_COLUMNS if name != "link"]
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    sheet = workbook.create_sheet("register")
    sheet.append([_cell_text(name) for name in (*shown, *columns)])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    for row in rows:
        shared = [_cell_text(value) if isinstance(value, str) else value for value in map(row.facts.get, shown)]
        sheet.append([*shared, *(_cell_text(row.cells.get(column, "")) for column in columns)])
        place = sheet.cell(sheet.max_row, 1)
        place.hyperlink, place.style = row.facts["link"], "Hyperlink"
        for cell in sheet[sheet.max_row][len(shown) :]:
            cell.alignment = Alignment(wrap_text=True, vertical="top")
    sheet.freeze_panes = "B2"
    workbook.properties.creator = f"{step.software} {step.version}"
    save_without_times(workbook.save, path, omit=rb"<dcterms:(created|modified).*?</dcterms:\1>")


def _cell_text(text: str) -> str:
    if len(text) > _LONGEST_CELL:
        raise DataError(
            "a cell is longer than Excel takes", code="cell-too-long", hint=f"give {option('format', 'csv')}"
        )
    return escape_formula(replace_forbidden(text))


def write_parquet(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write the rows as Parquet, texts as they are."""
    rows, columns = _read_table(pages)
    kinds = (arrow.string(), arrow.string(), arrow.string(), arrow.int32(), arrow.int32(), arrow.float64())
    values = list(zip(*(row.facts.values() for row in rows), strict=True))
    arrays = {name: arrow.array(of, kind) for name, of, kind in zip(OWN_COLUMNS, values, kinds, strict=True)}
    arrays |= {name: arrow.array([row.cells.get(name) for row in rows], arrow.string()) for name in columns}
    arrow.parquet.write_table(arrow.table(arrays), path)


TARGETS = ("csv", "xlsx")
"""Formats of registers that PAGE files with tables can be converted to; Parquet is one of datasets."""
REGISTERS = ("csv", "xlsx", "parquet")
"""Formats of rows of registers, which a transcription finds tables for."""

FORMATS = (
    Format(name="csv", title="rows of registers as CSV", write_pages=write_csv, suffix=".csv", is_one_file=True),
    Format(
        name="xlsx",
        title="rows of registers as an Excel workbook",
        write_pages=write_xlsx,
        suffix=".xlsx",
        packages=("openpyxl",),
        is_one_file=True,
    ),
)
