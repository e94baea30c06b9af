"""Tables on pages: columns and rows by rulings and by lines, cells that span, and no tables where there are none."""

from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from draw_registers import Canvas, Look, draw_register
from dsocr.document import CellPlace, Line, Outline, Page, Region, Table
from dsocr.formats import parse_xml_page
from dsocr.formats.registers import mark_headings
from dsocr.registers import find_tables

REGISTERS = Path(__file__).parents[1] / "real_data" / "registers"
ROLL = Look("roll", "full", rows=6, titled=False, spans=False)
FREE = Look("births", "none", rows=6, titled=False, spans=False)


@cache
def drawn(look: Look, seed: int) -> tuple[Image.Image, Page]:
    """A register in print, which is drawn in a tenth of the time that a pen takes; the real ones are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Canvas, "_pen", Canvas._print)
        return draw_register(look, seed)


def texts_of(lines: Sequence[Line], table: Table) -> dict[tuple[int, ...], list[str]]:
    """The texts of each cell by its row, column and spans."""
    places = {cell.id: astuple(cell.place)[:4] for cell in table.cells}
    texts: dict[tuple[int, ...], list[str]] = {}
    for line in lines:
        if line.region and line.region.id in places:
            texts.setdefault(places[line.region.id], []).append(line.text)
    return texts


@pytest.mark.parametrize(
    ("look", "seed"),
    [
        pytest.param(replace(ROLL, skew=3), 3, id="ruled, turned to the right"),
        pytest.param(replace(ROLL, skew=-3, faded=0.4, broken=0.3), 4, id="faded and broken, turned to the left"),
        pytest.param(
            replace(ROLL, ruling="columns", skew=2, guides=True), 5, id="rulings between columns, lines to write on"
        ),
        pytest.param(replace(ROLL, ruling="none", skew=-2, titled=True), 6, id="no rulings, a title"),
        pytest.param(
            Look("births", "columns", rows=5, titled=False, skew=1, spans=False), 8, id="entries of several lines"
        ),
        pytest.param(Look("births", "full", rows=4, skew=-1, opening="spread", headed=False), 10, id="over two pages"),
        pytest.param(replace(FREE, opening="spread", skew=1), 2, id="names now farther left and now farther right"),
        pytest.param(replace(FREE, spans=True, rows=5, skew=2), 1, id="a heading over two columns"),
        pytest.param(Look("revision", "none", rows=7, titled=False), 1, id="a heading over three columns"),
        pytest.param(Look("confession", "none", rows=9, skew=-2), 1, id="numbers of men and of women"),
        pytest.param(Look("confession", "none", rows=9, skew=-2), 2, id="a village in the middle"),
        pytest.param(Look("births", "full", rows=4, broken=0.35, titled=False), 1, id="broken under a heading"),
        pytest.param(
            Look("ledger", "columns", rows=6, broken=0.35, titled=False, headed=False, spans=False),
            2,
            id="interrupted beside the second line of an entry",
        ),
        pytest.param(
            Look("roll", "full", rows=5, titled=False, headed=False), 1, id="letters where a ruling is interrupted"
        ),
    ],
)
def test_every_line_is_in_its_cell(look: Look, seed: int) -> None:
    image, page = drawn(look, seed)
    lines, (table,) = find_tables(image, [replace(line, region=Region("r")) for line in page.lines])
    assert texts_of(lines, table) == texts_of(page.lines, page.tables[0])


@pytest.mark.parametrize(("skew", "seed"), [(-3, 1), (-2, 2)])
def test_lines_that_are_level_show_the_skew_by_their_places(skew: int, seed: int) -> None:
    """The baselines of a detector are level where lines are short."""
    image, page = drawn(replace(ROLL, ruling="none", skew=skew), seed)
    level = []
    for number, line in enumerate(page.lines):
        assert line.outline
        (left, first), *_, (right, last) = line.outline.baseline
        level.append(replace(bar(left, (first + last) // 2 - 15, right, number), text=line.text))
    _, (table,) = find_tables(image, level)
    assert table.size == page.tables[0].size


def test_headings_over_several_columns_span() -> None:
    image, page = drawn(Look("revision", "full", rows=6, titled=False), 5)
    lines, (table,) = find_tables(image, page.lines)
    assert texts_of(lines, table) == texts_of(page.lines, page.tables[0])
    marked = mark_headings(table, lines)
    assert {cell.place.row for cell in marked.cells if cell.place.is_heading} == {0, 1}
    assert any(cell.place.column_span == 3 for cell in marked.cells), "the heading over three columns"


def test_a_page_with_a_table_on_each_side_has_two() -> None:
    image, page = drawn(Look("roll", "full", rows=8, spans=False, opening="repeated"), 7)
    lines, tables = find_tables(image, page.lines)
    for table, true in zip(tables, page.tables, strict=True):
        assert texts_of(lines, table) == texts_of(page.lines, true)


@pytest.mark.parametrize("shift", [-45, 45])
def test_a_frame_beside_the_table_is_no_column(shift: int) -> None:
    """A register of a notary has a thick frame, and the edge of its paper looks like a ruling."""
    image, page = drawn(ROLL, 3)
    framed = image.copy()
    table = page.tables[0].outline
    assert table
    left, top, right, bottom = table.box
    side = left if shift < 0 else right
    ImageDraw.Draw(framed).line([(side + shift, top), (side + shift, bottom)], fill=40, width=3)
    lines, (found,) = find_tables(framed, page.lines)
    assert texts_of(lines, found) == texts_of(page.lines, page.tables[0])
    assert found.size == page.tables[0].size


def bar(left: int, top: int, right: int, index: int, height: int = 20) -> Line:
    """A line of writing."""
    bottom, base = top + height, top + 3 * height // 4
    outline = Outline.of_polygon(
        ((left, top), (right, top), (right, bottom), (left, bottom)), ((left, base), (right, base))
    )
    return Line(f"{index}", f"p#{index}", outline, Region("r"), index)


def ruled_page(columns: list[int], rows: list[int], size: tuple[int, int] = (900, 700)) -> Image.Image:
    image = Image.new("L", size, 220)
    pen = ImageDraw.Draw(image)
    for x in columns:
        pen.line((x, rows[0], x, rows[-1]), fill=60, width=2)
    for y in rows:
        pen.line((columns[0], y, columns[-1], y), fill=60, width=2)
    return image


def rows_of(image: Image.Image, lines: list[Line]) -> list[set[int]]:
    """The numbers of the lines in each row of a page's only table."""
    found, (table,) = find_tables(image, lines)
    rows = {cell.id: cell.place.row for cell in table.cells}
    numbers: list[set[int]] = [set() for _ in range(table.size[0])]
    for line in found:
        assert line.region is not None
        numbers[rows[line.region.id]].add(int(line.text))
    return numbers


