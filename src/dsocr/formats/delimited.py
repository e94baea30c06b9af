"""The rows of a CSV or TSV file, whoever wrote it: a library, a spreadsheet, or a person who quotes nothing.

All rows decide on the delimiter and on quotes, since a single one can be read in several ways: `a.png,"Yes, sir"`.
Quotes are those of a writer if nearly all rows are what a writer with quotes makes; otherwise they are part of the
texts, and the last column takes every delimiter that is left. A row that is whole in neither way is refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsocr.errors import DataError, option
from dsocr.images import IMAGE_SUFFIXES

DELIMITERS = ",;\t|"

FindPlaces = Callable[[list[str]], tuple[int, int, bool] | None]
"""Returns the places of image and text (-1 for none), and whether the row is a header; None if there are no names."""

_NAMED_DELIMITER = re.compile(r"sep=(?P<delimiter>[,;\t|])\r?\n", re.IGNORECASE)
"""The first line of some tables for spreadsheets."""
_LONGEST_ROW = 200_000
"""Characters of a row with line breaks; more are a quote that is never closed."""
_MAJORITY = 20
"""Rows with a writer's quotes for each row that no writer made, above which the file has quotes."""
_MIN_RULE = 10
"""Rows that show a rule for quotes that no cell needs."""

_NUMBER = re.compile(r"[-+]?[\d.,]+")

_SURPLUS = "it has {found} cells, and the table has {columns} columns: quote cells that contain the delimiter"
_BROKEN = "its text seems to have a line break here, without quotes: write it as one line, or quote it"
_UNCLEAR = "its quotes may enclose a cell or belong to the text: quote all cells of the table, or none"
_HEADLESS = "its delimiters may be part of the texts"
_PADDED = (
    "the delimiters at its end may be empty cells or part of the text: name all columns in the header, or quote texts"
)
_UNLIKE = "{name!r} is unlike the other names, and may be the rest of a text with a line break: quote all cells"


@dataclass(slots=True)
class TextRow:
    """The number of the line that a row begins in, its cells, and the problem that it is refused for.

    `lines` are its lines, `quoted` says which cells are quoted, and `follows` if so by the file's rule. A line that no
    writer with quotes made has no cells.
    """

    number: int
    cells: list[str]
    problem: str = ""
    lines: list[str] = field(default_factory=list)
    quoted: list[bool] = field(default_factory=list)
    follows: bool = True

    def plain_cells(self, delimiter: str) -> list[str]:
        """The cells, or those of the first line if quotes are part of the text."""
        return self.cells or self.lines[0].removesuffix("\r").split(delimiter)

    def needs(self, delimiter: str, image: int) -> bool:
        """Whether its quotes are a writer's: they hide a sign, or enclose all cells or the name."""
        marked = [cell for cell, mark in zip(self.cells, self.quoted, strict=False) if mark]
        is_special = any(sign in cell for cell in marked for sign in (delimiter, '"', "\n", "\r"))
        return bool(marked) and (is_special or all(self.quoted) or self.quoted[max(image, 0) :][:1] == [True])


def split_rows(path: Path, text: str, find_places: FindPlaces, delimiters: str = DELIMITERS) -> list[TextRow]:
    """Divide a table, header included, into rows of one size or refused. Raises DataError for ambiguous columns."""
    first = 1
    if named := _NAMED_DELIMITER.match(text):
        delimiters, text, first = named["delimiter"], text[named.end() :], 2
    lines = (text if "\n" in text else text.replace("\r", "\n")).split("\n")
    filled = [line.removesuffix("\r") for line in lines if line.strip()]
    if not filled:
        return []
    delimiter, places = _choose_delimiter(filled, delimiters, find_places)
    image, place, has_header = places or (0, 1, False)
    starts = [line.split(delimiter) for line in filled[has_header:]]
    has_names = any(is_image(cells[image]) for cells in starts if 0 <= image < len(cells))
    rows = list(_iterate_rows(lines, first, delimiter, image, is_image))
    if not has_names:  # names without a suffix are known by their shape
        alone = (row for row in rows[1:] if len(row.lines) == 1 or row is rows[1])
        shapes = {_shape(row.lines[0].split(delimiter)[max(image, 0)]) for row in alone}
        rows = list(_iterate_rows(lines, first, delimiter, image, lambda name: _shape(name) in shapes))
    sizes = Counter(len(row.plain_cells(delimiter)) for row in rows if row.cells or delimiter == "\t")
    if has_header:
        width = len(rows[0].plain_cells(delimiter))
    elif delimiter == "\t" or (places and len(sizes) == 1):
        width = max(sorted(size for size in sizes if size > 1), key=sizes.__getitem__, default=2)
    else:
        width = max(image, place) + 1 if places else min((size for size in sizes if size > 1), default=2)
    if not _has_quotes(rows, delimiter, width, image):
        if places is None and width > 2 and (delimiter != "\t" or len(sizes) > 1):
            message = f"the table has no header and up to {max(sizes)} cells in a row: {_HEADLESS}"
            hint = f"add one, or give {option('columns', {'image': '1', 'text': '2'})}"
            raise DataError(message, code="table-headless", where=path, hint=hint)
        header = [TextRow(rows[0].number, rows[0].cells)] if has_header and rows[0].cells else []
        most = width - 1 if place == width - 1 else -1
        rows = (
            header
            + [  # a row for each line, with quotes as parts of the texts
                TextRow(number, line.removesuffix("\r").split(delimiter, most), row.problem)
                for row in rows[len(header) :]
                for number, line in enumerate(row.lines, start=row.number)
                if line.strip()
            ]
        )
    for row in rows:
        row.cells = row.plain_cells(delimiter)
    _mark_surplus(rows[has_header:], width, delimiter)
    _mark_broken(rows[has_header:], image, place, has_names=has_names)
    for row in rows:
        row.cells = [] if row.problem else row.cells + [""] * (width - len(row.cells))
    return rows


