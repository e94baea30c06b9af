"""Tables that name an image and its text in each row: TSV, CSV, JSON and XLSX, with or without a header.

Column names are guessed from the usual ones and can be given; `delimited` divides CSV and TSV into rows. Without a
header columns are called 1, 2, 3, ...
Several rows with outlines on one image are the lines of that page.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dsocr.document import Item, Line, Note, Outline, Page, Point, Skipped, SkipReason, bounds, format_points
from dsocr.errors import DataError, option
from dsocr.formats.boxes import BOX_HINT, MEANINGS, SIDES, Notation, Shape, decide_notation, parse_shape
from dsocr.formats.delimited import DELIMITERS, is_image, split_rows
from dsocr.formats.format import (
    IMAGES,
    SURROGATES,
    Columns,
    Format,
    SourceFile,
    WritePage,
    Written,
    copy_page_image,
    read_files,
)
from dsocr.formats.lists import is_list, is_page, json_rows, page_lines
from dsocr.formats.messages import is_messages
from dsocr.formats.sheets import SHEET_SUFFIXES, SheetCell, SheetTable, read_workbook
from dsocr.io.archives import ARCHIVE_SUFFIXES
from dsocr.io.budget import Budget
from dsocr.io.encodings import read_text
from dsocr.io.files import list_files, parse_split, relative, split_of_folder

_ALIGN = "`dsocr align SCANS TEXT.docx -o data/mine` finds the line of each text; or write a table, .xlsx or .csv"
UNREAD_HINTS = {
    **dict.fromkeys((".xls", ".xlsb", ".ods", ".numbers"), "save it as .xlsx, or as CSV in UTF-8"),
    **dict.fromkeys((".doc", ".odt", ".rtf"), f"save it as .docx: {_ALIGN}"),
    ".docx": _ALIGN,
    **dict.fromkeys((".djvu", ".djv"), "save it as PDF or TIFF, for example with `ddjvu -format=tiff`"),
    ".hocr": "export ALTO or PAGE from the program that wrote it",
    **dict.fromkeys((".lnk", ".url", ".webloc"), "it is a shortcut: name its target"),
}
"""Suffix -> remedy for files that are not read, of office programs and others."""

OUTLINE_ROLES = ("bbox", "polygon", "baseline")

_RUSSIAN_NAMES = {
    "image": ("имя файла", "файл", "изображение", "скан"),
    "text": ("текст", "расшифровка", "транскрипция"),
    "page": ("страница", "лист"),
}
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "image": ("file_name", "image", "im", "image_path", "path", "img", "file", "filename"),
    "text": ("text", "transcription", "label", "ground_truth", "gt", "sentence"),
    "writer": ("writer", "writer_id", "author", "hand", "scribe"),
    "page": ("page", "page_id", "page_image", "source_img", "source_image"),
    "document": ("document", "document_id", "doc"),
    "split": ("split", "stage", "subset", "set"),
    "bbox": ("bbox", "bbox_xyxy", "bbox_xywh", "bounding_box", "box", "coords", "coordinates", "рамка", "координаты"),
    "polygon": ("polygon", "points", "segmentation", "outline"),
    "baseline": ("baseline",),
}
USUAL_NAMES |= {role: USUAL_NAMES[role] + names for role, names in _RUSSIAN_NAMES.items()}
"""Role -> usual column names, the most usual first."""

_COLUMNS_WITHOUT_HEADER = 2
"""Columns whose order is their meaning."""
_CORRECTION_NAMES = {"id": ("id", "source"), "text": ("correction", "wrong", "text")}
"""The same for the sheets of a workbook with corrections or judgements."""

COLUMNS_HINT = f"say which is which, e.g. {option('columns', {'image': 'scan', 'text': 'words'})}"

_TSV_COLUMNS = ("image", "text", "writer", "page", "document", "split", "bbox", "polygon", "baseline")
_FORMULA = re.compile(r"'*[=+\-@\t\r].", re.DOTALL)
"""How a cell begins that spreadsheets take for a formula, and one that would be mistaken for its escaped form."""

Row = tuple[int | str, dict[str, str]]
"""Line number in the file, or place in a workbook, and cells by column."""


def escape_formula(text: str) -> str:
    """Put an apostrophe before a cell that a spreadsheet would take for a formula; a lone dash is none."""
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_formula(cell: str) -> str:
    """Undo `escape_formula`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def find_tables(source: Path, columns: Columns) -> list[Path]:
    """List the table files with known columns, and unreadable ones, so that they are reported."""
    return [path for path in _table_files(source) if _is_understood(path, columns) is not False]


