"""PAGE XML: texts, outlines and, above all, the reading order."""

from pathlib import Path

import pytest

from dsocr.document import Outline, Page, Skipped, SkipReason
from dsocr.formats.page import read_page
from tests.data.making import SQUARE, page_line, page_xml, picture, write


def read_one(folder: Path, document: str) -> Page:
    picture(folder / "p.png")
    write(folder / "p.xml", document)
    (item,) = read_page(folder)
    assert isinstance(item, Page), item
    return item


def texts(folder: Path, regions: str) -> list[str]:
    return [line.text for line in read_one(folder, page_xml(regions)).lines]


def region(id_: str, *lines: str, custom: str = "") -> str:
    return f'<TextRegion id="{id_}" custom="{custom}">{"".join(lines)}</TextRegion>'


def order(inner: str) -> str:
    return f"<ReadingOrder>{inner}</ReadingOrder>"


@pytest.mark.parametrize(
    "version", ["2010-03-19", "2013-07-15", "2016-07-15", "2017-07-15", "2018-07-15", "2019-07-15"]
)
def test_every_version_is_read(tmp_path: Path, version: str) -> None:
    item = read_one(tmp_path, page_xml(region("r", page_line("слово")), version=version))
    assert [line.text for line in item.lines] == ["слово"]
    assert item.size == (100, 50)


ONE, TWO = region("one", page_line("1")), region("two", page_line("2"))
TWO_THEN_ONE = '<RegionRefIndexed index="1" regionRef="one"/><RegionRefIndexed index="0" regionRef="two"/>'


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        pytest.param(ONE + TWO, "12", id="as in the file"),
        pytest.param(
            region(
                "r", page_line("2", custom="readingOrder {index:1;}"), page_line("1", custom="readingOrder {index:0;}")
            ),
            "12",
            id="Transkribus orders lines",
        ),
        pytest.param(
            region("r", page_line("b", custom="structure {type:x;} readingOrder {index:10;}"))
            + region("s", page_line("a"), custom="readingOrder {index:9;}"),
            "ab",
            id="Transkribus orders regions, by number and not by digits",
        ),
        pytest.param(order(f"<OrderedGroup>{TWO_THEN_ONE}</OrderedGroup>") + ONE + TWO, "21", id="ReadingOrder"),
        pytest.param(
            order('<OrderedGroup><RegionRefIndexed index="0" regionRef="two"/></OrderedGroup>') + ONE + TWO,
            "21",
            id="a region it does not name comes last",
        ),
        pytest.param(
            order(
                '<OrderedGroup><UnorderedGroupIndexed index="1"><RegionRef regionRef="one"/></UnorderedGroupIndexed>'
                '<RegionRefIndexed index="0" regionRef="two"/></OrderedGroup>'
            )
            + ONE
            + TWO,
            "21",
            id="nested groups",
        ),
        pytest.param(
            order(f"<OrderedGroup>{TWO_THEN_ONE}</OrderedGroup>")
            + f'<TextRegion id="one">{region("inner", page_line("1"))}</TextRegion>'
            + TWO,
            "21",
            id="a nested region goes with its parent",
        ),
        pytest.param(
            f"<TableRegion><TableCell>{page_line('1')}</TableCell></TableRegion>" + TWO, "12", id="table cells"
        ),
    ],
)
def test_reading_order(tmp_path: Path, regions: str, expected: str) -> None:
    assert "".join(texts(tmp_path, regions)) == expected


def reading(text: str, index: str = "") -> str:
    return f"<TextEquiv {index}><Unicode>{text}</Unicode></TextEquiv>"


def word(text: str) -> str:
    return f"<Word>{reading(text)}</Word>"


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        pytest.param(reading("слово"), "слово", id="one reading"),
        pytest.param(reading("b", 'index="2"') + reading("a", 'index="1"'), "a", id="lowest index"),
        pytest.param(word("не") + word("он") + reading("весь"), "весь", id="the line's own before its words'"),
        pytest.param(word("два") + word("слова"), "два слова", id="words joined"),
        pytest.param(word("два") + word("слова") + reading(""), "два слова", id="empty own text"),
        pytest.param("<TextEquiv/>", "", id="no Unicode element"),
        pytest.param("", "", id="not transcribed"),
    ],
)
def test_text_of_a_line(tmp_path: Path, inner: str, expected: str) -> None:
    line = f'<TextLine><Coords points="{SQUARE}"/>{inner}</TextLine>'
    assert texts(tmp_path, region("r", line)) == [expected]