def each(count: int) -> list[set[int]]:
    """Rows that have the lines with their own number."""
    return [{row} for row in range(count)]


def test_rows_bend_as_their_rulings_do() -> None:
    """A page that was not pressed flat: at its sides rows are lower by the height of a row."""
    columns, tops = [50, 250, 450, 850], list(range(100, 389, 24))

    def bent(x: float) -> int:
        return round(30 * ((x - 450) / 400) ** 2)

    image = Image.new("L", (900, 600), 220)
    pen = ImageDraw.Draw(image)
    for x in columns:
        pen.line((x, tops[0] + bent(x), x, tops[-1] + bent(x)), fill=60, width=2)
    for top in tops:
        pen.line([(x, top + bent(x)) for x in range(50, 851, 5)], fill=60, width=2)
    spans = [(260, 400), (470, 600), (760, 845)]
    lines = [
        bar(left, top + 2 + bent((left + right) / 2), right, row)
        for row, top in enumerate(tops[:-1])
        for left, right in spans
    ]
    assert rows_of(image, lines) == each(len(tops) - 1)


def test_faint_rulings_inside_an_entry_are_lines_to_write_on() -> None:
    columns, tops = [50, 150, 500, 850], list(range(100, 601, 100))
    image = ruled_page(columns, tops)
    pen = ImageDraw.Draw(image)
    for top in tops[:-1]:
        for below in (33, 66):
            pen.line((50, top + below, 850, top + below), fill=175, width=2)
    lines = []
    for row, top in enumerate(tops[:-1]):
        lines.append(bar(60, top + 8, 90, row))
        lines += [bar(left, top + 8 + below, left + 300, row) for left in (160, 510) for below in (0, 33, 66)]
    assert rows_of(image, lines) == each(len(tops) - 1)