def has_tables(source: Path, columns: Columns) -> bool:
    """Return whether a table file can be read and has known columns."""
    return any(_is_understood(path, columns) for path in _table_files(source))


def read_tables(source: Path, columns: Columns) -> Iterator[Item]:
    """Read the rows of all tables of a folder, or of one table file, each an image with its text."""
    files = find_tables(source, columns)
    others = [path for path in _table_files(source) if path not in files]
    if not files:  # the error about the first one says why
        for path in others[:1]:
            open_table(path, columns)
    notes = (Note(f"{relative(path, source)} is not read: it has no columns for image and text") for path in others)
    pages = {path.parent for path in files if path.name.lower() == "label.txt"}
    crops = [path for path in files if path.parent in pages and path.name.lower().startswith("rec_gt")]
    message = "Label.txt beside it has these lines on their pages"
    skipped = (Skipped(SkipReason.OTHER_LAYER, relative(path, source), message) for path in crops)
    files = [path for path in files if path not in crops]
    return chain(notes, skipped, read_files(source, files, partial(_read_file, columns=columns)))


def read_beside(read: Callable[[Path, Columns], Iterable[Item]], source: Path, columns: Columns) -> Iterator[Item]:
    """Read a source in another format, with notes about table files in it that cannot be read."""
    for item in read_tables(source, columns):
        yield Note(f"{item.where} is not read: {item.message}") if isinstance(item, Skipped) else item
    yield from read(source, columns)


def explain_unknown_table(folder: Path) -> str | None:
    """Return the name of the first file that is not understood, the reason and a remedy; None if there is none."""
    for path in list_files(folder, {".tsv", ".csv", *SHEET_SUFFIXES, *UNREAD_HINTS, *ARCHIVE_SUFFIXES}):
        if path.suffix.lower() in ARCHIVE_SUFFIXES:
            return f"{path.name}: archives in an archive are not unpacked; unpack it first"
        try:
            open_table(path, {})
        except DataError as error:
            return f"{path.name}: {error.message}; {error.hint if error.code == 'file-kind-unread' else COLUMNS_HINT}"
    return None


def _table_files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    files = list_files(source, {".tsv", ".csv", ".jsonl", ".txt", ".json", *SHEET_SUFFIXES})
    return [path for path in files if path.suffix.lower() not in {".txt", ".json"} or is_list(path)]


def _is_understood(path: Path, columns: Columns) -> bool | None:
    """Return whether a file has known columns; None if it cannot be read."""
    try:
        header = read_table(path, columns).header
    except DataError:
        return False if is_messages(path) else None
    return {"image", "text"} <= guess_roles(header, columns).keys()


