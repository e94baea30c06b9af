"""The sheets of Excel workbooks as tables of what their cells show.

Excel stores a number and a number format: 0001 is 1, and a date is a number of days. Formats that depend on the
computer's settings, or are not known here, make a cell that cannot be read. A merged cell holds for all its rows.
"""

import io
import re
import warnings
import zipfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

from dsocr.errors import DataError, first_few
from dsocr.formats.delimited import is_image
from dsocr.formats.format import require_packages
from dsocr.io.budget import MB, Budget
from dsocr.io.encodings import MAX_TEXT_BYTES

SHEET_SUFFIXES = frozenset({".xlsx", ".xlsm"})

FindRoles = Callable[[list[str]], Mapping[str, str]]
"""Returns role -> column for the cells of a row that may be the headings."""

_MAX_ROWS = 1_048_576
"""Rows of a sheet, as in Excel."""
_MAX_SIGNS = 20_000_000
"""Signs `<` in all parts; a cell has four, and the text of a cell too."""
_MAX_INTRODUCTION = 1000
"""Rows in which the headings of a sheet are looked for."""
_MOST_DIGITS = 11
"""Characters of a number without a format; longer ones are rounded to the width of the column."""
_LARGEST = 1e15
"""Larger numbers lose digits."""

_SAME_EVERYWHERE = frozenset({0, 1, 2, 9, 10, 20, 21, 49})
"""Built-in number formats that do not depend on the computer's settings, apart from the decimal sign."""
_CUSTOM = 164
"""The first number format that is not built in."""
_LITERAL = r'(?:"[^"]*"|\\.|[ +()-]|[^\x00-\x7f])'
_NUMBER = re.compile(
    rf"(?P<before>{_LITERAL}*)(?P<digits>General|@|0+(?:\.(?P<decimals>0+))?)(?P<after>%?{_LITERAL}*)", re.IGNORECASE
)
_DATE_PART = r"(?:yyyy|yy)(?!y)|mm?(?!m)|dd?(?!d)|hh?:mm(?::ss)?(?![ms])"
_DATE = re.compile(rf"(?:\[\$-\d[\da-f]{{2,3}}\])?(?:{_DATE_PART}|[.,]|{_LITERAL})+", re.IGNORECASE)
_DATE_TOKEN = re.compile(rf"\[[^]]*\]|{_LITERAL}|{_DATE_PART}|.", re.IGNORECASE)
_FIRST_DAY, _LAST_DAY = 61, 2_958_466
"""The first of March 1900 and the end of the year 9999, in days."""
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
"""How Excel writes characters that XML cannot contain."""

_WORDS = ({False: "FALSE", True: "TRUE"}, {False: "ЛОЖЬ", True: "ИСТИНА"})
_RUSSIAN = re.compile("[а-яё]", re.IGNORECASE)
_REMEDY = "save the sheet as CSV UTF-8 in Excel, which keeps what it shows"
_POINT = "numbers with a decimal point, which some languages of Excel show as a comma"
_LOGICAL = "logical values, which each language of Excel shows in its own words"


class SheetCell(str):
    """What a cell shows.

    `struck` are its struck-out spans, `problem` says why the cell cannot be read, and `doubt` what Excel shows in
    another way in another language. `merged` is the range of a merged cell over several rows with cells of their own;
    a cell `is_filled` below the first of them.
    """

    place = problem = doubt = merged = ""
    struck: tuple[tuple[int, int], ...] = ()
    is_filled = False


def mark_struck(cell: str) -> str:
    """Return the text of a cell with `~~` around what is struck through."""
    struck = cell.struck if isinstance(cell, SheetCell) else ()
    for start, end in reversed(struck):
        cell = f"{cell[:start]}~~{cell[start:end]}~~{cell[end:]}"
    return cell.replace("~~~~", "") if struck else cell