def test_a_line_over_two_cells_is_cut_at_the_ruling_and_not_in_files_that_are_filled() -> None:
    rows = list(range(100, 601, 50))
    image = ruled_page([50, 250, 450, 850], rows)
    starts = [(60, 180), (260, 400), (470, 700)]
    lines = [bar(left, y + 15, right, 0) for y in rows[:-1] for left, right in starts]
    lines[0:2] = [bar(60, rows[0] + 15, 400, 0)]  # two cells joined by the detector
    lines = [replace(line, index=n, where=f"p#{n}") for n, line in enumerate(lines)]
    cut, (table,) = find_tables(image, lines)
    kept, _ = find_tables(image, lines, split=False)
    assert len(cut) == len(lines) + 1
    assert [line.index for line in kept] == [line.index for line in lines]
    first, second = cut[:2]
    assert first.outline
    assert second.outline
    assert abs(first.outline.box[2] - 250) < 5
    assert abs(second.outline.box[0] - 250) < 5
    assert (first.region, second.region) == tuple(Region(cell.id, cell.outline) for cell in table.cells[:2])
    assert len({line.where for line in cut}) == len(cut)
    assert [line.index for line in cut] == list(range(len(cut)))


@pytest.mark.parametrize("split", [True, False])
def test_lines_without_an_index_are_all_kept(split: bool) -> None:
    lines = [replace(line, index=None) for line in [bar(400, 20, 500, 90), *entries(TOPS, 3)]]
    found, (table,) = find_tables(RULED, lines, split=split)
    assert sorted(line.text for line in found) == sorted(line.text for line in lines)
    assert table.size == (len(TOPS), 3)


def test_a_ruling_that_half_of_the_lines_run_over_is_kept() -> None:
    """Detectors join lines over rulings."""
    rows = list(range(100, 601, 50))
    lines = []
    for number, y in enumerate(rows[:-1]):
        beside = [(60, 180), (260, 400)] if number % 2 else [(60, 400)]
        lines += [bar(left, y + 15, right, 0) for left, right in (*beside, (470, 700))]
    cut, (table,) = find_tables(ruled_page([50, 250, 450, 850], rows), lines)
    assert table.size == (len(rows) - 1, 3)
    assert len(cut) == 3 * (len(rows) - 1)


def test_the_shadow_in_a_gutter_is_no_column() -> None:
    columns, rows = [60, 200, 500, 880, 905, 1300, 1700], list(range(100, 601, 80))
    texts = [(70, 120), (210, 480), (510, 800), (915, 1290), (1310, 1600)]
    lines = [bar(left, top + 20, right, row) for row, top in enumerate(rows[:-1]) for left, right in texts]
    shadow = [bar(884, top + 20, 901, row) for row, top in enumerate(rows[:4])]
    _, (table,) = find_tables(ruled_page(columns, rows, (1800, 700)), [*lines, *shadow])
    assert table.size == (len(rows) - 1, len(texts))


@pytest.mark.parametrize(("joined", "columns"), [pytest.param(3, 4, id="numbers"), pytest.param(2, 3, id="chance")])
def test_a_narrow_column_whose_numbers_are_joined_with_the_next_is_kept(joined: int, columns: int) -> None:
    rows = list(range(100, 501, 80))
    names = [bar(70, top + 20, 280, row) for row, top in enumerate(rows[:-1])]
    sums = [bar(306 if row < joined else 335, top + 20, 590, row) for row, top in enumerate(rows[:-1])]
    notes = [bar(610, top + 20, 800, row) for row, top in enumerate(rows[:-1])]
    _, (table,) = find_tables(ruled_page([60, 300, 326, 600, 840], rows), [*names, *sums, *notes])
    assert table.size == (len(rows) - 1, columns)