def open_table(path: Path, columns: Columns) -> tuple[dict[str, str], SheetTable]:
    """Return role -> column and the table; if there is no column of images or texts, an error lists the columns."""
    table = read_table(path, columns)
    roles = guess_roles(table.header, columns)
    require_roles(roles, columns, table.header, path)
    if not {"bbox", "polygon"} & roles.keys() and (sides := _side_columns(table.header)):
        table.rows = [(number, _join_sides(cells, sides)) for number, cells in table.rows]
        table.header, roles["bbox"] = [*table.header, "bbox"], "bbox"
    values = {name: {cells.get(name, "").strip() for _, cells in table.rows} - {""} for name in table.header}
    for column in table.header if "split" not in roles else ():
        splits = set(map(parse_split, values[column]))
        if None not in splits and len(splits) > 1:
            use = option("columns", {"split": column})
            table.notes.append(
                f"the column {column!r} holds names of splits, but is not read as the split; {use} reads it"
            )
    for role in OUTLINE_ROLES:
        # Each image of an imagefolder, which `metadata` describes, is a sample: its outline is where it was cut.
        if role in roles and role not in columns:
            cells = values[roles[role]]
            is_sure = cells and roles[role].lower() in {"bbox", "polygon"}
            is_origin = path.stem.lower() == "metadata" and len(values[roles["image"]]) == len(table.rows)
            if is_origin or not (is_sure or any(map(parse_shape, cells))):
                column = roles.pop(role)
                if cells and not is_origin:
                    problem = f"no cell is one in pixels, such as {BOX_HINT}"
                    table.notes.append(f"the column {column!r} is not read as {role}: {problem}")
    return roles, table


def _side_columns(header: Sequence[str]) -> dict[str, str]:
    """Return side -> column for boxes with a column for each number, such as `x`, `y`, `width` and `height`."""
    columns = {name.strip().lower().replace("_", ""): name for name in header}
    sides = next((sides for sides in SIDES if columns.keys() >= set(sides)), ())
    return {side: columns[side] for side in sides}


def _join_sides(cells: Mapping[str, str], sides: Mapping[str, str]) -> dict[str, str]:
    values = {side: cells.get(column, "").strip().replace(",", ".") for side, column in sides.items()}
    box = "; ".join(f"{side}: {value}" for side, value in values.items()) if any(values.values()) else ""
    return {name: cell for name, cell in cells.items() if name not in sides.values()} | {"bbox": box}


def guess_roles(
    header: list[str], columns: Columns, usual_names: Mapping[str, Sequence[str]] = USUAL_NAMES
) -> dict[str, str]:
    """Return role -> column, as given or guessed by its `usual_names`; roles without a column are absent."""
    known = {name.strip().lower(): name for name in reversed(header)}
    roles = {}
    for role, usual in usual_names.items():
        candidates = [columns[role]] if role in columns else usual
        column = next((known[name.lower()] for name in candidates if name.lower() in known), None)
        if column is not None:
            roles[role] = column
    return roles if header[:1] != ["1"] else {"image": "1", "text": "2"} | roles


def require_roles(roles: Mapping[str, str], columns: Columns, header: Iterable[str], path: Path) -> None:
    """Raise DataError if there is no column for the image, the text or a role that was named."""
    missing = [role for role in ("image", "text") if role not in roles]
    missing += [f"{role} ({columns[role]!r})" for role in columns if role not in roles and role not in missing]
    if missing:
        message = f"no column is known to hold: {', '.join(missing)}; the columns are: {', '.join(header)}"
        raise DataError(message, code="column-role-unknown", where=path, hint=COLUMNS_HINT)


def _read_file(file: SourceFile, columns: Columns) -> Iterator[Item]:
    """Read the rows of a table; those with an outline on the same image are one page, if they agree otherwise."""
    roles, table = open_table(file.path, columns)
    for number, reason in table.skipped:
        yield Skipped(SkipReason.BAD_SOURCE, f"{file.where}:{number}", reason)
    for message in table.notes:
        yield Note(f"{file.where}: {message}")
    others = {name for _, cells in table.rows for name, cell in cells.items() if cell.strip()} - {*roles.values()}
    if others and file.path.suffix.lower() in SHEET_SUFFIXES:
        used = ", ".join(f"{role} from {column!r}" for role, column in roles.items())
        yield Note(f"{file.where}: read are {used}; other columns: {', '.join(map(repr, sorted(others)))}")
    pages = [_read_row(file, roles, row) for row in table.rows]
    notation = None
    if column := roles.get("bbox"):
        boxes = [(page.image, page.columns.get(column, "")) for page in pages if isinstance(page, Page)]
        if notation := decide_notation(column, boxes):
            yield Note(f"the boxes in the column {column!r} of {file.where} are {MEANINGS[notation]}")
    yield from _join_lines(pages, roles, notation)


