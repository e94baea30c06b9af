"""Tables that name an image and its text in each row: TSV, CSV and JSONL, with or without a header.

Column names are guessed from the usual ones and can be given. TSV knows no quotes, unless every cell of its first line
is quoted; a CSV's delimiter is the one its first line has most of. Columns without a header are called 1, 2, 3, ...
Several rows with outlines on one image are the lines of that page.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from dsocr.document import Box, Item, Line, Note, Outline, Page, Skipped, SkipReason, Split, format_points, parse_points
from dsocr.errors import DataError
from dsocr.formats.messages import is_messages
from dsocr.formats.writing import HALF, IMAGES, Added, Pictures, WholeImage, copy_image
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text
from dsocr.io.files import list_files, parse_split, relative, split_of_folder

ROLES = ("bbox", "polygon", "baseline")

_POINT = r"-?\d{1,7},-?\d{1,7}"
_NOTATIONS = {
    "bbox": re.compile(rf"{_POINT} {_POINT}"),
    "polygon": re.compile(rf"{_POINT}(?: {_POINT})*"),
    "baseline": re.compile(rf"{_POINT}(?: {_POINT})*"),
}


def readable_roles(
    path: Path, roles: Mapping[str, str], cells: Sequence[Mapping[str, str]], asked: Iterable[str]
) -> dict[str, str]:
    """The roles without outlines that are somebody's own: in another notation, or those of an imagefolder.

    Each image of an imagefolder, described by its `metadata`, is a sample: its outline is where on a page it was cut.
    """
    kept = {role: column for role, column in roles.items() if role not in ROLES or role in asked}
    if path.stem.lower() == "metadata":
        return kept
    for role in ROLES:
        held = {row.get(roles[role], "").strip() for row in cells} - {""} if role in roles else set()
        if held and all(_NOTATIONS[role].fullmatch(cell) for cell in held):
            kept[role] = roles[role]
    return kept


def outline_of(known: Mapping[str, str]) -> Outline | None:
    """The outline that a row's cells, by role, tell of; None for none, and a DataError for one in another notation."""
    cells = {role: known[role] for role in ROLES if known.get(role)}
    for role, cell in cells.items():
        if not _NOTATIONS[role].fullmatch(cell):
            raise DataError(f"the {role} {cell[:60]!r} is not written `x,y x,y`")
    polygon, baseline = parse_points(cells.get("polygon")), parse_points(cells.get("baseline"))
    if box := read_box(cells.get("bbox", "")):
        return Outline(box, polygon if len(polygon) >= 3 else (), baseline)
    return Outline.of_polygon(polygon, baseline) if polygon else None


def read_box(cell: str) -> Box | None:
    """The box that a cell tells of; None for one that is empty or in another notation."""
    if not _NOTATIONS["bbox"].fullmatch(cell):
        return None
    (left, top), (right, bottom) = parse_points(cell)
    return left, top, right, bottom


def joined(items: Iterable[Page | Skipped], line_columns: Iterable[str]) -> list[Page | Skipped]:
    """Rows with an outline on the same image, the same in all but `line_columns`, made one image with their lines."""
    own = set(line_columns)
    found: list[Page | Skipped] = []
    places: dict[object, int] = {}
    for item in items:
        if isinstance(item, Skipped) or item.lines[0].outline is None:
            found.append(item)
            continue
        shared = tuple((name, cell) for name, cell in item.columns.items() if name not in own)
        place = places.setdefault((item.image, shared), len(found))
        if place == len(found):
            found.append(item)
        else:
            first = found[place]
            assert isinstance(first, Page)
            found[place] = replace(first, lines=(*first.lines, *item.lines))
    return found


OUTLINE_ROLES = ROLES

Columns = Mapping[str, str]
"""Role -> column name, for the roles below that are not to be guessed."""

USUAL_NAMES = {
    "image": ("file_name", "image", "im", "image_path", "path", "img", "file", "filename"),
    "text": ("text", "transcription", "label", "ground_truth", "gt", "sentence"),
    "writer": ("writer", "writer_id", "author", "hand", "scribe"),
    "page": ("page", "page_id", "page_image", "source_img", "source_image"),
    "document": ("document", "document_id", "doc"),
    "split": ("split", "stage", "subset", "set"),
    **{role: (role,) for role in OUTLINE_ROLES},
}
_SUFFIXES = frozenset({".tsv", ".csv", ".jsonl"})
_QUOTED_LINE = re.compile(r'"(?:[^"]|"")*"(?:\t"(?:[^"]|"")*")+\r?(?:\n|\Z)')