def entries(tops: list[int], lines: int, *, left: int = 60) -> list[Line]:
    """Entries of a register: a number, some words, and a text of so many lines, which has the entry's number."""
    made = []
    for row, top in enumerate(tops):
        made += [bar(left, top, left + 30, row), bar(left + 100, top, left + 170, row)]
        made += [bar(left + 300, top + 24 * line, left + 700, row) for line in range(lines)]
    return made


TOPS = list(range(180, 580, 96))
RULED = ruled_page([50, 150, 350, 850], [120, 650])
"""A page of three columns without rulings between rows."""


def test_a_number_that_stands_higher_than_its_text_begins_its_row_and_no_other() -> None:
    lines = entries(TOPS, 3)
    lines[5] = bar(60, TOPS[1] - 14, 90, 1)
    assert rows_of(RULED, lines) == each(len(TOPS))


def test_a_second_line_in_a_column_of_words_begins_no_row() -> None:
    lines = entries(TOPS, 3)
    lines += [bar(160, top + 24, 220, row) for row, top in enumerate(TOPS)]
    lines += [bar(left, 130, left + 60, 90) for left in (60, 160, 500)]
    assert rows_of(ruled_page([50, 150, 350, 850], [120, 160, 650]), lines) == [{90}, *each(len(TOPS))]


def test_a_month_with_space_around_it_is_a_row() -> None:
    tops = [180, 228, 380, 428, 476]
    lines = [*entries(tops, 2), bar(500, 312, 640, 40)]
    assert rows_of(RULED, lines) == [{0}, {1}, {40}, {2}, {3}, {4}]


@pytest.mark.parametrize(("strays", "rows"), [(1, 24), (4, 28)])
def test_a_number_beside_the_next_entry_begins_no_row_if_that_is_an_exception(strays: int, rows: int) -> None:
    """Each entry has a number and a sum; from some entry on the sums are lower than their entry."""
    tops = [180 + 48 * row for row in range(24)]
    lines = entries(tops, 2)
    for row, top in enumerate(tops):
        is_low = any(row in (place, place + 1) for place in range(4, 4 + 4 * strays, 4))
        lines.append(bar(862, top + (24 if is_low and row % 4 else 48 if is_low else 0), 890, row))
        lines += [bar(160, top + 24, 230, row)] * (is_low and row % 4)  # text in most columns, as where rows begin
    image = ruled_page([50, 150, 350, 850, 900], [160, 1360], (960, 1400))
    found, (table,) = find_tables(image, lines)
    assert table.size == (rows, 4)
    assert {int(line.text) for line in found if line.region} == set(range(24))


def test_numbers_that_are_joined_over_a_ruling_begin_rows_one_by_one() -> None:
    lines = entries(TOPS, 3)
    for row, top in enumerate(TOPS):
        lines[5 * row : 5 * row + 2] = [bar(110, top, 270, row)]
        lines.insert(5 * row, bar(500, top + 24, 600, row))  # keeps the numbers of lines in order
    assert rows_of(RULED, lines) == each(len(TOPS))
    assert len(find_tables(RULED, lines)[0]) == len(lines) + len(TOPS)


DAYS = [50, 100, 150, 350, 850, 900]
"""Columns of numbers, days, kinds, texts and sums."""


def days(tops: list[int], lines: int = 2) -> list[list[Line]]:
    """Entries with a number, a day, a kind and a text of so many lines, with a sum beside the last."""
    return [
        [
            *(bar(left, top, right, row) for left, right in ((60, 90), (112, 136), (160, 230))),
            *(bar(360, top + 24 * line, 760, row) for line in range(lines)),
            bar(862, top + 24 * (lines - 1), 890, row),
        ]
        for row, top in enumerate(tops)
    ]


def rows_by_number(made: list[list[Line]]) -> list[set[int]]:
    """The entries with a line in each row."""
    return rows_of(ruled_page(DAYS, [160, 1360], (960, 1400)), [line for entry in made for line in entry])


MANY = [180 + 72 * row for row in range(12)]