def _join_lines(pages: Iterable[Page | Skipped], roles: Mapping[str, str], notation: Notation | None) -> Iterator[Item]:
    """Make one page of rows on one image: of those with outlines if they agree otherwise, and of those without."""
    line_columns = {column for role, column in roles.items() if role in {"text", *OUTLINE_ROLES}}
    items: list[Item] = []
    places: dict[tuple[Path, object], int] = {}
    for page in pages:
        if isinstance(page, Page):
            try:
                outline = _parse_outline(page.columns, roles, notation)
            except DataError as error:
                items.append(Skipped(SkipReason.BAD_SOURCE, page.where, error.message))
                page = replace(page, lines=(), skipped=page.lines)
            else:
                page = replace(page, lines=(replace(page.lines[0], outline=outline),))
            others = tuple((name, cell) for name, cell in page.columns.items() if name not in line_columns)
            place = places.setdefault((page.image, others if page.skipped or outline else None), len(items))
            if place < len(items) and isinstance(first := items[place], Page):
                lines, skipped = (*first.lines, *page.lines), (*first.skipped, *page.skipped)
                items[place] = replace(first, lines=lines, skipped=skipped)
                continue
        items.append(page)
    outlined = {image for image, others in places if others is not None}
    for item in items:
        if isinstance(item, Page) and item.image in outlined and item.lines and not item.lines[0].outline:
            message = "other rows have outlines on its image"
            yield from (Skipped(SkipReason.NO_OUTLINE, line.where, message) for line in item.lines)
        else:
            yield item


def _read_row(file: SourceFile, roles: Mapping[str, str], row: Row) -> Page | Skipped:
    """Return the image of a row with its text, without the outline."""
    number, cells = row
    where = f"{file.where}:{number}"
    values = {role: cells.get(column, "").strip() for role, column in roles.items()}
    if not values["image"]:
        return Skipped(SkipReason.NO_IMAGE, where, f"the column {roles['image']!r} is empty, and names no image")
    page = file.find_page(values["image"], where, folder=file.path.stem, **row_details(values, cells))
    if isinstance(page, Skipped):
        return page
    if "split" in values:
        split = parse_split(values["split"])
    else:
        in_folders = (split_of_folder(path.relative_to(file.root).parent) for path in (file.path, page.image))
        is_listed = file.path.suffix.lower() in {".txt", ".json"}  # such as rec_gt_train.txt
        split = (file.split if is_listed else parse_split(file.path.stem)) or next(filter(None, in_folders), None)
    text = cells.get(roles["text"], "")
    struck = text.struck if isinstance(text, SheetCell) else ()
    return replace(page, lines=(Line(text, where, struck=struck),), split=split)


def row_details(values: Mapping[str, str], cells: Mapping[str, str]) -> dict[str, Any]:
    """Return a row's facts about its page, by the attributes of `Page`."""
    return {name: values.get(name) or None for name in ("writer", "page", "document")} | {"columns": cells}


def _parse_outline(cells: Mapping[str, str], roles: Mapping[str, str], notation: Notation | None) -> Outline | None:
    """Parse the outline in a row; None if it has none, DataError for an unknown notation."""
    shapes: dict[str, Shape] = {}
    for role in OUTLINE_ROLES:
        if cell := cells.get(roles.get(role, ""), "").strip():
            shape = parse_shape(cell)
            if not shape or (role != "baseline" and shape.notation != "points" and not shape.box(notation)):
                message = f"the {roles[role]} {cell[:60]!r} is no {role} in pixels, such as {BOX_HINT}"
                raise DataError(message, code="coordinates-invalid")
            shapes[role] = shape
    baseline = shapes["baseline"].points if "baseline" in shapes else ()
    polygon = shapes["polygon"].points if "polygon" in shapes and shapes["polygon"].notation == "points" else ()
    shape = shapes.get("bbox") or shapes.get("polygon")
    if shape and (box := shape.box(notation)):
        return Outline(box, polygon, baseline)
    if shape:
        return Outline.of_polygon(shape.points, baseline)
    return Outline(bounds(baseline), (), baseline) if baseline else None


