"""Draw pages of Russian registers whose rows, columns and cells are known, to measure how tables are read.

    python tools/draw_registers.py OUT --count 40 [--seed 1] [--skew 3] [--ruling full]

OUT gets the images and a PAGE XML file for each. A page is a metrical book, a revision list, a confession register, a
ledger or a roll in the spelling before 1918, written with a pen of `hands` under headings that are printed or written:
ruled throughout, between the columns or not at all; with faded or broken rulings, rows of one cell, headings over
two columns, titles outside the table, bent and skewed; also two open pages, whose table goes on or is repeated.
The same seed gives the same files.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from draw_sample import GOODS, DrawnPaper
from draw_writers import Penman
from dsocr.document import CellPlace, Line, Outline, Page, Point, Region, Table, TableCell
from dsocr.formats.page import page_document
from dsocr.formats.xml import serialize
from hands.archive_texts import MEN, MONTHS, VILLAGES, WOMEN, Choices
from hands.cursive import can_write

Floats = NDArray[np.float32]

RULINGS = ("full", "columns", "none")
PITCH = 34
"""Pixels between the baselines of a cell."""
X_HEIGHT = 10.0
PRINTED = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSerif.ttf")


@dataclass(frozen=True)
class Look:
    """How a page is made; `opening` is "", "spread" (one table over two pages) or "repeated" (a table on each)."""

    kind: str
    ruling: str
    rows: int = 12
    headed: bool = True
    printed: bool = True
    faded: float = 1.0
    broken: float = 0.0
    skew: float = 0.0
    bow: float = 0.0
    guides: bool = False
    spans: bool = True
    titled: bool = True
    opening: str = ""


@dataclass(frozen=True)
class Book:
    """A kind of register: headings with the width of their columns, headings over some, and how a row is filled."""

    headings: Sequence[tuple[str, float]]
    groups: Sequence[tuple[int, int, str]]
    title: str
    row: Callable[["Texts", int], list[list[str]]]


class Texts(Choices):
    """The entries that clerks write."""

    def figure(self, least: int, most: int) -> str:
        """Return a number in figures."""
        return str(self.number(least, most))

    def maybe(self, text: str, share: float) -> list[str]:
        """The text as a line; nothing in a share of the cases."""
        return [] if self.rng.random() < share else [text]

    def birth(self, number: int) -> list[list[str]]:
        """A birth: number, days, name, parents and godparents."""
        day = int(self.rng.integers(1, 26))
        parents = [f"{self.choice(['дер.', 'села', 'хут.'])} {self.choice(VILLAGES)}"]
        parents += [f"кр. {self.choice(MEN)} {self.surname()}", f"и жена его {self.choice(WOMEN)}", "оба православные"]
        godparents = [f"кр. {self.choice(MEN)} {self.surname()}", f"и дѣвица {self.choice(WOMEN)}"]
        name = self.choice(MEN if self.rng.random() < 0.5 else WOMEN)
        count = int(self.rng.integers(2, 5))
        return [[str(number)], [str(day)], [str(day + 2)], [name], parents[:count], godparents[: min(count, 2)]]

    def soul(self, number: int) -> list[list[str]]:
        """A man of a revision list."""
        left = f"умеръ {self.figure(1811, 1815)}" if self.rng.random() < 0.4 else f"въ рекр. {self.figure(1811, 1815)}"
        name = [f"{self.choice(MEN)} {self.surname()}"]
        if self.rng.random() < 0.25:
            name.append(f"сынъ {self.choice(MEN)}")
        known = self.figure(1, 70)
        return [[str(number)], name, [known], self.maybe(left, 0.6), self.maybe(str(int(known) + 5), 0.2)]

    def confessor(self, number: int) -> list[list[str]]:
        """A person of a confession register."""
        is_man = bool(self.rng.random() < 0.5)
        name, age = self.choice(MEN if is_man else WOMEN), self.figure(1, 80)
        who = self.choice(["дворовый", "жена его", "сынъ", "дочь", "вдова", "солдатка"])
        numbers = [[str(number)], []] if is_man else [[], [str(number)]]
        ages = [[age], []] if is_man else [[], [age]]
        return [self.maybe(self.figure(1, 60), 0.7), *numbers, [f"{who} {name}"], *ages, self.maybe("былъ", 0.3)]

    def account(self, number: int) -> list[list[str]]:
        """A payment of a ledger."""
        goods, unit = GOODS[int(self.rng.integers(len(GOODS)))]
        what = [f"{self.choice(['отъ', 'у'])} купца {self.surname()}", f"за {self.figure(2, 40)} {unit} {goods}"]
        day = f"{self.figure(1, 28)} {self.choice(MONTHS)}"
        lines = what[: int(self.rng.integers(1, 3))]
        return [[str(number)], [day], lines, [self.figure(1, 900)], self.maybe(self.figure(1, 99), 0.2)]

    def soldier(self, number: int) -> list[list[str]]:
        """A name of a roll."""
        name = [f"{self.surname()} {self.choice(MEN)}"]
        note = self.maybe(self.choice(["годенъ", "отсрочка", "боленъ"]), 0.4)
        return [[str(number)], name, [self.choice(["рядовой", "писарь", "ратникъ"])], [self.choice(VILLAGES)], note]


BOOKS = {
    "births": Book(
        [("№", 0.5), ("рожденія", 0.8), ("крещенія", 0.8), ("Имена", 1.3), ("Родители", 2.4), ("Воспріемники", 2.2)],
        [(1, 2, "Мѣсяцъ и день")],
        "Часть первая. О родившихся",
        Texts.birth,
    ),
    "revision": Book(
        [("№", 0.5), ("Мужескій полъ", 2.4), ("прежде", 0.9), ("выбыло", 1.6), ("нынѣ", 0.9)],
        [(2, 3, "Лѣта")],
        "Ревизская сказка",
        Texts.soul,
    ),
    "confession": Book(
        [("дворъ", 0.7), ("муж.", 0.6), ("жен.", 0.6), ("Имена", 2.4), ("муж.", 0.6), ("жен.", 0.6), ("Былъ", 0.9)],
        [(1, 2, "Число"), (4, 2, "Лѣта")],
        "Исповѣдная роспись",
        Texts.confessor,
    ),
    "ledger": Book(
        [("№", 0.5), ("Число", 1.3), ("Отъ кого и за что", 3.0), ("Рубли", 0.9), ("Коп.", 0.7)],
        [(3, 2, "Сумма")],
        "Приходъ",
        Texts.account,
    ),
    "roll": Book(
        [("№", 0.5), ("Фамилія и имя", 2.2), ("Званіе", 1.2), ("Откуда", 1.6), ("Отмѣтки", 1.2)],
        [],
        "Именной списокъ",
        Texts.soldier,
    ),
}


@dataclass(frozen=True)
class Cell:
    """A cell in pixels before the page is bent and turned."""

    row: int
    column: int
    rows: int
    columns: int
    box: tuple[int, int, int, int]
    texts: Sequence[str]
    is_heading: bool = False


@dataclass
class Canvas:
    """A page to draw on: ink and rulings as shares of the paper's light, and the lines written so far."""

    penman: Penman
    rng: np.random.Generator
    ink: Floats
    rulings: Floats
    lines: list[Line] = field(default_factory=list)

    def write(
        self,
        text: str,
        left: int,
        right: int,
        baseline: int,
        region: Region,
        *,
        printed: bool = False,
        centred: bool = False,
    ) -> None:
        """Write a text between two columns of pixels, narrower if it has no room."""
        mask, base = self._print(text) if printed else self._pen(text)
        if mask.shape[1] > right - left:
            mask = np.asarray(Image.fromarray(mask).resize((max(right - left, 8), mask.shape[0])))
        slack = right - left - mask.shape[1]
        share = 0.5 if printed else self.rng.uniform(0.45, 0.55) if centred else self.rng.uniform(0, 0.35)
        x = left + int(slack * share)
        y = baseline - base
        part = self.ink[max(y, 0) : y + len(mask), x : x + mask.shape[1]]
        np.maximum(part, mask[max(-y, 0) : max(-y, 0) + len(part), : part.shape[1]], out=part)
        end, top, bottom = x + mask.shape[1], round(baseline - 1.7 * X_HEIGHT), round(baseline + 0.8 * X_HEIGHT)
        polygon = ((x, top), (end, top), (end, bottom), (x, bottom))
        outline = Outline.of_polygon(polygon, ((x, baseline), ((x + end) // 2, baseline), (end, baseline)))
        self.lines.append(Line(text, "", outline, region, id=f"l{len(self.lines) + 1}"))

    def _pen(self, text: str) -> tuple[Floats, int]:
        style = replace(self.penman.style, x_height=X_HEIGHT, tilt=0.0, pen=max(self.penman.style.pen, 0.1))
        written = self.penman.write(text, style, self.rng)
        columns = np.flatnonzero(written.ink.max(0) > 0.2)
        return written.ink[:, columns[0] : columns[-1] + 1], written.baseline

    def _print(self, text: str) -> tuple[Floats, int]:
        font = ImageFont.truetype(str(PRINTED), 17)
        left, _, right, _ = font.getbbox(text)
        image = Image.new("L", (int(right - left) + 2, 30), 0)
        ImageDraw.Draw(image).text((-left, 22), text, 255, font, anchor="ls")
        return np.asarray(image, dtype=np.float32) / np.float32(255), 22

    def rule(self, start: Point, end: Point, look: Look, strength: float = 1.0) -> None:
        """Draw a ruling, a little unsteady, with the gaps of a broken one."""
        (x0, y0), (x1, y1) = start, end
        length = max(abs(x1 - x0), abs(y1 - y0)) + 1
        across = np.round(np.linspace(x0, x1, length) + (self._wobble(length) if x0 == x1 else 0)).astype(int)
        down = np.round(np.linspace(y0, y1, length) + (self._wobble(length) if y0 == y1 else 0)).astype(int)
        shown = np.ones(length, dtype=bool)
        while look.broken and (~shown).mean() < look.broken:
            begin = int(self.rng.integers(length))
            shown[begin : begin + int(self.rng.integers(6, 90))] = False
        thickness = int(self.rng.integers(1, 4))
        for offset in range(thickness):
            rows = np.clip(down + (offset if y0 == y1 else 0), 0, self.rulings.shape[0] - 1)[shown]
            columns = np.clip(across + (offset if x0 == x1 else 0), 0, self.rulings.shape[1] - 1)[shown]
            self.rulings[rows, columns] = np.maximum(self.rulings[rows, columns], strength * look.faded)

    def _wobble(self, length: int) -> NDArray[np.float64]:
        knots = self.rng.normal(0, 0.8, length // 200 + 2)
        return np.interp(np.linspace(0, len(knots) - 1, length), np.arange(len(knots)), knots)


def draw_register(look: Look, seed: int) -> tuple[Image.Image, Page]:
    """Return a page, and what it shows: its lines, and tables with their cells."""
    rng = np.random.default_rng((1858, seed))
    texts, book = Texts(rng), BOOKS[look.kind]
    per_page = 1 if look.opening == "" else 2
    width = 1400 * per_page
    repeats = 2 if look.opening == "repeated" else 1
    plans = [_plan(look, book, texts, rng, *span) for span in _spans(look, width, repeats)]
    height = max(cell.box[3] for plan in plans for cell in plan) + int(rng.integers(60, 140))
    canvas = Canvas(
        Penman(int(rng.integers(1, 400))),
        rng,
        np.zeros((height, width), dtype=np.float32),
        np.zeros((height, width), dtype=np.float32),
    )
    if look.titled:
        canvas.write(book.title, 500, 1000, 78, Region("title"), printed=look.printed)
        canvas.write(texts.figure(1, 300), width - 120, width - 40, 60, Region("number"))
    tables = []
    for number, plan in enumerate(plans):
        _fill(canvas, plan, look, number)
        tables.append(_table(plan, number))
    return _finish(canvas, tables, look, seed)


def _spans(look: Look, width: int, repeats: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield the left and right edge of each table, and where the gutter is that it crosses."""
    for place in range(repeats):
        left, right = place * width // repeats + 70, (place + 1) * width // repeats - 70
        yield left, right, width // 2 if look.opening == "spread" else None


def _plan(
    look: Look, book: Book, texts: Texts, rng: np.random.Generator, left: int, right: int, gutter: int | None
) -> list[Cell]:
    """Return the cells of a table."""
    edges = _edges(book, left, right, gutter)
    count, top, row = len(book.headings), 120, 0
    cells: list[Cell] = []

    def add(column: int, columns: int, rows: int, bottom: int, lines: Sequence[str], *, heading: bool = False) -> None:
        box = (edges[column][0], top, edges[column + columns - 1][1], bottom)
        cells.append(Cell(row, column, rows, columns, box, lines, heading))

    if look.headed:
        groups = {start: (span, text) for start, span, text in book.groups} if look.spans else {}
        grouped = {start + place for start, (span, _) in groups.items() for place in range(span)}
        middle, bottom = top + PITCH + 8, top + (2 if groups else 1) * (PITCH + 8)
        for column, (heading, _) in enumerate(book.headings):
            if column not in grouped:
                add(column, 1, 2 if groups else 1, bottom, [heading], heading=True)
            elif column in groups:
                add(column, groups[column][0], 1, middle, [groups[column][1]], heading=True)
        if groups:
            top, row = middle, 1
            for column in sorted(grouped):
                add(column, 1, 1, bottom, [book.headings[column][0]], heading=True)
        top, row = bottom, row + 1
    section = int(rng.integers(2, max(look.rows - 1, 3))) if look.spans and rng.random() < 0.6 else -1
    for number in range(look.rows):
        if number == section:
            add(0, count, 1, top + PITCH + 12, [f"{texts.choice(['дер.', 'село', 'мѣсяцъ'])} {texts.choice(VILLAGES)}"])
            top, row = top + PITCH + 12, row + 1
        filled = book.row(texts, int(number + 1))
        bottom = top + max(map(len, filled)) * PITCH + 12
        for column, lines in enumerate(filled):
            add(column, 1, 1, bottom, lines)
        top, row = bottom, row + 1
    if look.kind == "ledger" and look.spans:
        add(0, 3, 1, top + PITCH + 12, ["Итого"])
        bottom = top + PITCH + 12
        for column in (3, 4):
            add(column, 1, 1, bottom, [texts.figure(10, 99)])
    return cells


def _edges(book: Book, left: int, right: int, gutter: int | None) -> list[tuple[int, int]]:
    """Return the left and right edge of each column; none crosses the gutter."""
    weights = np.array([weight for _, weight in book.headings])
    if gutter is None:
        places = np.round(left + np.concatenate([[0], np.cumsum(weights)]) / weights.sum() * (right - left)).astype(int)
        return [(int(begin), int(end)) for begin, end in pairwise(places)]
    half = int(np.argmin(np.abs(np.cumsum(weights) / weights.sum() - 0.5))) + 1
    sides = (
        (Book(book.headings[:half], [], "", book.row), left, gutter - 60),
        (
            Book(book.headings[half:], [], "", book.row),
            gutter + 60,
            right,
        ),
    )
    return [edge for side, begin, end in sides for edge in _edges(side, begin, end, None)]


def _fill(canvas: Canvas, plan: Sequence[Cell], look: Look, number: int) -> None:
    """Write the texts of cells, and draw the rulings between them."""
    for cell in plan:
        left, top, right, bottom = cell.box
        region = Region(_cell_id(number, cell), _quad(cell.box))
        printed = cell.is_heading and look.printed
        for place, text in enumerate(text for text in cell.texts if printed or can_write(text)):
            baseline = top + 6 + round((place + 0.72) * PITCH)
            if cell.is_heading:
                baseline = (top + bottom) // 2 + 8
            centred = cell.columns > 2 and not cell.is_heading
            canvas.write(text, left + 10, right - 10, baseline, region, printed=printed, centred=centred)
        if look.ruling == "none":
            continue
        canvas.rule((left, top), (left, bottom), look)
        canvas.rule((right, top), (right, bottom), look)
        if look.ruling == "full" or cell.is_heading or top == min(other.box[1] for other in plan):
            canvas.rule((left, top), (right, top), look)
        if look.ruling == "full" or cell.is_heading or bottom == max(other.box[3] for other in plan):
            canvas.rule((left, bottom), (right, bottom), look)
        if look.guides and not cell.is_heading:
            for row in range(top, bottom, PITCH):
                canvas.rule((left, row), (right, row), replace(look, broken=0), 0.12)


def _cell_id(number: int, cell: Cell) -> str:
    return f"t{number + 1}_{cell.row}_{cell.column}"


def _quad(box: tuple[int, int, int, int]) -> Outline:
    left, top, right, bottom = box
    return Outline.of_polygon(((left, top), (left, bottom), (right, bottom), (right, top)))


def _table(plan: Sequence[Cell], number: int) -> Table:
    cells = tuple(
        TableCell(
            _cell_id(number, cell),
            _quad(cell.box),
            CellPlace(cell.row, cell.column, cell.rows, cell.columns, cell.is_heading),
        )
        for cell in plan
    )
    left, top = (min(cell.box[side] for cell in plan) for side in (0, 1))
    right, bottom = (max(cell.box[side] for cell in plan) for side in (2, 3))
    return Table(f"t{number + 1}", _quad((left, top, right, bottom)), cells)


def _finish(canvas: Canvas, tables: Sequence[Table], look: Look, seed: int) -> tuple[Image.Image, Page]:
    """Put ink on paper, bend it and turn it, and all that is known with it."""
    height, width = canvas.ink.shape
    paper, darkness = DrawnPaper().draw(canvas.rng, height, width)
    if look.opening:
        distance = np.abs(np.arange(width) - width / 2)
        paper = paper * (1 - 0.45 * np.exp(-((distance / 40) ** 2))).astype(np.float32)
    grey = paper * (1 - canvas.rulings * np.float32(0.65)) * (1 - canvas.ink * np.float32(1 - darkness))
    columns = np.arange(width)
    bend = np.round(look.bow * np.sin(np.pi * columns / width)).astype(int)
    rows = np.clip(np.arange(height)[:, None] - bend, 0, height - 1)
    grey = np.take_along_axis(grey, rows, axis=0)
    grey = grey + canvas.rng.normal(0, 3, grey.shape)
    upright = Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))
    edge = int(np.median(grey[:20]))
    image = upright.rotate(-look.skew, Image.Resampling.BICUBIC, expand=True, fillcolor=edge)
    angle = np.radians(look.skew)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def placed(points: Sequence[Point]) -> tuple[Point, ...]:
        bent = np.array([(x, y + bend[min(max(x, 0), width - 1)]) for x, y in points], dtype=float)
        moved = (bent - (width / 2, height / 2)) @ turn.T + (image.width / 2, image.height / 2)
        limits = (image.width - 1, image.height - 1)
        return tuple((int(x), int(y)) for x, y in np.clip(moved.round(), 0, limits).astype(int))

    def outline_of(outline: Outline) -> Outline:
        return Outline.of_polygon(placed(outline.polygon), placed(outline.baseline) if outline.baseline else ())

    def moved_table(table: Table) -> Table:
        cells = tuple(replace(cell, outline=outline_of(cell.outline)) for cell in table.cells if cell.outline)
        assert table.outline
        return replace(table, outline=outline_of(table.outline), cells=cells)

    lines = [
        replace(
            line,
            outline=line.outline and outline_of(line.outline),
            region=line.region
            and replace(line.region, outline=line.region.outline and outline_of(line.region.outline)),
        )
        for line in canvas.lines
    ]
    name = f"register-{seed:03d}"
    moved = tuple(map(moved_table, tables))
    return image, Page(Path(f"{name}.jpg"), name, name, tuple(lines), size=image.size, tables=moved)


def random_look(seed: int, *, skew: float | None = None, ruling: str | None = None) -> Look:
    """Return the look of a page by its number; kinds and rulings take turns."""
    rng = np.random.default_rng((1836, seed))
    kinds = list(BOOKS)
    look = Look(
        kind=kinds[seed % len(kinds)],
        ruling=RULINGS[seed % 7 % 3],
        rows=int(rng.integers(7, 16)),
        headed=bool(rng.random() < 0.85),
        printed=bool(rng.random() < 0.6),
        faded=float(rng.choice([1.0, rng.uniform(0.3, 0.6)], p=[0.6, 0.4])),
        broken=float(rng.choice([0.0, rng.uniform(0.1, 0.4)], p=[0.6, 0.4])),
        skew=float(rng.uniform(-3, 3)),
        bow=float(rng.choice([0.0, rng.uniform(-12, 12)])),
        guides=bool(rng.random() < 0.2),
        titled=bool(rng.random() < 0.7),
        opening=str(rng.choice(["", "spread", "repeated"], p=[0.7, 0.2, 0.1])),
    )
    return replace(
        look, skew=look.skew if skew is None else skew * (1 if seed % 2 else -1), ruling=ruling or look.ruling
    )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="number of the first page")
    parser.add_argument("--skew", type=float, help="degrees, to the left and right by turns; random up to 3 otherwise")
    parser.add_argument("--ruling", choices=RULINGS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seed, options.seed + options.count):
        image, page = draw_register(random_look(seed, skew=options.skew, ruling=options.ruling), seed)
        image.save(options.out / page.image, quality=80)
        (options.out / f"{page.name}.xml").write_bytes(serialize(page_document(page)[0]))


if __name__ == "__main__":
    main()