def squeezed(step: int) -> list[list[Line]]:
    """Entries of a line each, the sixth so many pixels below the fifth."""
    made = days([*MANY[:5], MANY[4] + step, *MANY[6:]])
    for row in (4, 5):
        made[row] = [line for line in made[row] if line.outline and line.outline.box[1] < MANY[4] + step + 10][:4]
    return made


def test_a_day_that_stands_higher_than_its_number_is_not_that_of_the_row_above() -> None:
    made = squeezed(17)
    del made[4][1]
    made[5][1] = bar(112, MANY[4] + 14, 136, 5)
    assert rows_by_number(made) == each(12)


def test_rows_may_be_nearer_than_lines_are() -> None:
    made = squeezed(13)
    made[3][-1] = bar(862, MANY[4] - 11, 890, 3)
    assert rows_by_number(made) == each(12)


def test_a_mark_above_a_number_begins_no_row() -> None:
    made = days(MANY)
    made[6].append(bar(60, MANY[6] - 17, 84, 6))
    assert len(rows_by_number(made)) == 12


def test_a_day_beside_the_last_line_of_the_entry_above_moves_no_row() -> None:
    """Beside that line there are sums, so that it has text in more columns than where the row begins."""
    made = days(MANY, 3)
    made[6][1] = bar(112, MANY[6] - 16, 136, 6)
    made[5] += [bar(160, MANY[5] + 48, 230, 5)]
    made[6] = [made[6][0], made[6][1], *made[6][3:]]
    assert rows_by_number(made)[5:7] == [{5, 6}, {6}]  # the day is above the border


@pytest.mark.parametrize(
    ("width", "rows"), [pytest.param(30, [{40, 41}], id="a flourish"), pytest.param(120, [{40}, {41}], id="a line")]
)
def test_a_flourish_below_a_month_belongs_to_it(width: int, rows: list[set[int]]) -> None:
    tops = [180, 228, 380, 428, 476]
    lines = [*entries(tops, 2), bar(500, 312, 640, 40), bar(560, 363, 560 + width, 41)]
    assert rows_of(RULED, lines) == [{0}, {1}, *rows, {2}, {3}, {4}]


def test_a_second_day_beside_the_sum_begins_no_row() -> None:
    made = days(MANY)
    made[6].append(bar(112, MANY[6] + 24, 136, 6))
    assert rows_by_number(made) == each(12)


def test_a_second_sum_begins_no_row_where_hardly_a_column_has_text() -> None:
    made = days([180 + 96 * row for row in range(12)], 3)
    for entry in made:
        entry.append(bar(862, entry[0].outline.box[1] + 24, 890, int(entry[0].text)))  # type: ignore[union-attr]
    assert rows_by_number(made) == each(12)


def unruled(tops: list[int]) -> tuple[Image.Image, list[Line]]:
    """A page without rulings, and entries of three columns after that of their numbers."""
    lines = [
        bar(left, top, right, row)
        for row, top in enumerate(tops)
        for left, right in ((300, 420), (520, 640), (740, 800))
    ]
    return Image.new("L", (900, 1000), 220), lines


UNRULED = list(range(120, 920, 40))


def names(tops: list[int]) -> list[Line]:
    """Rows of a number, two names and a sum, for pages without rulings."""
    places = ((60, 76), (300, 400), (440, 540), (740, 800))
    return [bar(left, top, right, row) for row, top in enumerate(tops) for left, right in places]


@pytest.mark.parametrize(
    ("left", "gap", "is_row"),
    [
        pytest.param(442, 28, True, id="a village in the middle"),
        pytest.param(320, 28, False, id="the second line of a name"),
        pytest.param(442, 21, False, id="near the line above"),
    ],
)
def test_a_line_as_far_from_others_as_rows_are_is_one_in_the_middle(left: int, gap: int, is_row: bool) -> None:
    """Rows are less than a line and a half apart, so that none stands alone."""
    rows = [28 * row for row in range(8)]
    tops = [120 + (top if top <= 84 else top + 28) for top in rows]
    lines = names(tops)
    lines.append(bar(left, 204 + gap, left + 50, 90))
    assert (rows_of(Image.new("L", (900, 1000), 220), lines)[4] == {90}) is is_row


