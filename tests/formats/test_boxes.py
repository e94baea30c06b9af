"""Boxes in tables, in the notations of other programs."""

import json
from pathlib import Path

import pytest

from dsocr.document import Item, Note, Outline
from dsocr.formats.boxes import parse_shape
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped

CORNERS = [(52, 58, 525, 110), (52, 138, 528, 190), (52, 218, 514, 270)]
SIZES = [(left, top, right - left, bottom - top) for left, top, right, bottom in CORNERS]


@pytest.mark.parametrize(
    ("cell", "notation", "numbers"),
    [
        ("52,58 525,110", "corners", CORNERS[0]),
        ("52.5, 58; 525, 110", "corners", (52.5, *CORNERS[0][1:])),
        ("[[52, 58], [525, 110]]", "corners", CORNERS[0]),
        ("BOX(52 58, 525 110)", "corners", CORNERS[0]),
        ("{'x1': 52, 'y1': 58, 'x2': 525, 'y2': 110}", "corners", CORNERS[0]),
        ('{"y_min": 58, "x_min": 52, "y_max": 110, "x_max": 525}', "corners", CORNERS[0]),
        ('{"x": 52, "y": 58, "width": 473, "height": 52}', "size", SIZES[0]),
        ("left: 52; top: 58; width: 473; height: 52", "size", SIZES[0]),
        ("xywh=pixel:52,58,473,52", "size", SIZES[0]),
        ("[52, 58, 525, 110]", "plain", CORNERS[0]),
        ('["52", "58", "525", "110"]', "plain", CORNERS[0]),
        ("(52.0, 58.0, 525.0, 110.0)", "plain", CORNERS[0]),
        ("52 58 525 110", "plain", CORNERS[0]),
        ("1,2 30,2 30,9", "points", (1, 2, 30, 2, 30, 9)),
        ("[[1, 2], [30, 2], [30, 9]]", "points", (1, 2, 30, 2, 30, 9)),
        ('[{"x": 1, "y": 2}, {"x": 30, "y": 2}, {"x": 30, "y": 9}]', "points", (1, 2, 30, 2, 30, 9)),
        ("[[1, 2, 30, 2, 30, 9]]", "points", (1, 2, 30, 2, 30, 9)),
        ("POLYGON ((1 2, 30 2, 30 9))", "points", (1, 2, 30, 2, 30, 9)),
    ],
)
def test_usual_notations_are_known(cell: str, notation: str, numbers: tuple[float, ...]) -> None:
    shape = parse_shape(cell)
    assert shape is not None
    assert (shape.notation, shape.numbers) == (notation, numbers)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("", id="nothing"),
        pytest.param("l. 12", id="words"),
        pytest.param("[52, 58, 525]", id="three numbers"),
        pytest.param("[52, 58, 525, 110, 0.98]", id="a score"),
        pytest.param("[0.065, 0.161, 0.656, 0.3]", id="shares"),
        pytest.param("xywh=percent:6,16,59,14", id="percent"),
        pytest.param('{"x": 6, "y": 16, "width": 59, "height": 14, "rotation": 0}', id="more names"),
        pytest.param("12.05.1905, 3, 4, 5", id="a date"),
        pytest.param("1,2 3,4,5 6", id="no order"),
        pytest.param("[[[1, 2, 3, 2, 3, 4], [5, 6, 7, 6, 7, 8]]]", id="two rings"),
        pytest.param("99999999,1,2,3", id="too far"),
    ],
)
def test_other_notations_are_unknown(cell: str) -> None:
    assert parse_shape(cell) is None


def read_boxes(folder: Path, column: str, cells: list[object], size: tuple[int, int] = (800, 360)) -> list[Item]:
    for number in range(4):
        picture(folder / f"{number}.png", size)
    rows = [{"image": f"{place // 3}.png", column: cell, "text": str(place)} for place, cell in enumerate(cells)]
    write(folder / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return read("table", folder)


@pytest.mark.parametrize(
    ("column", "boxes"),
    [
        pytest.param("bbox", CORNERS * 4, id="corners"),
        pytest.param("bbox", SIZES * 4, id="sizes"),
        pytest.param("coords", CORNERS * 4, id="another name"),
        pytest.param("bbox_xywh", SIZES[:1], id="stated"),
    ],
)
def test_all_rows_decide_what_four_numbers_are(tmp_path: Path, column: str, boxes: list[tuple[int, ...]]) -> None:
    items = read_boxes(tmp_path, column, list(map(list, boxes)))
    outlines = [line.outline for page in pages(items) for line in page.lines]
    assert outlines == [Outline(box) for box in (CORNERS * 4)[: len(boxes)]]
    assert [item for item in items if isinstance(item, Note)]


def test_one_wrong_box_among_many_is_skipped(tmp_path: Path) -> None:
    boxes: list[object] = [*CORNERS * 3, (525, 58, 52, 110), *CORNERS[1:]]
    items = read_boxes(tmp_path, "bbox", boxes)
    assert [where for _, where in skipped(items)] == ["t.jsonl:10"]
    assert [len(page.lines) for page in pages(items)] == [3, 3, 3, 2]


def test_boxes_that_may_be_either_are_refused(tmp_path: Path) -> None:
    items = read_boxes(tmp_path, "bbox", [[5, 5, 100, 40]])
    assert ([where for _, where in skipped(items)], pages(items)) == (["t.jsonl"], [])


def test_a_column_for_each_side_is_a_box(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (800, 360))
    write(tmp_path / "t.csv", "image;x;y;width;height;text\na.png;52;58;473,0;52;раз\na.png;;;;;два\n")
    items = read("table", tmp_path)
    assert [line.outline for page in pages(items) for line in page.lines] == [Outline(CORNERS[0])]
    assert [where for _, where in skipped(items)] == ["t.csv:3"]


def test_a_column_in_an_unknown_notation_is_named(tmp_path: Path) -> None:
    assert any("'coords'" in str(item) for item in read_boxes(tmp_path, "coords", ["page 2, below"]))