Row = tuple[int, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table file with its columns known: `roles` says which column is the image, the text, ..."""

    path: Path
    roles: dict[str, str]
    rows: list[Row]


COLUMNS_HINT = "say which is which, e.g. --column image=scan --column text=words"


def why_no_table(folder: Path) -> str | None:
    """Of the first spreadsheet-like table that is not understood, its name and why; None where there is none."""
    for path in _table_files(folder):
        if path.suffix.lower() in (".tsv", ".csv"):
            try:
                open_table(path, {})
            except DataError as error:
                return f"{path.name}: {error.message}"
    return None


def find_tables(source: Path, columns: Columns) -> list[Path]:
    """The table files whose columns are understood, and those that cannot be read, so that they are reported."""
    return [path for path in _table_files(source) if _is_understood(path, columns)]


def read_tables(source: Path, columns: Columns) -> Iterator[Item]:
    """The rows of all tables of a folder, or of one table file, each an image with its text."""
    files = find_tables(source, columns)
    if not files:
        # None is understood: the first one says why.
        files = _table_files(source)[:1]
        for path in files:
            open_table(path, columns)
    root = source.parent if source.is_file() else source
    pictures = Pictures(root)
    for path in files:
        try:
            table = open_table(path, columns)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, relative(path, root), error.message)
            continue
        if (split := table.roles.get("split")) and split not in {*columns.values(), *USUAL_NAMES["split"]}:
            yield Note(f"the column {split!r} of {relative(path, root)} is read as the split")
        line_columns = [column for role, column in table.roles.items() if role in {"text", *OUTLINE_ROLES}]
        yield from joined((_source_image(table, row, root, pictures) for row in table.rows), line_columns)


def _table_files(source: Path) -> list[Path]:
    return [source] if source.is_file() else list_files(source, _SUFFIXES)


def _is_understood(path: Path, columns: Columns) -> bool:
    try:
        header = read_rows(path, columns)[0]
    except DataError:
        return not is_messages(path)
    return {"image", "text"} <= roles_of(header, columns).keys()


def open_table(path: Path, columns: Columns) -> Table:
    """A table whose image and text columns are known; an error lists the columns it has where they are not."""
    header, rows = read_rows(path, columns)
    roles = roles_of(header, columns)
    if missing := missing_columns(roles, columns):
        message = f"no column is known to hold: {', '.join(missing)}; the columns are: {', '.join(header)}"
        raise DataError(message, where=path, hint=COLUMNS_HINT)
    if "split" not in roles and (column := _find_split_column(header, rows, set(roles.values()))):
        roles["split"] = column
    return Table(path, readable_roles(path, roles, [cells for _, cells in rows], columns), rows)


def _find_split_column(header: list[str], rows: list[Row], taken: Container[str]) -> str | None:
    """A column with names of at least two splits and nothing else."""
    for column in header:
        values = {cells.get(column, "").strip() for _, cells in rows} - {""}
        splits = {parse_split(value) for value in values}
        if column not in taken and None not in splits and len(splits) > 1:
            return column
    return None


def missing_columns(roles: Mapping[str, str], columns: Columns) -> list[str]:
    """The roles that no column was found for: image and text, and what was asked for by name."""
    missing = [role for role in ("image", "text") if role not in roles]
    return missing + [f"{role} ({columns[role]!r})" for role in columns if role not in roles and role not in missing]


def check_roles(columns: Columns) -> None:
    """Refuses a role that does not exist."""
    unknown = sorted(set(columns) - set(USUAL_NAMES))
    if unknown:
        raise DataError(f"unknown column role {unknown[0]!r}; the roles are: {', '.join(USUAL_NAMES)}")


def roles_of(header: list[str], columns: Columns) -> dict[str, str]:
    """Role -> column, as given or guessed; roles without a column are absent."""
    known = {name.strip().lower(): name for name in reversed(header)}
    roles = {}
    for role, usual in USUAL_NAMES.items():
        candidates = [columns[role]] if role in columns else usual
        found = next((known[name.lower()] for name in candidates if name.lower() in known), None)
        if found is not None:
            roles[role] = found
    return roles if header[:1] != ["1"] else {"image": "1", "text": "2"} | roles


def _source_image(table: Table, row: Row, root: Path, pictures: Pictures) -> Page | Skipped:
    number, cells = row
    where = f"{relative(table.path, root)}:{number}"
    known = {role: cells.get(column, "").strip() for role, column in table.roles.items() if role != "text"}
    try:
        image = pictures.find(known["image"], near=table.path.parent, folder=table.path.stem)
    except DataError as error:
        return Skipped(SkipReason.NO_IMAGE, where, error.message)
    try:
        outline = outline_of(known)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, where, error.message)
    return Page(
        image=image,
        name=relative(image.with_suffix(""), root),
        where=where,
        lines=(Line(cells.get(table.roles["text"], ""), where, outline),),
        writer=known.get("writer") or None,
        page=known.get("page") or None,
        document=known.get("document") or None,
        split=_split(table, known, image, root),
        columns=cells,
    )


def _split(table: Table, known: Mapping[str, str], image: Path, root: Path) -> Split | None:
    """By the row, else the table's name (`train.tsv`), else a folder's."""
    if "split" in known:
        return parse_split(known["split"])
    place = table.path.relative_to(root)
    return (
        parse_split(table.path.stem) or split_of_folder(place.parent) or split_of_folder(image.relative_to(root).parent)
    )


def read_rows(path: Path, columns: Columns) -> tuple[list[str], list[Row]]:
    """Column names, and line number and cells of every row that is not blank."""
    text = read_text(path)
    if path.suffix.lower() == ".jsonl":
        return _json_rows(path, text)
    lines = _tab_lines(path, text, columns) if path.suffix.lower() == ".tsv" else _csv_lines(path, text)
    if not lines:
        raise DataError("the table is empty", where=path)
    header = lines[0][1]
    if _is_header(header, columns):
        lines = lines[1:]
    else:
        header = [str(place) for place in range(1, len(header) + 1)]
    return header, [(number, _cells(header, cells)) for number, cells in lines]


def _is_header(cells: list[str], columns: Columns) -> bool:
    """A first row is a header unless a cell of it names an image."""
    if set(columns.values()) & set(cells):
        return True
    return not any(PurePosixPath(cell.strip()).suffix.lower() in IMAGE_SUFFIXES for cell in cells)


def _cells(header: list[str], cells: list[str]) -> dict[str, str]:
    """Cells by column; missing ones are empty, and a tab or comma too many belongs to the last column."""
    return dict(zip(header, cells + [""] * (len(header) - len(cells)), strict=False))


def _tab_lines(path: Path, text: str, columns: Columns) -> list[tuple[int, list[str]]]:
    if _QUOTED_LINE.match(text):
        return _csv_lines(path, text, "\t")
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    if not lines:
        return []
    tabs = Counter(line.count("\t") for _, line in lines)
    # Without a header the first row is like any other, and a text may hold tabs: what most rows have counts.
    usual = max(sorted(tabs), key=tabs.__getitem__)
    first = lines[0][1].split("\t")
    last = len(first) - 1 if _is_header(first, columns) else usual
    return [(number, line.split("\t", last)) for number, line in lines]


def _csv_lines(path: Path, text: str, delimiter: str = "") -> list[tuple[int, list[str]]]:
    delimiter = delimiter or max(",;\t|", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [(reader.line_num, cells) for cells in reader if any(cells)]
    except csv.Error as error:
        raise DataError(f"line {reader.line_num} cannot be read: {error}", where=path) from error


def _json_rows(path: Path, text: str) -> tuple[list[str], list[Row]]:
    rows = [
        (number, _json_cells(line, number, path))
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise DataError("the table is empty", where=path)
    return list(rows[0][1]), rows


def _json_cells(line: str, number: int, path: Path) -> dict[str, str]:
    """The strings and numbers of a row; nested values are nothing that a role could use."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} is not JSON: {error}", where=path) from error
    if not isinstance(row, dict):
        raise DataError(f"line {number} is not a JSON object", where=path)
    return {key: str(value) for key, value in row.items() if isinstance(value, str | int | float)}