def read_rows(
    path: Path, columns: Columns, usual_names: Mapping[str, Sequence[str]] = USUAL_NAMES
) -> tuple[list[str], list[Row]]:
    """Return the column names, and the line number and cells of every row, as `read_table` does.

    A row that cannot be divided into cells is an error.
    """
    table = read_table(path, columns, usual_names)
    table.require_whole(path)
    return table.header, table.rows


def read_table(path: Path, columns: Columns, usual_names: Mapping[str, Sequence[str]] = USUAL_NAMES) -> SheetTable:
    """Return the column names, the line number and cells of every row that is not blank, and the rows not read.

    The first two roles of `usual_names` are the image or id, and the text.
    """
    suffix = path.suffix.lower()
    require_readable_kind(path)
    if suffix in SHEET_SUFFIXES:
        return _read_sheets(path, columns, usual_names)
    text = read_text(path)
    Budget().take(path, elements=sum(map(text.count, "\n,\t;|")))
    if suffix in {".jsonl", ".json"}:
        outlines = {columns.get(role, name).lower() for role in OUTLINE_ROLES for name in USUAL_NAMES[role]}
        rows = json_rows(path, text, outlines)
        _require_rows(rows, path)
        return SheetTable(list(dict.fromkeys(name for _, cells in rows for name in cells)), rows)

    def find_places(cells: list[str]) -> tuple[int, int, bool] | None:
        numbered = [str(place) for place in range(1, len(cells) + 1)]
        names = cells if _is_header(cells, columns) else numbered if columns else None
        if names is None:
            return None
        roles = guess_roles(names, columns, usual_names)
        image, written = (names.index(roles[role]) if role in roles else -1 for role in list(usual_names)[:2])
        return image, written, names is cells

    split = split_rows(path, text, find_places, "\t" if suffix in {".tsv", ".txt"} else DELIMITERS)
    _require_rows(split, path)
    header = split[0].cells
    if tuple(header[: len(_TSV_COLUMNS)]) == _TSV_COLUMNS:  # a table that `writing_tsv` wrote
        split = [replace(row, cells=list(map(unescape_formula, row.cells))) for row in split]
        header = split[0].cells
    if header and _is_header(header, columns):
        split = split[1:]
    else:
        width = max(len(row.cells) for row in split) or 2
        header = [str(place) for place in range(1, width + 1)]
    table = SheetTable(header, skipped=[(row.number, row.problem) for row in split if row.problem])
    table.rows = [(row.number, dict(zip(header, row.cells, strict=True))) for row in split if not row.problem]
    if suffix == ".txt" and any(is_page(cells.get("2", "")) for _, cells in table.rows):
        table.header, table.rows = [*header, "polygon"], list(_page_rows(table))
    return table


def _read_sheets(path: Path, columns: Columns, usual_names: Mapping[str, Sequence[str]]) -> SheetTable:
    image, text = list(usual_names)[:2]
    table = read_workbook(path, lambda names: guess_roles(names, columns, usual_names), (image, text))
    if not table.header:
        raise DataError("; ".join(table.notes) or "the table is empty", code="table-empty", where=path)
    if table.header[0] == "1" and len(table.header) > _COLUMNS_WITHOUT_HEADER and not columns:
        message = f"the sheet has {len(table.header)} columns and no headings"
        hint = f"add headings, or give {option('columns', {'image': '1', 'text': '2'})}"
        raise DataError(message, code="table-headless", where=path, hint=hint)
    if tuple(table.header[: len(_TSV_COLUMNS)]) == _TSV_COLUMNS:  # a table that `writing_tsv` wrote, saved by Excel
        table.rows = [
            (place, {name: unescape_formula(cell) for name, cell in cells.items()}) for place, cells in table.rows
        ]
    return table


