"""Numbers that are found when the narrow columns of a table are enlarged."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy.ndimage import minimum_filter

from dsocr.document import Box, Line, Outline
from dsocr.layout import choose_detector, choose_segmenter, text_detector
from dsocr.registers import find_lines_of_tables, find_tables

COLUMNS = [50, 110, 170, 850, 950]
"""Of numbers, days, texts and sums."""
TOPS = list(range(120, 1000, 60))

Sheets = list[tuple[Image.Image, int]]


def outline(left: int, top: int, right: int) -> Outline:
    """A line of writing 20 pixels high."""
    return Outline.of_polygon(
        ((left, top), (right, top), (right, top + 20), (left, top + 20)), ((left, top + 15), (right, top + 15))
    )


def entry(top: int) -> list[Outline]:
    return [outline(65, top, 95), outline(125, top, 155), outline(200, top, 800), outline(870, top, 930)]


def draw_page(outlines: list[Outline]) -> Image.Image:
    page = Image.new("RGB", (1000, 1100), (225, 220, 200))
    pen = ImageDraw.Draw(page)
    for x in COLUMNS:
        pen.line((x, 100, x, 1050), fill=(60, 60, 60), width=2)
    for y in (100, 1050):
        pen.line((COLUMNS[0], y, COLUMNS[-1], y), fill=(60, 60, 60), width=2)
    for line in outlines:
        pen.rectangle(line.box, fill=(20, 20, 40))
    return page


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> Sheets:
    """What the detector gets to see, and how large; it finds what is dark and thicker than a ruling."""
    seen: Sheets = []

    def detect_text(sheet: Image.Image, detector: object = None, side: int = 0) -> object:
        seen.append((sheet, side))
        grey = np.asarray(sheet.convert("L"))
        return (minimum_filter(grey < 100, size=9) * 0.9).astype(np.float32)

    monkeypatch.setattr(text_detector, "detect_text", detect_text)
    return seen


def complete(page: Image.Image, outlines: list[Outline]) -> list[Outline]:
    lines = [Line("", f"p#{number}", outline, index=number) for number, outline in enumerate(outlines)]
    found, _ = find_tables(page, lines, detect=choose_detector("ppocr"))
    return [line.outline for line in found if line.outline]


def boxes(outlines: list[Outline]) -> list[Box]:
    return sorted(line.box for line in outlines)


def is_near(outline: Outline, other: Outline) -> bool:
    """Whether two outlines have their middle at the same place, but for some pixels."""
    (x, y), (other_x, other_y) = (
        ((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in (outline.box, other.box)
    )
    return math.hypot(x - other_x, y - other_y) < 6


@pytest.mark.parametrize("angle", [0, 2, -2])
def test_numbers_that_were_not_found_are_added_where_they_are(angle: int, sheets: Sheets) -> None:
    lost = [line for top in TOPS[3:8] for line in entry(top)[:2]]
    lines = [line for top in TOPS for line in entry(top)]
    turn = np.radians(angle)
    sine, cosine = np.sin(turn), np.cos(turn)

    def turned(points: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """Points where `Image.rotate` has them."""
        around = np.array(points) - (500, 550)
        back = around @ np.array([[cosine, -sine], [sine, cosine]]) + (500, 550)
        return tuple((int(x), int(y)) for x, y in back.round())

    def on_page(line: Outline) -> Outline:
        return Outline.of_polygon(turned(line.polygon), turned(line.baseline))

    page = draw_page(lines).rotate(angle, Image.Resampling.BICUBIC, fillcolor=(225, 220, 200))
    known = [on_page(line) for line in lines if line not in lost]
    completed = complete(page, known)
    assert len(completed) == len(lines)
    assert set(known) <= set(completed)
    assert all(any(is_near(on_page(line), other) for other in completed) for line in lost)
    ((sheet, side),) = sheets
    assert sheet.height == pytest.approx(950 * 1680 / 1100 + 48, abs=10), "the page is enlarged"
    assert sheet.width < 1680 / 2, "texts are in a wide column"
    assert side == max(sheet.size)


def test_a_line_over_two_columns_is_cut_and_one_over_two_rows_replaced(sheets: Sheets) -> None:
    lines = [line for top in TOPS for line in entry(top)]
    close = [outline(65, TOPS[5] + 24, 95), outline(125, TOPS[5] + 24, 155)]
    joined = [outline(65, TOPS[2], 155)]
    tall = Outline.of_polygon(
        ((60, TOPS[5] - 4), (100, TOPS[5] - 4), (100, TOPS[5] + 48), (60, TOPS[5] + 48)),
        ((65, TOPS[5] + 30), (95, TOPS[5] + 30)),
    )
    known = [line for line in lines if line not in (*entry(TOPS[2])[:2], entry(TOPS[5])[0])]
    completed = complete(draw_page([*lines, *close]), [*known, *joined, tall])
    assert tall not in completed
    assert len(completed) == len(lines) + len(close)
    assert all(any(is_near(line, other) for other in completed) for line in (entry(TOPS[5])[0], *close))
    (left, right) = sorted((other for other in completed if other.box[1] == TOPS[2]), key=lambda line: line.box[0])[:2]
    assert (left.box[2], right.box[0]) == pytest.approx((110, 110), abs=4)


def test_a_page_without_a_table_is_not_looked_at_again(sheets: Sheets) -> None:
    prose = [outline(100, top, 900) for top in TOPS]
    page = Image.new("L", (1000, 1100), 220)
    assert complete(page, prose) == prose
    assert not sheets


def test_only_who_asks_for_tables_has_their_columns_looked_at(tmp_path: Path, sheets: Sheets) -> None:
    draw_page([line for top in TOPS for line in entry(top)]).save(tmp_path / "page.png")
    content = (tmp_path / "page.png").read_bytes()
    find_lines, detect = choose_segmenter("ppocr"), choose_detector("ppocr")
    plain = find_lines(content, "page")
    assert len(sheets) == 1
    more = find_lines_of_tables(find_lines, detect, content, "page")
    assert len(sheets) == 3
    assert len(more) == len(plain) == 4 * len(TOPS)
    assert [line.index for line in more] == list(range(len(more)))


def test_a_sheet_of_many_columns_is_not_seen_larger_than_four_pages(sheets: Sheets) -> None:
    columns = range(20, 981, 24)
    tops = range(40, 960, 180)
    page = Image.new("L", (1000, 1000), 225)
    pen = ImageDraw.Draw(page)
    for x in columns:
        pen.line((x, 20, x, 980), fill=60, width=2)
    lines = [outline(x + 4, top, x + 20) for top in tops for x in list(columns)[:-1]]
    completed = complete(page, lines)
    ((sheet, side),) = sheets
    assert sheet.width * sheet.height > 4 * 960**2
    assert (side / max(sheet.size)) ** 2 * sheet.width * sheet.height == pytest.approx(4 * 960**2, rel=0.01)
    assert set(completed) == set(lines)