@dataclass(slots=True)
class SheetTable:
    """A table, or those of a workbook as one: each row by its number, or `sheet!number`, with its cells by column.

    `skipped` are the rows that cannot be read with the reasons, `notes` say what else was not read.
    """

    header: list[str] = field(default_factory=list)
    rows: list[tuple[int | str, dict[str, str]]] = field(default_factory=list)
    skipped: list[tuple[int | str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def require_whole(self, path: Path) -> None:
        """Raise DataError for the first row that cannot be read."""
        for number, reason in self.skipped:
            raise DataError(f"the row cannot be read: {reason}", code="row-refused", where=f"{path}:{number}")


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A sheet with any cell that is not blank: these cells by row and column, both counted from 1."""

    title: str
    is_hidden: bool
    rows: dict[int, dict[int, SheetCell]]


def read_workbook(path: Path, find_roles: FindRoles, needed: tuple[str, str]) -> SheetTable:
    """Read all sheets that have columns for the roles of the image and the text, which are `needed`.

    Without any such sheet, the longest row of the first one is its header. Raises DataError for a file that is locked,
    damaged or too large.
    """
    sheets = _read_sheets(path)
    headings = {sheet.title: None if sheet.is_hidden else _find_heading(sheet, find_roles, needed) for sheet in sheets}
    places = {place for place in headings.values() if place is not None}
    if not places:
        for sheet in [sheet for sheet in sheets if not sheet.is_hidden][:1]:
            headings[sheet.title] = max(
                list(sheet.rows)[:_MAX_INTRODUCTION], key=lambda number: len(sheet.rows[number])
            )
    elif any(places):  # an image in the first row makes no table beside a table with headings
        headings = {title: place or None for title, place in headings.items()}
    several = sum(place is not None for place in headings.values()) > 1
    table = SheetTable()
    for sheet in sheets:
        place = headings[sheet.title]
        problem = "it is hidden" if sheet.is_hidden else f"it has no headings for the {needed[0]} and the {needed[1]}"
        if place is not None:
            problem = _add_sheet(table, sheet, place, find_roles, needed[1], is_named=several)
        if problem:
            table.notes.append(f"the sheet {sheet.title!r} is not read: {problem}")
    return table


def _find_heading(sheet: _Sheet, find_roles: FindRoles, needed: tuple[str, str]) -> int | None:
    """Return the number of the row of headings; 0 if the first row names an image instead, None for neither.

    Of headings in neighbouring rows the last count: those above put columns into groups.
    """
    heading = None
    for number, cells in list(sheet.rows.items())[:_MAX_INTRODUCTION]:
        if find_roles(["" if cell.strip().isdecimal() else cell for cell in cells.values()]).keys() >= {*needed}:
            heading = number
        elif heading:
            break
    return 0 if heading is None and any(map(is_image, next(iter(sheet.rows.values())).values())) else heading


def _add_sheet(
    table: SheetTable, sheet: _Sheet, heading: int, find_roles: FindRoles, text_role: str, *, is_named: bool
) -> str:
    """Add the rows below the headings, under the table's names of their columns; return why that is impossible."""
    names = {place: cell.strip() for place, cell in sheet.rows.get(heading, {}).items()}
    if not heading:
        names = {place: str(place) for place in range(1, max(map(max, sheet.rows.values())) + 1)}
    roles, known = find_roles(list(names.values())), find_roles(table.header)
    renamed = {column: known.get(role, column) for role, column in roles.items()}
    names = {place: renamed.get(name, name) for place, name in names.items()}
    counts = Counter(name.lower() for name in names.values())
    if twice := [name for name in renamed.values() if counts[name.lower()] > 1]:
        return f"it has more than one column {twice[0]!r}"
    names = {
        place: name if counts[name.lower()] == 1 else f"{name} ({_letters(place)})" for place, name in names.items()
    }
    table.header += [name for name in names.values() if name not in table.header]
    below = {number: cells for number, cells in sheet.rows.items() if number > heading}
    where = f"of the sheet {sheet.title!r}"
    if heading > min(sheet.rows):
        table.notes.append(f"what is above the headings, row {heading} {where}, is not read")
    if unnamed := sorted({place for cells in below.values() for place in cells} - names.keys()):
        table.notes.append(f"the columns {', '.join(map(_letters, unnamed))} {where} have no heading and are not read")
    text_column, doubts = renamed.get(roles.get(text_role, "")), dict[str, list[str]]()
    for number, cells in below.items():
        label = f"{sheet.title}!{number}" if is_named else number
        row = {name: cells.get(place, SheetCell()) for place, name in names.items()}
        used = [row[column] for column in renamed.values()]
        text = row[text_column] if text_column else SheetCell()
        problem = next((cell.problem for cell in used if cell.problem), "")
        if text.is_filled and all(cell.is_filled for cell in cells.values()):
            continue  # of a row that is several rows high
        if text.merged:
            problem = f"{text.merged} is one cell for several rows: write the text of each row into a cell of its own"
        if problem:
            table.skipped.append((label, problem))
            continue
        for cell in used:
            if cell.doubt:
                doubts.setdefault(cell.doubt, []).append(cell.place)
        table.rows.append((label, {**row}))
    for doubt, places in doubts.items():
        table.notes.append(f"cells {where} hold {doubt}: {first_few(places, 3)}")
    return ""


def _letters(column: int) -> str:
    from openpyxl.utils import get_column_letter

    return get_column_letter(column)


def _read_sheets(path: Path) -> list[_Sheet]:
    """Return the sheets that have any cell."""
    require_packages("an Excel workbook", ["openpyxl"])
    from openpyxl import load_workbook

    content = Budget(size=MAX_TEXT_BYTES).read(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            budget = Budget(size=4 * MAX_TEXT_BYTES, elements=_MAX_SIGNS)
            unpacked = sum(part.file_size for part in archive.infolist())
            budget.unpack(path, packed=len(content), unpacked=unpacked)
            for part in archive.infolist():
                with archive.open(part) as file:
                    for chunk in iter(partial(file.read, MB), b""):
                        budget.take(path, elements=chunk.count(b"<"))
        budget = Budget()
        with warnings.catch_warnings():  # about styles and validations that it does not know
            warnings.simplefilter("ignore")
            workbook = load_workbook(
                io.BytesIO(content), read_only=True, data_only=True, keep_links=False, rich_text=True
            )
            if not workbook.worksheets:
                raise ValueError("it has no sheet, or is a Strict Open XML workbook")
            sheets = [_read_sheet(sheet, path, budget) for sheet in workbook.worksheets]
    except DataError:
        raise
    except Exception as error:  # openpyxl raises whatever the XML library and its own types raise
        message = f"the workbook cannot be read: {type(error).__name__}: {str(error)[:200]}"
        if content.startswith(b"\xd0\xcf\x11\xe0"):
            message = "the workbook is locked with a password, or an .xls file under another name"
        raise DataError(message, code="table-unreadable", where=path, hint="save it again as .xlsx or CSV") from error
    return [sheet for sheet in sheets if sheet.rows]


def _read_sheet(sheet: Any, path: Path, budget: Budget) -> _Sheet:
    """Read a sheet of openpyxl with its parser, since its own rows do not say which cells are merged."""
    from openpyxl.cell.read_only import ReadOnlyCell
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    class Parser(WorkSheetParser):
        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell = super().parse_cell(element)
            has_result = cell["value"] is not None or element.get("t") == "str"  # which may be empty
            if element.find(FORMULA_TAG) is not None and not has_result:
                cell |= {"data_type": "f", "value": "="}
            return cell

    @cache
    def find_style(style: int) -> tuple[str, bool]:
        cell = ReadOnlyCell(sheet, 1, 1, None, style_id=style)
        number = cell.style_array.numFmtId
        is_known = number >= _CUSTOM or number in _SAME_EVERYWHERE
        return cell.number_format if is_known else f"built-in {number}", bool(cell.font.strike)

    rows: dict[int, dict[int, SheetCell]] = {}
    with sheet._get_source() as source:
        parser = Parser(source, sheet._shared_strings, data_only=True, rich_text=True)
        for number, parsed in parser.parse():
            if number > _MAX_ROWS:
                raise ValueError(f"it has more than {_MAX_ROWS} rows")
            budget.take(path, elements=len(parsed) + 1)
            cells = {
                cell["column"]: _read_cell(cell, *find_style(cell["style_id"]), sheet.parent.epoch)
                for cell in parsed
                if cell["value"] is not None
            }
            if filled := {place: cell for place, cell in cells.items() if cell.strip()}:
                rows[number] = filled
    is_russian = any(_RUSSIAN.search(cell) for cells in rows.values() for cell in cells.values())
    for cells in rows.values():
        for place, cell in cells.items():
            if cell.doubt == _LOGICAL:
                word = SheetCell(_WORDS[is_russian][cell == "TRUE"])
                word.__dict__ |= cell.__dict__ | {"struck": cell.struck and ((0, len(word)),)}
                cells[place] = word
    merged = parser.merged_cells.mergeCell if parser.merged_cells else []
    _fill_merged([cell.ref for cell in merged], rows, path, budget)
    return _Sheet(sheet.title, sheet.sheet_state != "visible", dict(sorted(rows.items())))


def _fill_merged(ranges: list[str], rows: dict[int, dict[int, SheetCell]], path: Path, budget: Budget) -> None:
    """Repeat cells that are merged with those below them."""
    from openpyxl.utils import range_boundaries

    numbers = sorted(rows)
    for range_ in ranges:
        column, first, _, last = (bound or 0 for bound in range_boundaries(range_))
        top = rows.get(first, {}).get(column)
        if top is None:
            continue
        budget.take(path, elements=last - first)
        if bisect_left(numbers, first + 1) < bisect_left(numbers, last + 1):
            top.merged = range_
        cell = SheetCell(top)
        cell.__dict__ |= top.__dict__ | {"is_filled": True}
        for number in range(first + 1, last + 1):
            rows.setdefault(number, {})[column] = cell


def _read_cell(cell: Mapping[str, Any], code: str, is_struck: bool, epoch: datetime) -> SheetCell:
    value, problem, doubt = cell["value"], "", ""
    parts = [(str(value), is_struck)]
    if cell["data_type"] == "f":
        problem = "a formula without a result: open the workbook in Excel and save it"
    elif cell["data_type"] == "e":
        problem = f"the error {value}"
    elif isinstance(value, bool):
        parts, doubt = [(str(value).upper(), is_struck)], _LOGICAL
    elif isinstance(value, str | list):
        pieces = [value] if isinstance(value, str) else value
        parts = [(p, is_struck) if isinstance(p, str) else (p.text, bool(p.font.strike)) for p in pieces]
        if code != "@" and re.search("[@;]", code.removesuffix(";@")):
            problem = f"a text in the number format {code!r}: {_REMEDY}"
    else:
        try:
            shown, doubt = _show(value, code, epoch)
            parts = [(shown, is_struck)]
        except ValueError:
            problem = f"a number, which its format {code!r} may show in several ways: {_REMEDY}"
    text, struck = "", list[tuple[int, int]]()
    for part, is_struck in parts:
        part = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), part)
        struck += [(len(text), len(text) + len(part))] if is_struck and part.strip() else []
        text += part
    read = SheetCell(text)
    if struck:
        read.struck = tuple(struck)
    if doubt or problem:
        read.place = f"{_letters(cell['column'])}{cell['row']}"
        read.doubt, read.problem = doubt, problem and f"{read.place} is {problem}"
    return read


def _show(value: Any, code: str, epoch: datetime) -> tuple[str, str]:
    """Return what a number format makes of a number, and the doubt. Raises ValueError where that is not certain."""
    from openpyxl.utils.datetime import to_excel

    number = Decimal(repr(value if isinstance(value, int | float) else to_excel(value, epoch)))  # type: ignore[no-untyped-call]
    code = code.removesuffix(";@")
    match = _NUMBER.fullmatch(code)
    if not match and _DATE.fullmatch(code):
        return _show_date(number, _DATE_TOKEN.findall(code), epoch), ""
    if not match or not abs(number) < _LARGEST:
        raise ValueError(code)
    if match["after"].startswith("%"):
        number *= 100
    digits = f"{abs(number):f}".removesuffix(".0")
    if match["digits"].startswith("0"):
        digits = f"{abs(number).quantize(Decimal(1).scaleb(-len(match['decimals'] or '')), ROUND_HALF_UP):f}"
        digits = digits.zfill(len(match["digits"]))
    elif len(digits) > _MOST_DIGITS:
        raise ValueError(code)
    sign = "-" if number < 0 and digits.strip("0.") else ""
    return sign + _unquote(match["before"]) + digits + _unquote(match["after"]), _POINT if "." in digits else ""


def _show_date(number: Decimal, tokens: list[str], epoch: datetime) -> str:
    """Return a date that is a number of days. In 1900 Excel has a day too many, and no dates before."""
    is_time = not any(token[0] in "ymdYMD" for token in tokens)
    if not _FIRST_DAY <= number < _LAST_DAY and not (0 <= number < 1 and is_time):
        raise ValueError(number)
    moment = epoch + timedelta(milliseconds=round(number * 86_400_000))
    shown = ""
    for token in tokens:
        name = token[0].lower()
        if name in "ymd":
            values = {"y": moment.year % 10 ** len(token), "m": moment.month, "d": moment.day}
            shown += str(values[name]).zfill(len(token))
        elif name == "h":
            if moment.microsecond and token.lower().endswith("ss"):
                raise ValueError(number)
            parts = [str(moment.hour).zfill(token.index(":")), f"{moment.minute:02}", f"{moment.second:02}"]
            shown += ":".join(parts[: token.count(":") + 1])
        elif name != "[":
            shown += _unquote(token)
    return shown


def _unquote(literals: str) -> str:
    return re.sub(r'"([^"]*)"|\\(.)', r"\1\2", literals)
