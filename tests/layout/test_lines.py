"""Lines are made from a text detector's probabilities, in reading order; the shipped one finds drawn lines."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dsocr.data.layouts import box_overlaps
from dsocr.document import Outline
from dsocr.images import encode_image
from dsocr.layout import choose_segmenter
from dsocr.layout.lines import arrange_lines, find_outlines, reading_outlines
from tests.raising import raises_code

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "and"]


def draw_page() -> tuple[Image.Image, list[tuple[float, float, float, float]]]:
    """Two columns of text on grey ruled paper, and the boxes of the lines, column by column."""
    image = Image.new("L", (1200, 500), 120)
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(34)
    for top in range(120, 500, 60):
        drawing.line((20, top, 1180, top), fill=60, width=2)
    boxes = []
    for left in (100, 660):
        for line in range(5):
            text = " ".join(WORDS[line : line + 5])
            drawing.text((left, 80 + 60 * line), text, fill=40, font=font)
            boxes.append(drawing.textbbox((left, 80 + 60 * line), text, font=font))
    return image, boxes


Bar = tuple[int, int, int]
"""First column, last column and middle row of a piece of text 8 rows high."""


def probabilities(*bars: Bar, value: float = 0.9) -> NDArray[np.float32]:
    found = np.zeros((320, 480), dtype=np.float32)
    for left, right, row in bars:
        found[row - 4 : row + 4, left:right] = value
    return found


def found_outlines(found: NDArray[np.float32]) -> list[Outline]:
    lines = arrange_lines(find_outlines(found, (480, 320)), "page")
    return [line.outline for line in lines if line.outline]


def found_bars(found: NDArray[np.float32]) -> list[Bar]:
    """The lines that are found, each as the bar that it was made from."""
    baselines = [outline.baseline for outline in found_outlines(found)]
    return [(left, right + 1, row - 4) for (left, row), *_, (right, _) in baselines]


LEFT: list[Bar] = [(20, 200, 60 + 30 * number) for number in range(5)]
MAIN: list[Bar] = [(100, 360, 60 + 30 * number) for number in range(5)]
RIGHT: list[Bar] = [(240, 460, 60 + 30 * number) for number in range(5)]


@pytest.mark.parametrize(
    ("bars", "expected"),
    [
        pytest.param([(20, 400, 100)], [(20, 400, 100)], id="one piece"),
        pytest.param([(20, 100, 100), (115, 400, 103)], [(20, 400, 100)], id="words of a line"),
        pytest.param([(20, 100, 100), (115, 400, 130)], [(20, 100, 100), (115, 400, 130)], id="two lines"),
        pytest.param([(200, 400, 98), (20, 140, 100)], [(20, 140, 100), (200, 400, 98)], id="a wide gap, rising"),
        pytest.param(RIGHT + LEFT, LEFT + RIGHT, id="two columns"),
        pytest.param([*RIGHT, *LEFT, (20, 460, 20)], [(20, 460, 20), *LEFT, *RIGHT], id="a heading above columns"),
        pytest.param([*RIGHT, *LEFT, (20, 460, 300)], [*LEFT, *RIGHT, (20, 460, 300)], id="a line below columns"),
        pytest.param([(0, 2, 10), *LEFT], LEFT, id="a speck"),
        pytest.param(
            [(10, 60, 90), (10, 60, 122), *MAIN], [*MAIN, (10, 60, 90), (10, 60, 122)], id="notes in the left margin"
        ),
        pytest.param([*MAIN, (400, 460, 92)], [*MAIN, (400, 460, 92)], id="a note in the right margin"),
        pytest.param(
            [*MAIN, *((5, 30, 60 + 30 * number) for number in range(5))],
            [*MAIN, *((5, 30, 60 + 30 * number) for number in range(5))],
            id="ends of the lines of the page beside",
        ),
        pytest.param([*MAIN, (400, 460, 20)], [(400, 460, 20), *MAIN], id="a page number"),
    ],
)
def test_lines_and_their_order(bars: list[Bar], expected: list[Bar]) -> None:
    found = found_bars(probabilities(*bars))
    assert [bar[:2] for bar in found] == [bar[:2] for bar in expected]
    assert all(abs(one[2] - other[2]) <= 3 for one, other in zip(found, expected, strict=True))


def test_a_piece_continues_the_line_at_its_height_and_not_the_nearest() -> None:
    found = probabilities((20, 100, 100), (20, 115, 109))
    found[96:108, 120:300] = 0.9
    assert sorted(bar[:2] for bar in found_bars(found)) == [(20, 115), (20, 300)]


def test_columns_are_regions() -> None:
    lines = arrange_lines(find_outlines(probabilities(*LEFT, *RIGHT), (480, 320)), "page")
    assert [line.region and line.region.id for line in lines] == ["r1"] * 5 + ["r2"] * 5


def test_a_wandering_line_is_followed() -> None:
    found = np.zeros((320, 480), dtype=np.float32)
    for column in range(20, 460):
        middle = round(100 + 0.1 * column)
        found[middle - 4 : middle + 4, column] = 0.9
    (outline,) = found_outlines(found)
    (_, first), *_, (_, last) = outline.baseline
    assert last - first == pytest.approx(44, abs=4)
    heights = [y for _, y in outline.polygon]
    assert heights[0] < heights[len(heights) // 2 - 1]


@pytest.mark.parametrize(
    ("pitch", "taller"), [pytest.param(20, False, id="close together"), pytest.param(50, True, id="far apart")]
)
def test_line_images_reach_towards_the_next_line_where_there_is_room(pitch: int, taller: bool) -> None:
    outlines = found_outlines(probabilities(*((20, 400, 60 + pitch * number) for number in range(3))))
    images = reading_outlines(outlines)
    for outline, image in zip(outlines, images, strict=True):
        assert image.baseline == outline.baseline
        assert image.box[0::2] == outline.box[0::2]
        assert image.box[1] <= outline.box[1] < outline.box[3] <= image.box[3]
    assert ((images[1].box[1], images[1].box[3]) != (outlines[1].box[1], outlines[1].box[3])) is taller
    assert images[0].box[3] - images[1].box[1] < 0.5 * (outlines[1].box[3] - outlines[1].box[1])
    drawn = Outline.of_polygon(((10, 10), (90, 12), (80, 40)))
    assert reading_outlines([drawn]) == [drawn]


def test_text_along_the_side_is_a_sideways_line() -> None:
    found = probabilities(*RIGHT)
    found[50:250, 30:40] = 0.9
    (outline,) = (outline for outline in found_outlines(found) if outline.box[2] < 100)
    (x0, y0), (x1, y1) = outline.baseline
    assert x0 == x1
    assert y0 > y1


@pytest.mark.parametrize("value", [0.2, 0.4], ids=["improbable", "uncertain"])
def test_pages_without_text(value: float) -> None:
    with raises_code("no-lines-found"):
        found_outlines(probabilities(*LEFT, value=value))


def test_shipped_detector_finds_every_drawn_line() -> None:
    image, boxes = draw_page()
    found = [line.outline for line in choose_segmenter("ppocr")(encode_image(image, "PNG").content, "p")]
    assert len(found) == len(boxes)
    assert all(
        box_overlaps(outline.box, np.array([box])) > 0.5 for outline, box in zip(found, boxes, strict=True) if outline
    )


def test_an_unknown_segmenter_is_an_error(tmp_path: Path) -> None:
    with raises_code("segmenter-unknown"):
        choose_segmenter(str(tmp_path / "elsewhere"))


def columns_of_dates(width: int, rows: Sequence[int]) -> NDArray[np.float32]:
    """A column on the left that is one piece from the first row to the last, and a line of text beside each row."""
    found = probabilities(*((120, 440, row) for row in rows))
    found[rows[0] - 6 : rows[-1] + 6, 40 : 40 + width] = 0.9
    return found


def test_a_column_that_is_found_as_one_line_is_split_at_the_rows_beside_it() -> None:
    rows = [40, 75, 110, 145, 180]
    outlines = found_outlines(columns_of_dates(40, rows))
    dates = [outline for outline in outlines if outline.box[0] < 80 and outline.box[2] < 120]
    assert [abs((outline.box[1] + outline.box[3]) / 2 - row) < 10 for outline, row in zip(dates, rows, strict=True)]
    assert max(outline.box[3] - outline.box[1] for outline in dates) < 50


def test_only_the_nearest_column_says_where_a_piece_is_split() -> None:
    rows = [40, 90, 140]
    found = columns_of_dates(40, rows)
    found[:, 280:] = 0
    for row in (65, 115):
        found[row - 4 : row + 4, 320:460] = 0.9
    dates = [outline for outline in found_outlines(found) if outline.box[2] < 120]
    assert len(dates) == len(rows)


def test_text_along_the_side_of_a_page_is_not_split() -> None:
    outlines = found_outlines(columns_of_dates(9, [40, 75, 110, 145, 180]))
    assert max(outline.box[3] - outline.box[1] for outline in outlines) > 130