@pytest.mark.parametrize(
    "coords",
    [
        pytest.param('<Coords points="10,10 60,10 60,30"/>', id="attribute"),
        pytest.param(
            '<Coords><Point x="10" y="10"/><Point x="60" y="10"/><Point x="60" y="30"/></Coords>', id="2010 points"
        ),
    ],
)
def test_polygon_notations(tmp_path: Path, coords: str) -> None:
    line = f'<TextLine>{coords}<Baseline points="10,25 60,25"/>{reading("т")}</TextLine>'
    outline = read_one(tmp_path, page_xml(region("r", line))).lines[0].outline
    assert outline is not None
    assert outline.polygon == ((10, 10), (60, 10), (60, 30))
    assert outline.baseline == ((10, 25), (60, 25))


def test_two_corners_are_a_box(tmp_path: Path) -> None:
    line = page_line("т", points="10,10 60,30")
    outline = read_one(tmp_path, page_xml(region("r", line))).lines[0].outline
    assert outline is not None
    assert (outline.box, outline.polygon) == ((10, 10, 61, 31), ())


def test_a_box_that_was_written_as_corners_is_a_box_again(tmp_path: Path) -> None:
    line = page_line("т", custom="readingOrder {index:0;} outline {type:box;}")
    outline = read_one(tmp_path, page_xml(region("r", line))).lines[0].outline
    assert outline is not None
    assert (outline.box, outline.polygon) == ((10, 10, 61, 31), ())


@pytest.mark.parametrize("lines", [1, 2])
def test_a_line_is_the_whole_image_only_if_it_is_alone(tmp_path: Path, lines: int) -> None:
    marked = [page_line("т", custom="outline {type:image;}")] * lines
    item = read_one(tmp_path, page_xml(region("r", *marked)))
    assert [line.outline is None for line in item.lines] == [lines == 1] * lines


def test_a_page_of_an_unknown_schema_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "p.xml", '<PcGts xmlns="x"></PcGts>')
    (item,) = read_page(tmp_path)
    assert isinstance(item, Skipped)
    assert "0 pages in one file" in item.message


def test_an_image_named_otherwise_is_found_by_the_name_of_the_file(tmp_path: Path) -> None:
    item = read_one(tmp_path, page_xml(region("r", page_line("слово")), image="export_0001.tif"))
    assert item.image == tmp_path / "p.png"


@pytest.mark.parametrize("points", ["10,10 NaN,NaN 90,40", "10,10 inf,10 9,9 90,40", "10,10 x,10 90,40"])
def test_coordinates_that_are_no_numbers_are_an_error(tmp_path: Path, points: str) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(region("r", page_line("слово", points=points))))
    (item,) = read_page(tmp_path)
    assert isinstance(item, Skipped)
    assert item.reason is SkipReason.BAD_SOURCE


def test_coordinates_with_exponents_are_read(tmp_path: Path) -> None:
    item = read_one(tmp_path, page_xml(region("r", page_line("слово", points="1e1,10 9.0E+1,10 90,4e1"))))
    assert item.lines[0].outline == Outline.of_polygon(((10, 10), (90, 10), (90, 40)))


def region_with_text(text: str) -> str:
    return f'<TextRegion id="r"><Coords points="10,10 90,10 90,40"/>{text_equiv(text)}</TextRegion>'


def text_equiv(text: str) -> str:
    return f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv>"


def test_the_text_of_a_region_without_lines_is_a_line(tmp_path: Path) -> None:
    item = read_one(tmp_path, page_xml(region_with_text("слово")))
    (line,) = item.lines
    assert (line.text, line.outline) == ("слово", Outline.of_polygon(((10, 10), (90, 10), (90, 40))))


def test_the_text_of_a_region_without_lines_is_not_lost_if_it_has_several(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(region_with_text("раз\nдва") + region("s", page_line("три"))))
    skipped, page = read_page(tmp_path)
    assert isinstance(skipped, Skipped)
    assert skipped.reason is SkipReason.NO_OUTLINE
    assert isinstance(page, Page)
    assert [line.text for line in page.lines] == ["три"]
    assert [line.text for line in page.skipped] == ["раз\nдва"]