def test_many_lines_in_the_middle_are_second_lines() -> None:
    tops = [120 + 56 * row for row in range(8)]
    lines = names(tops)
    lines += [bar(442, top + 28, 492, row) for row, top in enumerate(tops)]
    assert rows_of(Image.new("L", (900, 1000), 220), lines) == each(len(tops))


@pytest.mark.parametrize(
    ("lefts", "columns"),
    [
        pytest.param((60, 80, 126, 140), 4, id="one column, set farther left and farther right"),
        pytest.param((60, 62, 160, 162), 5, id="two columns, each row in one of them, as of men and women"),
    ],
)
def test_numbers_that_are_scattered_are_one_column(lefts: Sequence[int], columns: int) -> None:
    image, lines = unruled(UNRULED)
    lines += [
        bar(left, top, left + 30, row) for row, (top, left) in enumerate(zip(UNRULED, cycle(lefts), strict=False))
    ]
    _, (table,) = find_tables(image, lines)
    assert table.size == (len(UNRULED), columns)


def test_a_line_without_a_number_above_all_numbers_is_a_title_and_no_row() -> None:
    image, lines = unruled(UNRULED)
    lines += [bar(60, top, 90, row) for row, top in enumerate(UNRULED)]
    found, (table,) = find_tables(image, [*lines, bar(310, 78, 410, 90)])
    assert table.size == (len(UNRULED), 4)
    in_table = {cell.id for cell in table.cells}
    assert [line.text for line in found if line.region and line.region.id not in in_table] == ["90"]


@pytest.mark.parametrize(("households", "columns"), [((0, 6, 13), 5), ((0, 13), 5), ((6,), 4)])
def test_a_column_with_text_in_few_rows(households: Sequence[int], columns: int) -> None:
    """Two numbers that are beside the first column are a column of their own, a single one is not."""
    image, lines = unruled(UNRULED)
    lines += [bar(200, top, 230, row) for row, top in enumerate(UNRULED)]
    lines += [bar(20 + 40 * place, UNRULED[row], 50 + 40 * place, row) for place, row in enumerate(households)]
    _, (table,) = find_tables(image, lines)
    assert table.size == (len(UNRULED), columns)


def test_notes_beside_the_frame_are_no_column_and_a_title_over_it_no_row() -> None:
    image = ruled_page([150, 250, 450, 860], [120, 160, 650])
    ImageDraw.Draw(image).line((30, 20, 30, 690), fill=190, width=2)  # the edge of the paper
    for x in (150, 250, 450, 860):
        ImageDraw.Draw(image).line((x, 60, x, 120), fill=60, width=2)  # the fold makes rulings longer than the table
    inside = [*(bar(left, 130, left + 60, 90) for left in (160, 260, 600)), *entries(TOPS, 3, left=160)]
    notes = [bar(60, top, 90, 70) for top in TOPS]
    title = [bar(200, 66, 800, 80), bar(220, 90, 780, 80)]
    found, (table,) = find_tables(image, [*title, *inside, *notes])
    in_table = {int(line.text) for line in found if line.region and line.region.id in {cell.id for cell in table.cells}}
    assert in_table == {90, *range(len(TOPS))}
    assert table.size == (len(TOPS) + 1, 3)


def test_a_heading_over_two_columns_is_above_those_of_each() -> None:
    image = ruled_page([50, 150, 350, 850], [60, 160, 650])
    ImageDraw.Draw(image).line((350, 62, 350, 100), fill=220, width=4)  # no ruling inside the upper heading
    head = [bar(62, 90, 130, 90), bar(220, 70, 500, 91), bar(180, 130, 300, 92), bar(520, 130, 700, 93)]
    found, (table,) = find_tables(image, [*head, *entries(TOPS, 3)])
    spans = [astuple(c.place)[:4] for c in table.cells if c.place.is_heading]
    assert sorted(spans) == [(0, 0, 2, 1), (0, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 1)]
    assert [line.text for line in found][:4] == ["90", "91", "92", "93"]