def _require_rows(rows: Sequence[object], path: Path) -> None:
    if not rows:
        raise DataError("the table is empty", code="table-empty", where=path)


def _is_header(cells: list[str], columns: Columns) -> bool:
    """Return whether a first row is a header: unless one of its cells names an image."""
    return not set(columns.values()).isdisjoint(cells) or not any(map(is_image, cells))


def _page_rows(table: SheetTable) -> Iterator[Row]:
    """Yield a row for each line of pages that PPOCRLabel wrote."""
    for number, cells in table.rows:
        try:
            yield from [(place, cells | line) for place, line in page_lines(cells["2"], number)]
        except DataError as error:
            table.skipped.append((number, error.message))


def require_readable_kind(path: Path) -> None:
    """Raise DataError, with a remedy, for a file of a kind that is not read."""
    if hint := UNREAD_HINTS.get(path.suffix.lower()):
        message = f"{path.suffix.lower()[1:].upper()} files are not read"
        raise DataError(message, code="file-kind-unread", where=path, hint=hint)


def spreadsheet(rows: Iterable[Iterable[object]], *, delimiter: str = ",") -> str:
    """Return rows as a table for spreadsheets, in which no cell is a formula; None is an empty cell."""
    text = io.StringIO(newline="")
    table = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    table.writerows([escape_formula("" if cell is None else str(cell)) for cell in row] for row in rows)
    return text.getvalue()


def read_spreadsheet(path: Path) -> tuple[list[str], list[Row]]:
    """Return the column names, in lower case, and the rows of a table such as `spreadsheet` makes, edited since."""
    usual = _CORRECTION_NAMES if path.suffix.lower() in SHEET_SUFFIXES else USUAL_NAMES
    header, rows = read_rows(path, {}, usual)
    names = {name: name.strip().lower() for name in header}
    read = [
        (number, {names[name]: unescape_formula(cell.strip()) for name, cell in cells.items()})
        for number, cells in rows
    ]
    return list(names.values()), read


@contextmanager
def writing_tsv(folder: Path, columns: Sequence[str]) -> Iterator[WritePage]:
    """Write a table with a row for each line; `columns` are the source's own, which follow ours."""

    def row(line: Line, page: Page) -> Iterator[str]:
        names = [page.writer or "", page.page or "", page.document or "", page.split or ""]
        shapes: list[tuple[Point, ...]] = [(), (), ()]
        if outline := line.outline:
            shapes = [(outline.box[:2], outline.box[2:]), outline.polygon, outline.baseline]
        others = [page.columns.get(column, "") for column in columns]
        cells = [f"{IMAGES}/{page.image.name}", line.text, *names, *map(format_points, shapes), *others]
        return map(escape_formula, cells)

    def write(page: Page, stem: str) -> Written:
        copy = copy_page_image(page, folder / IMAGES, stem)
        if isinstance(copy, Skipped):
            return Written(0, [copy])
        table.writerows(row(line, copy) for line in copy.lines)
        return Written(len(copy.lines))

    with (folder / "lines.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, "excel-tab", quoting=csv.QUOTE_ALL, lineterminator="\n")
        table.writerow([*_TSV_COLUMNS, *map(escape_formula, columns)])
        yield write


FORMATS = (
    Format(
        name="table",
        title="tables of images and texts",
        find=find_tables,
        read=read_tables,
        example="letters.tsv -o data/mine --column text=label --writer author",
        takes_columns=True,
    ),
    Format(
        name="tsv",
        title="a table of lines with outlines",
        writing=writing_tsv,
        forbidden=re.compile(f"[\0{SURROGATES}]"),
        keeps_pages=True,
        columns=_TSV_COLUMNS,
        next_step="open {out}/lines.tsv as UTF-8, or dsocr prepare {out} -o data/mine",
    ),
)
