"""PAGE XML: texts, outlines and, above all, the reading order."""

from pathlib import Path

import pytest

from dsocr.document import Line, Outline, Page, SkipReason
from tests.data.making import SQUARE, page_line, page_xml, picture, write
from tests.formats.reading import pages, read, read_one, skipped, texts

TRIANGLE = ((10, 10), (60, 10), (60, 30))


def page_of(folder: Path, regions: str, **options: str) -> Page:
    picture(folder / "p.png")
    write(folder / "p.xml", page_xml(regions, **options))  # type: ignore[arg-type]
    return read_one("page", folder)


def line_of(folder: Path, line: str) -> Line:
    return page_of(folder, region("r", line)).lines[0]


def region(id_: str, *lines: str, custom: str = "") -> str:
    return f'<TextRegion id="{id_}" custom="{custom}">{"".join(lines)}</TextRegion>'


def order(inner: str) -> str:
    return f"<ReadingOrder><OrderedGroup>{inner}</OrderedGroup></ReadingOrder>"


@pytest.mark.parametrize(
    "version", ["2010-03-19", "2013-07-15", "2016-07-15", "2017-07-15", "2018-07-15", "2019-07-15"]
)
def test_every_version_is_read(tmp_path: Path, version: str) -> None:
    page = page_of(tmp_path, region("r", page_line("слово")), version=version)
    assert (texts([page]), page.size) == (["слово"], (100, 50))


ONE, TWO = region("one", page_line("1")), region("two", page_line("2"))
REF_TWO = '<RegionRefIndexed index="0" regionRef="two"/>'
TWO_THEN_ONE = f'<RegionRefIndexed index="1" regionRef="one"/>{REF_TWO}'
NESTED_GROUP = f'<UnorderedGroupIndexed index="1"><RegionRef regionRef="one"/></UnorderedGroupIndexed>{REF_TWO}'


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        pytest.param(ONE + TWO, "12", id="as in the file"),
        pytest.param(
            region("r", *(page_line(f"{2 - n}", custom=f"readingOrder {{index:{1 - n};}}") for n in (0, 1))),
            "12",
            id="Transkribus orders lines",
        ),
        pytest.param(
            region("r", page_line("b", custom="structure {type:x;} readingOrder {index:10;}"))
            + region("s", page_line("a"), custom="readingOrder {index:9;}"),
            "ab",
            id="Transkribus orders regions, by number and not by digits",
        ),
        pytest.param(order(TWO_THEN_ONE) + ONE + TWO, "21", id="ReadingOrder"),
        pytest.param(order(REF_TWO) + ONE + TWO, "21", id="a region it does not name comes last"),
        pytest.param(order(NESTED_GROUP) + ONE + TWO, "21", id="nested groups"),
        pytest.param(
            order(TWO_THEN_ONE) + f'<TextRegion id="one">{region("inner", page_line("1"))}</TextRegion>' + TWO,
            "21",
            id="a nested region goes with its parent",
        ),
        pytest.param(f"<TableRegion><TableCell>{page_line('1')}</TableCell></TableRegion>{TWO}", "12", id="cells"),
    ],
)
def test_reading_order(tmp_path: Path, regions: str, expected: str) -> None:
    assert "".join(texts([page_of(tmp_path, regions)])) == expected


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
    assert line_of(tmp_path, f'<TextLine><Coords points="{SQUARE}"/>{inner}</TextLine>').text == expected


@pytest.mark.parametrize(
    ("coords", "outline"),
    [
        pytest.param('<Coords points="10,10 60,10 60,30"/>', Outline.of_polygon(TRIANGLE), id="attribute"),
        pytest.param(
            '<Coords><Point x="10" y="10"/><Point x="60" y="10"/><Point x="60" y="30"/></Coords>',
            Outline.of_polygon(TRIANGLE),
            id="2010 points",
        ),
        pytest.param(
            '<Coords points="1e1,10 6.0E+1,10 60,3e1"/>', Outline.of_polygon(TRIANGLE), id="exponents are numbers"
        ),
        pytest.param(
            '<Coords points="10,10 60,10 60,30"/><Baseline points="10,25 60,25"/>',
            Outline.of_polygon(TRIANGLE, ((10, 25), (60, 25))),
            id="baseline",
        ),
        pytest.param('<Coords points="10,10 60,30"/>', Outline((10, 10, 61, 31)), id="two corners are a box"),
    ],
)
def test_outlines(tmp_path: Path, coords: str, outline: Outline) -> None:
    assert line_of(tmp_path, f"<TextLine>{coords}{reading('т')}</TextLine>").outline == outline


@pytest.mark.parametrize("points", ["10,10 NaN,NaN 90,40", "10,10 inf,10 9,9 90,40", "10,10 x,10 90,40"])
def test_coordinates_that_are_no_numbers_cost_their_line_and_not_the_page(tmp_path: Path, points: str) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(region("r", page_line("слово", points=points) + page_line("да"))))
    items = read("page", tmp_path)
    assert [reason for reason, _ in skipped(items)] == [SkipReason.NO_OUTLINE]
    assert texts(items) == ["да"]


def test_a_box_that_was_written_as_corners_is_a_box_again(tmp_path: Path) -> None:
    line = line_of(tmp_path, page_line("т", custom="readingOrder {index:0;} outline {type:box;}"))
    assert line.outline == Outline((10, 10, 61, 31))


@pytest.mark.parametrize("lines", [1, 2])
def test_a_line_is_the_whole_image_only_if_it_is_alone(tmp_path: Path, lines: int) -> None:
    page = page_of(tmp_path, region("r", *[page_line("т", custom="outline {type:image;}")] * lines))
    assert [line.outline is None for line in page.lines] == [lines == 1] * lines


def test_a_page_of_an_unknown_schema_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "p.xml", '<PcGts xmlns="x"></PcGts>')
    assert skipped(read("page", tmp_path)) == [(SkipReason.BAD_SOURCE, "p.xml")]


def test_an_image_named_otherwise_is_found_by_the_name_of_the_file(tmp_path: Path) -> None:
    page = page_of(tmp_path, region("r", page_line("слово")), image="export_0001.tif")
    assert page.image == tmp_path / "p.png"


def region_with_text(text: str) -> str:
    return f'<TextRegion id="r"><Coords points="10,10 60,10 60,30"/>{reading(text)}</TextRegion>'


def test_the_text_of_a_region_without_lines_is_a_line(tmp_path: Path) -> None:
    (line,) = page_of(tmp_path, region_with_text("слово")).lines
    assert (line.text, line.outline) == ("слово", Outline.of_polygon(TRIANGLE))


def test_the_text_of_a_region_without_lines_is_not_lost_if_it_has_several(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(region_with_text("раз\nдва") + region("s", page_line("три"))))
    items = read("page", tmp_path)
    assert (skipped(items), texts(items)) == ([(SkipReason.NO_OUTLINE, "p.xml:3")], ["три"])
    assert [line.text for line in pages(items)[0].skipped] == ["раз\nдва"]
