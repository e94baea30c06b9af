"""The rows of a CSV or TSV file, whoever wrote it: a library, a spreadsheet, or a person who quotes nothing.

All rows decide on the delimiter and on quotes, since a single one can be read in several ways: `a.png,"Yes, sir"`.
Quotes are those of a writer if nearly all rows are what a writer with quotes makes; otherwise they are part of the
texts, and the last column takes every delimiter that is left. A row that is whole in neither way is refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from dsocr.errors import DataError, option
from dsocr.images import IMAGE_SUFFIXES

DELIMITERS = ",;\t|"

FindPlaces = Callable[[list[str]], tuple[int, int] | None]
"""Returns the places of the image and the text in a first row, -1 for none; None for neither header nor names."""

_NAMED_DELIMITER = re.compile(r"sep=(?P<delimiter>[,;\t|])\r?\n", re.IGNORECASE)
"""The first line of some tables for spreadsheets."""
_LONGEST_ROW = 200_000
"""Characters of a row with line breaks; more are a quote that is never closed."""
_MAJORITY = 20
"""Rows that need their quotes for each row that no writer with quotes made, above which the file has quotes."""
_MIN_RULE = 10
"""Rows that show a rule for quotes that no cell needs."""

_SURPLUS = "it has {found} cells, and the table has {columns} columns: quote cells that contain the delimiter"
_BROKEN = "its text seems to have a line break here, without quotes: write it as one line, or quote it"
_UNCLEAR = "its quotes may enclose a cell or belong to the text, since other rows have quotes in their texts"
_HEADLESS = "its delimiters may be part of the texts"


@dataclass(frozen=True, slots=True)
class TextRow:
    """The number of the line that a row begins in, and its cells, or the reason why it is refused."""

    number: int
    cells: list[str]
    problem: str = ""


@dataclass(slots=True)
class _Record:
    """Lines of a file that are a row with quotes: its cells, which of them are quoted, and whether one needs it.

    A line that no writer with quotes made is a record without cells.
    """

    number: int
    lines: list[str]
    cells: list[str] | None
    quoted: list[bool] = field(default_factory=list)
    needs: bool = False


def split_rows(path: Path, text: str, find_places: FindPlaces, delimiters: str = DELIMITERS) -> list[TextRow]:
    """Divide a table into rows, the header among them, each with as many cells as there are columns or refused.

    Raises DataError for a table without a header with ambiguous columns.
    """
    first = 1
    if named := _NAMED_DELIMITER.match(text):
        delimiters, text, first = named["delimiter"], text[named.end() :], 2
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    if not filled:
        return []

    def fit(delimiter: str) -> tuple[bool, int, int]:
        rows = [line.removesuffix("\r").split(delimiter) for line in filled]
        sizes = Counter(map(len, rows))
        images = sum(len(row) > 1 and any(map(is_image, row)) for row in rows)
        is_known = min(find_places(rows[0]) or (-1,)) >= 0
        return is_known, images, max((count for size, count in sizes.items() if size > 1), default=0)

    delimiter = max(delimiters, key=fit)
    records = list(_records(lines, first, delimiter))
    header = records[0].cells or records[0].lines[0].split(delimiter)
    places, sizes = find_places(header), Counter(len(record.cells) for record in records if record.cells)
    if places is not None:
        width = len(header)
    elif delimiter == "\t":
        width = max(sorted(size for size in sizes if size > 1), key=sizes.__getitem__, default=2)
    else:
        width = min((size for size in sizes if size > 1), default=2)
    image, place = places or (0, 1)
    for record in records:
        if record.cells and len(record.cells) > width:
            record.cells = None
    needing = sum(record.needs and record.cells is not None for record in records)
    odd = sum(record.cells is None for record in records)
    if needing > odd * _MAJORITY or (not odd and not needing and _is_rule(records)):
        rows = [_quoted_row(record, delimiter, width) for record in records]
    elif places is None and width > 2 and (delimiter != "\t" or len(sizes) > 1):
        message = f"the table has no header and up to {max(sizes)} cells in a row: {_HEADLESS}"
        raise DataError(
            message,
            code="table-headless",
            where=path,
            hint=f"add one, or give {option('columns', {'image': '1', 'text': '2'})}",
        )
    else:
        rows = _plain_rows(records, delimiter, width, image, place, has_header=places is not None)
    short = [[""] * (width - len(row.cells)) for row in rows]
    return [
        row if row.problem else replace(row, cells=row.cells + cells) for row, cells in zip(rows, short, strict=True)
    ]


def _records(lines: Sequence[str], first: int, delimiter: str) -> Iterator[_Record]:
    value = rf'(?:"[^"]*(?:""[^"]*)*"|[^"{re.escape(delimiter)}\r\n]*)'
    row = re.compile(rf"{value}(?:{re.escape(delimiter)}{value})*(?=\r?\n|\r?\Z)")
    cell = re.compile(rf"(?:\A|{re.escape(delimiter)})({value})")
    text, place, number = "\n".join(lines), 0, 0
    while number < len(lines):
        line, end = lines[number].removesuffix("\r"), number + 1
        record = _Record(first + number, [line], None if '"' in line else line.split(delimiter))
        match = row.match(text, place, place + _LONGEST_ROW) if '"' in line else None
        taken = match[0].split("\n") if match else []
        # A row never takes up the next: whatever encloses the name of another image is no cell.
        if match and not any(is_image(other.split(delimiter)[0]) for other in taken[1:]):
            end = number + len(taken)
            written = cell.findall(match[0])
            quoted = [part.startswith('"') for part in written]
            cells = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in written]
            special = re.compile(rf'[{re.escape(delimiter)}"\n\r]')
            needs = all(quoted) or any(
                bool(special.search(read)) for read, has_quotes in zip(cells, quoted, strict=True) if has_quotes
            )
            record = _Record(first + number, taken, cells, quoted, needs)
        if line.strip():
            yield record
        place += sum(len(used) + 1 for used in lines[number:end])
        number = end


def _is_rule(records: Sequence[_Record]) -> bool:
    """Return whether a rule explains all quotes: around each cell with a delimiter, or around all of a column."""
    quoted = [record.quoted for record in records if any(record.quoted)]
    if len(quoted) < _MIN_RULE:
        return False
    columns = {place for marks in quoted for place, mark in enumerate(marks) if mark}
    rules = [True, True]
    for record in records[1:]:
        cells = record.cells or []
        for place, (cell, mark) in enumerate(zip(cells, record.quoted or [False] * len(cells), strict=True)):
            rules[0] &= mark == any(sign in cell for sign in DELIMITERS)
            rules[1] &= mark or not cell or place not in columns
    return any(rules)


def _quoted_row(record: _Record, delimiter: str, width: int) -> TextRow:
    if record.cells is not None:
        return TextRow(record.number, record.cells)
    cells = record.lines[0].split(delimiter)
    if len(cells) > width:
        return TextRow(record.number, [], _SURPLUS.format(found=len(cells), columns=width))
    if len(record.lines) > 1 or any(cell.startswith('"') for cell in cells):
        return TextRow(record.number, [], _UNCLEAR)
    return TextRow(record.number, cells)


def _plain_rows(
    records: Sequence[_Record], delimiter: str, width: int, image: int, text: int, *, has_header: bool
) -> list[TextRow]:
    """Return each line as a row whose quotes are part of the text."""
    most = width - 1 if text == width - 1 else -1
    lines = [
        (number, line.split(delimiter, most), record.needs and record.cells is not None)
        for record in records
        for number, line in enumerate((raw.removesuffix("\r") for raw in record.lines), start=record.number)
        if line.strip()
    ]
    have_images = image >= 0 and any(len(cells) > image and is_image(cells[image]) for _, cells, _ in lines)
    rows: list[TextRow] = []
    for number, cells, is_unclear in lines:
        problem = _UNCLEAR if is_unclear else ""
        if len(rows) > has_header and (len(cells) <= text or (have_images and not is_image(cells[image]))):
            problem = _BROKEN
            if not rows[-1].problem:
                rows[-1] = TextRow(rows[-1].number, [], _BROKEN)
        elif len(cells) > width:
            problem = _SURPLUS.format(found=len(cells), columns=width)
        rows.append(TextRow(number, [] if problem else cells, problem))
    return rows


def is_image(cell: str) -> bool:
    """Return whether a cell ends as the name of an image does."""
    return PurePosixPath(cell.strip().strip('"')).suffix.lower() in IMAGE_SUFFIXES
