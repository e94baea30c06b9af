"""ALTO: the text of a line, its place, and its image."""

from pathlib import Path

import pytest

from dsocr.document import Line, Outline, Page, SkipReason
from tests.data.making import alto, alto_line, picture, write
from tests.formats.reading import read, read_one, skipped, texts

BOX = 'HPOS="1" VPOS="2" WIDTH="30" HEIGHT="10"'
POLYGON = ((10, 10), (60, 10), (60, 30))


def page_of(folder: Path, document: str) -> Page:
    picture(folder / "p.png")
    write(folder / "p.xml", document)
    return read_one("alto", folder)


def line_of(folder: Path, line: str) -> Line:
    return page_of(folder, alto(line)).lines[0]


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
    tags = {" ": "<SP/>", "-": '<HYP CONTENT="-"/>'}
    strings = "".join(tags.get(part, f'<String CONTENT="{part}"/>') for part in parts)
    line = line_of(tmp_path, f"<TextLine {BOX}>{strings}</TextLine>")
    assert (line.text, line.outline) == (text, Outline((1, 2, 31, 12)))


@pytest.mark.parametrize("points", ["10 10 60 10 60 30", "10,10 60,10 60,30", "10.2,9.8 60,10 59.7,30.1"])
def test_polygon_notations(tmp_path: Path, points: str) -> None:
    line = line_of(tmp_path, alto_line("т", points))
    assert line.outline == Outline((10, 10, 61, 31), POLYGON, ((10, 25), (60, 25)))


def test_a_baseline_of_old_versions_is_a_height(tmp_path: Path) -> None:
    line = line_of(tmp_path, f'<TextLine BASELINE="11" {BOX}><String CONTENT="т"/></TextLine>')
    assert line.outline == Outline((1, 2, 31, 12), (), ((1, 11), (31, 11)))


@pytest.mark.parametrize("namespace", ["http://www.loc.gov/standards/alto/ns-v2#", ""])
def test_a_page_of_any_version_is_read(tmp_path: Path, namespace: str) -> None:
    document = alto("\n\n" + alto_line("т")).replace("http://www.loc.gov/standards/alto/ns-v4#", namespace)
    page = page_of(tmp_path, document)
    assert (page.name, page.page, page.size, page.lines[0].where) == ("p", "p", (100, 50), "p.xml:8")


def test_a_line_without_coordinates_is_skipped(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", alto('<TextLine><String CONTENT="т"/></TextLine>' + alto_line("да")))
    items = read("alto", tmp_path)
    assert (skipped(items), texts(items)) == ([(SkipReason.NO_OUTLINE, "p.xml:6")], ["да"])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(alto("", unit="mm10"), id="tenths of a millimetre"),
        pytest.param(alto("", unit=""), id="no unit"),
        pytest.param(alto("").replace("<Layout>", "<Layout><Page/>"), id="two pages"),
        pytest.param(alto("")[:-20], id="cut off"),
    ],
)
def test_an_unusable_file_is_skipped(tmp_path: Path, document: str) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", document)
    assert skipped(read("alto", tmp_path)) == [(SkipReason.BAD_SOURCE, "p.xml")]


def test_half_a_point_costs_its_line_and_not_the_page(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", alto(alto_line("т", "1 2 3") + alto_line("да")))
    items = read("alto", tmp_path)
    assert [reason for reason, _ in skipped(items)] == [SkipReason.NO_OUTLINE]
    assert texts(items) == ["да"]
