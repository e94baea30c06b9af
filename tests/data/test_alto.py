"""ALTO: the text of a line, its position, and its image."""

from pathlib import Path

import pytest

from dsocr.document import Page, Skipped, SkipReason
from dsocr.formats.alto import read_alto
from tests.data.making import alto, alto_line, picture, write


def read_one(folder: Path, document: str) -> Page | Skipped:
    picture(folder / "p.png")
    write(folder / "p.xml", document)
    (item,) = read_alto(folder)
    return item


def line_of(folder: Path, line: str) -> tuple[str, object]:
    item = read_one(folder, alto(line))
    assert isinstance(item, Page)
    return item.lines[0].text, item.lines[0].outline


def strings(*parts: str) -> str:
    tags = {" ": "<SP/>", "-": '<HYP CONTENT="-"/>'}
    inner = "".join(tags.get(part, f'<String CONTENT="{part}"/>') for part in parts)
    return f'<TextLine HPOS="1" VPOS="2" WIDTH="30" HEIGHT="10">{inner}</TextLine>'


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        pytest.param(["Дорогой", " ", "друг"], "Дорогой друг", id="space marked"),
        pytest.param(["Дорогой", "друг"], "Дорогой друг", id="no space marked anywhere"),
        pytest.param(["Доро", "гой", " ", "друг"], "Дорогой друг", id="a word in two strings"),
        pytest.param(["пись", "-"], "пись-", id="hyphen at the end"),
        pytest.param(["всё предложение"], "всё предложение", id="whole line in one string"),
        pytest.param(["J&#x27;ai &lt;lu&gt;"], "J'ai <lu>", id="character references"),
        pytest.param([], "", id="no string"),
    ],
)
def test_text_of_a_line(tmp_path: Path, parts: list[str], text: str) -> None:
    assert line_of(tmp_path, strings(*parts))[0] == text


@pytest.mark.parametrize(
    "points",
    [
        pytest.param("10 10 60 10 60 30", id="x y x y"),
        pytest.param("10,10 60,10 60,30", id="x,y x,y"),
        pytest.param("10.2,9.8 60,10 59.7,30.1", id="decimals"),
    ],
)
def test_polygon_notations(tmp_path: Path, points: str) -> None:
    item = read_one(tmp_path, alto(alto_line("т", points)))
    assert isinstance(item, Page)
    outline = item.lines[0].outline
    assert outline is not None
    assert outline.polygon == ((10, 10), (60, 10), (60, 30))
    assert outline.box == (10, 10, 61, 31)
    assert outline.baseline == ((10, 25), (60, 25))


def test_a_line_without_polygon_has_its_box(tmp_path: Path) -> None:
    outline = line_of(tmp_path, strings("т"))[1]
    assert outline is not None
    assert (outline.box, outline.polygon) == ((1, 2, 31, 12), ())  # type: ignore[attr-defined]


def test_a_baseline_of_old_versions_is_a_height(tmp_path: Path) -> None:
    line = '<TextLine BASELINE="11" HPOS="1" VPOS="2" WIDTH="30" HEIGHT="10"><String CONTENT="т"/></TextLine>'
    outline = line_of(tmp_path, line)[1]
    assert outline.baseline == ((1, 11), (31, 11))  # type: ignore[attr-defined]


def test_a_line_records_its_position_in_the_file(tmp_path: Path) -> None:
    item = read_one(tmp_path, alto("\n\n" + alto_line("т")))
    assert isinstance(item, Page)
    assert item.lines[0].where == "p.xml:8"
    assert (item.name, item.page, item.size) == ("p", "p", (100, 50))


def test_any_namespace_is_read(tmp_path: Path) -> None:
    for version in ("http://www.loc.gov/standards/alto/ns-v2#", ""):
        document = alto(alto_line("т")).replace("http://www.loc.gov/standards/alto/ns-v4#", version)
        assert isinstance(read_one(tmp_path, document), Page)


def test_a_line_without_coordinates_is_skipped(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", alto('<TextLine><String CONTENT="т"/></TextLine>'))
    skipped, image = read_alto(tmp_path)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == SkipReason.NO_OUTLINE
    assert isinstance(image, Page)
    assert image.lines == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(alto("", unit="mm10"), "MeasurementUnit is 'mm10'", id="tenths of a millimetre"),
        pytest.param(alto("", unit=""), "MeasurementUnit is ''", id="no unit"),
        pytest.param(alto("").replace("<Layout>", "<Layout><Page/>"), "2 pages in one file", id="two pages"),
        pytest.param(alto(alto_line("т", "1 2 3")), "odd number of coordinates: '1 2 3'", id="half a point"),
        pytest.param(alto("")[:-20], "the XML cannot be read", id="cut off"),
    ],
)
def test_an_unusable_file_is_skipped_with_the_reason(tmp_path: Path, document: str, message: str) -> None:
    item = read_one(tmp_path, document)
    assert isinstance(item, Skipped)
    assert (item.reason, item.where) == (SkipReason.BAD_SOURCE, "p.xml")
    assert message in item.message
