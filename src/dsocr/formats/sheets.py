"""Rows of .xlsx workbooks, and what to do with files of other office programs, which hold no table of lines.

A workbook is a zip archive of XML; its stated unpacked size is checked before openpyxl opens it.
"""

import io
import warnings
import zipfile
from datetime import date, datetime, time
from functools import partial
from pathlib import Path

from dsocr.errors import DataError
from dsocr.io.budget import MB, Budget
from dsocr.io.encodings import MAX_TEXT_BYTES

SHEET_SUFFIXES = frozenset({".xlsx", ".xlsm"})
OLDER_SHEETS = frozenset({".xls", ".ods", ".numbers"})
WRITTEN_TEXTS = frozenset({".docx", ".doc", ".odt", ".rtf"})

_MAX_ROWS = 1_048_576
"""Rows of a sheet, as in Excel."""
_MAX_SIGNS = 20_000_000
"""Signs `<` in all parts; a cell has four, and the text of a cell too."""

_ALIGN = "`dsocr align SCANS TEXT.docx -o data/mine` finds the line of each text; or write a table, .xlsx or .csv"
UNREAD_HINTS = {
    **dict.fromkeys(OLDER_SHEETS, "save it as .xlsx, or as CSV in UTF-8"),
    **dict.fromkeys(WRITTEN_TEXTS, f"save it as .docx: {_ALIGN}"),
    ".docx": _ALIGN,
    **dict.fromkeys((".djvu", ".djv"), "save it as PDF or TIFF, for example with `ddjvu -format=tiff`"),
    ".hocr": "export ALTO or PAGE from the program that wrote it",
    **dict.fromkeys((".lnk", ".url", ".webloc"), "it is a shortcut: name its target"),
}
"""By suffix, what to do with files that are not read, of office programs and others."""


def require_readable_kind(path: Path) -> None:
    """Raise DataError, with what to do, for a file of a kind that is not read."""
    if hint := UNREAD_HINTS.get(path.suffix.lower()):
        message = f"{path.suffix.lower()[1:].upper()} files are not read"
        raise DataError(message, code="file-kind-unread", where=path, hint=hint)


def read_sheet(path: Path) -> list[tuple[int, list[str]]]:
    """Return the number and the cells of each row that is not blank, of the first sheet with any.

    Raises DataError for a file that is locked, damaged or too large.
    """
    from openpyxl import load_workbook

    content = Budget(size=MAX_TEXT_BYTES).read(path, "table")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            budget = Budget(size=4 * MAX_TEXT_BYTES, elements=_MAX_SIGNS)
            unpacked = sum(part.file_size for part in archive.infolist())
            budget.unpack("table", path, packed=len(content), unpacked=unpacked)
            for part in archive.infolist():
                with archive.open(part) as file:
                    for chunk in iter(partial(file.read, MB), b""):
                        budget.take("table", path, elements=chunk.count(b"<"))
        budget = Budget()
        with warnings.catch_warnings():  # about styles and validations that it does not know
            warnings.simplefilter("ignore")
            workbook = load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
            for sheet in workbook.worksheets:
                rows = []
                for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
                    if number > _MAX_ROWS:
                        raise ValueError(f"it has more than {_MAX_ROWS} rows")
                    if not values:
                        continue
                    budget.take("table", path, elements=len(values) + 1)
                    cells = list(map(_cell_text, values))
                    if any(cell.strip() for cell in cells):
                        rows.append((number, cells))
                if rows:
                    return _without_empty_end(rows)
    except DataError:
        raise
    except Exception as error:  # openpyxl raises whatever the XML library and its own types raise
        message = f"the workbook cannot be read: {type(error).__name__}: {str(error)[:200]}"
        if content.startswith(b"\xd0\xcf\x11\xe0"):
            message = "the workbook is locked with a password, or an .xls file under another name"
        raise DataError(message, code="table-unreadable", where=path, hint="save it again as .xlsx or CSV") from error
    return []


def _cell_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return value.isoformat() if isinstance(value, date | time) else "" if value is None else str(value)


def _without_empty_end(rows: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Drop empty columns at the end; formats reach beyond typed cells."""
    width = max(place for _, cells in rows for place, cell in enumerate(cells, start=1) if cell.strip())
    return [(number, cells[:width]) for number, cells in rows]