def _choose_delimiter(
    filled: Sequence[str], delimiters: str, find_places: FindPlaces
) -> tuple[str, tuple[int, int, bool] | None]:
    """Return the delimiter that gives known columns, images, and most rows of one size, and the places by it."""

    def places_of(delimiter: str) -> tuple[int, int, bool] | None:
        return find_places([cell.strip().strip('"') for cell in filled[0].split(delimiter)])

    def fit(delimiter: str) -> tuple[bool, int, int]:
        rows = [line.split(delimiter) for line in filled]
        sizes = Counter(map(len, rows))
        images = sum(len(row) > 1 and any(map(is_image, row)) for row in rows)
        is_known = min(places_of(delimiter) or (-1,)) >= 0
        return is_known, images, max((count for size, count in sizes.items() if size > 1), default=0)

    delimiter = max(delimiters, key=fit)
    return delimiter, places_of(delimiter)


def _iterate_rows(
    lines: Sequence[str], first: int, delimiter: str, image: int, is_name: Callable[[str], bool]
) -> Iterator[TextRow]:
    value = rf'(?: *"[^"]*(?:""[^"]*)*" *|[^"{re.escape(delimiter)}\r\n]*)'
    whole = re.compile(rf"{value}(?:{re.escape(delimiter)}{value})*(?=\r?\n|\r?\Z)")
    cell = re.compile(rf"(?:\A|{re.escape(delimiter)})({value})")
    text, place, number = "\n".join(lines), 0, 0
    while number < len(lines):
        line, end = lines[number].removesuffix("\r"), number + 1
        row = TextRow(first + number, [] if '"' in line else line.split(delimiter), lines=[line])
        match = whole.match(text, place, place + _LONGEST_ROW) if '"' in line else None
        taken = match[0].split("\n") if match else []
        # A row never takes up the next: whatever encloses the name of another image is no cell.
        starts = [part[image] for part in (other.split(delimiter) for other in taken) if 0 <= image < len(part)]
        if match and (len(taken) == 1 or sum(map(is_name, starts)) <= 1):
            end = number + len(taken)
            written = [part.strip(" ") if '"' in part else part for part in cell.findall(match[0])]
            marks = [part.startswith('"') for part in written]
            cells = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in written]
            row = TextRow(first + number, cells, lines=taken, quoted=marks)
        if line.strip():
            yield row
        place += sum(len(used) + 1 for used in lines[number:end])
        number = end