def test_the_end_of_a_long_line_that_runs_over_a_ruling_stays_with_it() -> None:
    rows = list(range(100, 601, 50))
    starts = [(60, 170), (180, 270), (290, 700)]
    lines = [bar(left, y + 15, right, 0) for y in rows[:-1] for left, right in starts]
    lines[2] = bar(290, rows[0] + 15, 750, 0)
    image = ruled_page([50, 175, 280, 730, 880], rows)
    found, _ = find_tables(image, [*lines, *(bar(760, y + 15, 800, 90 + y) for y in rows[2:-1])])
    assert len(found) == len(lines) + len(rows) - 3


PLACES = {
    "DAFANCH96_048MIC06480_L-0": 44,
    "DAFANCH96_048MIC06484_L-1": 40,
    "FRAN_0025_2674_L-1": 141,
    "FRAN_0025_2745_L-0": 156,
    "FRAN_0187_49914_L": 97,
    "FRAN_0187_50722_L": 95,
}
"""Cells of real registers that are in their place; `benchmarks/tables.py cells` has all ten pages."""


@pytest.mark.parametrize(
    "name", [name if number % 2 else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(PLACES)]
)
def test_cells_of_real_registers_are_in_their_place(name: str) -> None:
    page = parse_xml_page(REGISTERS / f"{name}.xml")
    with Image.open(REGISTERS / f"{name}.jpg") as image:
        lines, (table,) = find_tables(image, page.lines)
    marked = mark_headings(table, lines)

    def contents(lines: Sequence[Line], table: Table) -> dict[CellPlace, set[str]]:
        body = max(cell.place.row + 1 for cell in table.cells if cell.place.is_heading)
        places = {cell.id: replace(cell.place, row=cell.place.row - body) for cell in table.cells}
        kept: dict[CellPlace, set[str]] = {}
        for line in lines:
            if line.region and line.region.id in places:
                kept.setdefault(places[line.region.id], set()).add(line.id)
        return kept

    true, found = contents(page.lines, page.tables[0]), contents(lines, marked)
    assert sum(found.get(place) == members for place, members in true.items()) >= PLACES[name]


def prose(count: int = 20) -> list[Line]:
    rng = np.random.default_rng(3)
    return [bar(60, 40 + 30 * n, 700 + int(rng.integers(100)), n) for n in range(count)]


@pytest.mark.parametrize(
    ("image", "lines"),
    [
        pytest.param(Image.new("L", (900, 700), 220), prose(), id="prose"),
        pytest.param(ruled_page([50, 860], [30, 650]), prose(), id="prose in a frame, a table of one cell"),
        pytest.param(ruled_page([200, 860], [30, 650]), [*prose(), bar(60, 100, 180, 30)], id="a note in the margin"),
        pytest.param(
            Image.new("L", (900, 700), 220),
            [bar(60 + 420 * (n % 2), 40 + 30 * (n // 2), 440 + 420 * (n % 2), n) for n in range(40)],
            id="two columns of prose",
        ),
        pytest.param(Image.new("L", (900, 700), 220), [], id="nothing"),
        pytest.param(ruled_page([50, 300, 860], [30, 650]), prose(4), id="few lines"),
    ],
)
def test_pages_without_tables_stay_as_they_are(image: Image.Image, lines: list[Line]) -> None:
    assert find_tables(image, lines) == (lines, [])


def test_a_table_on_its_side_is_left_alone() -> None:
    image, page = drawn(replace(ROLL, skew=3), 3)
    turned = image.rotate(90, expand=True)

    def turn(points: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple((y, image.width - 1 - x) for x, y in points)

    lines = [
        replace(line, index=n, outline=Outline.of_polygon(turn(line.outline.polygon), turn(line.outline.baseline)))
        for n, line in enumerate(page.lines)
        if line.outline
    ]
    assert find_tables(turned, lines) == (lines, [])


def test_hundreds_of_lines_are_a_table() -> None:
    rows = list(range(20, 20 + 12 * 51, 12))
    lines = [
        bar(30 + 60 * column, y, 60 + 60 * column, 10 * place + column, 8)
        for place, y in enumerate(rows[:-1])
        for column in range(10)
    ]
    found, (table,) = find_tables(Image.new("L", (700, 700), 220), lines)
    assert table.size == (50, 10)
    assert len(found) == 500