TSV_FORBIDDEN = re.compile(f"[\0{HALF}]")
TSV_COLUMNS = ("image", "text", "writer", "page", "document", "split", "bbox", "polygon", "baseline")
TABLE = "lines.tsv"


class TsvWriter:
    """Writes the table row by row; `columns` are the source's own, which follow ours."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = columns
        self._file = (folder / TABLE).open("w", encoding="utf-8", newline="")
        self._table = csv.writer(self._file, "excel-tab", quoting=csv.QUOTE_ALL, lineterminator="\n")
        self._table.writerow([*TSV_COLUMNS, *columns])

    def add(self, image: Page, stem: str) -> Added:
        """Copies the image and writes a row for each of its lines."""
        whole = copy_image(image, self.folder / IMAGES, stem)
        if isinstance(whole, Skipped):
            return Added(0, [whole])
        self._table.writerows(self._row(line, whole, image) for line in whole.lines)
        return Added(len(whole.lines))

    def _row(self, line: Line, whole: WholeImage, image: Page) -> list[str]:
        known = [image.writer or "", image.page or "", image.document or "", image.split or ""]
        others = [image.columns.get(column, "") for column in self.columns]
        return [f"{IMAGES}/{whole.file}", line.text, *known, *_outline(line.outline), *others]

    def close(self) -> None:
        """Closes the table."""
        self._file.close()


def _outline(outline: Outline | None) -> list[str]:
    if outline is None:
        return ["", "", ""]
    left, top, right, bottom = outline.box
    return [
        format_points(((left, top), (right, bottom))),
        format_points(outline.polygon),
        format_points(outline.baseline),
    ]