def _shape(name: str) -> str:
    """Return the kinds of signs in a name: `a_0` for `page_0001`."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", name.strip()))


def _apply_rule(rows: Sequence[TextRow], delimiter: str, width: int) -> None:
    """Mark the rows that follow the rule which explains the quotes of most rows; the header need not.

    Writers quote cells with the delimiter, a quote or a line break, and some quote all with another delimiter, all with
    a space, or all but the numbers of a column. Who forgets to double the quotes inside leaves rows without cells.
    """
    all_cells, marked = Counter[int](), Counter[int]()
    for row in rows:
        all_cells.update(place for place, cell in enumerate(row.cells) if cell)
        marked.update(place for place, mark in enumerate(row.quoted) if mark)
    columns = {place for place, count in marked.items() if 2 * count > all_cells[place]}
    special = re.compile(rf'[{re.escape(delimiter)}"\r\n]')
    rules: list[Callable[[int, str], bool]] = [
        lambda place, cell: False,
        lambda place, cell: any(sign in cell for sign in DELIMITERS),
        lambda place, cell: " " in cell,
        lambda place, cell: place in columns,
    ]

    def follows(row: TextRow, rule: Callable[[int, str], bool]) -> bool:
        if not row.cells:
            ends = [cell.strip()[:1] + cell.strip()[-1:] for cell in row.lines[0].split(delimiter, width - 1)]
            return rule is rules[-1] and bool(columns) and all(ends[place : place + 1] == ['""'] for place in columns)
        return all(
            mark == rule(place, cell) or not cell or bool(special.search(cell) if mark else _NUMBER.fullmatch(cell))
            for place, (cell, mark) in enumerate(zip(row.cells, row.quoted or [False] * len(row.cells), strict=True))
        )

    best = max(rules, key=lambda rule: sum(follows(row, rule) for row in rows))
    for row in rows[1:]:
        row.follows = follows(row, best)


def _has_quotes(rows: Sequence[TextRow], delimiter: str, width: int, image: int) -> bool:
    """Return whether the quotes of a table are a writer's, and mark the rows that are unclear."""
    for row in rows:
        if len(row.cells) > width:
            row.cells = []
    _apply_rule(rows, delimiter, width)
    quoted = [row for row in rows if row.quoted or not row.cells]
    regular = [row for row in quoted if row.follows]
    needing = sum(bool(row.cells) and row.needs(delimiter, image) for row in regular)
    odd = len(quoted) - len(regular)
    is_shown = len(regular) >= _MIN_RULE or needing == len(regular) or (needing > 0 and not odd)
    has_quotes = len(regular) > odd * _MAJORITY and is_shown
    for row in rows:
        if has_quotes and not row.quoted:
            is_unclear = any(cell.lstrip().startswith('"') for cell in row.plain_cells(delimiter))
        elif has_quotes:
            is_unclear = not row.follows
        else:
            may_be_writers = row.needs(delimiter, image) or (delimiter != "\t" and not odd)
            is_unclear = row.follows and bool(row.quoted and row.cells) and may_be_writers
        row.problem = _UNCLEAR if is_unclear else ""
    return has_quotes


def _mark_surplus(rows: Sequence[TextRow], width: int, delimiter: str) -> None:
    """Refuse rows with too many cells, or with delimiters at the end of a last cell without quotes."""
    ends = ["" if any(row.quoted) else row.cells[-1] for row in rows]
    is_padded = len(rows) > 1 and all(end.endswith(delimiter) for end in ends)
    for row, end in zip(rows, ends, strict=True):
        if len(row.cells) > width:
            row.problem = row.problem or _SURPLUS.format(found=len(row.cells), columns=width)
        elif is_padded or end.endswith(2 * delimiter):
            row.problem = row.problem or _PADDED


def _mark_broken(rows: Sequence[TextRow], image: int, text: int, *, has_names: bool) -> None:
    """Refuse rows that are a part of a text, and their neighbours with the other part."""
    needed = image if has_names else max(image, text)
    shapes = Counter(_shape(row.cells[image]) for row in rows if 0 <= image < len(row.cells))
    usual = "".join(shape for shape, count in shapes.items() if 2 * count >= len(rows))
    has_blanks = 2 * sum(count for shape, count in shapes.items() if " " in shape) > len(rows)
    for place, row in enumerate(rows[1:], start=1):
        name = row.cells[image].strip() if 0 <= image < len(row.cells) else ""
        shape = _shape(name)
        if len(row.cells) <= needed or (image >= 0 and not (is_image(name) if has_names else name)):
            problem = _BROKEN
        elif any(row.quoted) or has_names or image < 0:
            continue
        elif (" " in shape and not has_blanks) or ("0" in usual and "0" not in shape):
            problem = _UNLIKE.format(name=name)
        else:
            continue
        for part in (row, rows[place - 1] if text > image else rows[min(place + 1, len(rows) - 1)]):
            part.problem = part.problem or problem


def is_image(cell: str) -> bool:
    """Return whether a cell ends as the name of an image does."""
    stem, dot, suffix = cell.strip().strip('"').rpartition(".")
    return bool(stem) and (dot + suffix).lower() in IMAGE_SUFFIXES
