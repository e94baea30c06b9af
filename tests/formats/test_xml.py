"""ALTO and PAGE: texts, outlines, reading order; XML made to hurt is skipped, nothing outside the source is opened."""

import re
from pathlib import Path

import pytest

from dsocr.document import Line, Note, Outline, Page, SkipReason
from dsocr.errors import DataError
from dsocr.formats import fill_xml, parse_xml_page, xml
from dsocr.formats.xml_tree import XmlTree
from dsocr.outlines import quarter_turns
from tests.data.making import SQUARE, alto, alto_line, page_line, page_xml, picture, write
from tests.formats.reading import pages, read, read_one, skipped, texts
from tests.raising import raises_code

BOX = 'HPOS="1" VPOS="2" WIDTH="30" HEIGHT="10"'
POLYGON = ((10, 10), (60, 10), (60, 30))


def alto_page(folder: Path, document: str) -> Page:
    picture(folder / "p.png")
    write(folder / "p.xml", document)
    return read_one("alto", folder)


def alto_text_line(folder: Path, line: str) -> Line:
    return alto_page(folder, alto(line)).lines[0]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        pytest.param(["Дорогой", " ", "друг"], "Дорогой друг", id="space marked"),
        pytest.param(["Дорогой", "друг"], "Дорогой друг", id="no space marked anywhere"),
        pytest.param(["за", " ", "1861", "годъ", " "], "за 1861 годъ", id="spaces marked in part"),
        pytest.param(["Дорогой", "", "друг"], "Дорогой друг", id="an empty word"),
        pytest.param(["пись", "<HYP CONTENT='-'/>"], "пись-", id="hyphen at the end"),
        pytest.param(["пись", "<HYP CONTENT='⸗'/>"], "пись⸗", id="another sign"),
        pytest.param(["пись", "<HYP CONTENT='&#xad;'/>"], "пись-", id="soft hyphen"),
        pytest.param(["пись", "<HYP CONTENT=''/>"], "пись-", id="hyphen without a sign"),
        pytest.param(["пись", "<HYP/>"], "пись-", id="hyphen without content"),
        pytest.param(["пись-", "<HYP CONTENT='&#xad;'/>"], "пись-", id="hyphen twice"),
        pytest.param(["", "<HYP CONTENT=''/>"], "", id="hyphen of a line without a text"),
        pytest.param(["всё предложение"], "всё предложение", id="whole line in one string"),
        pytest.param(["J&#x27;ai &lt;lu&gt;"], "J'ai <lu>", id="character references"),
        pytest.param([], "", id="no string"),
    ],
)
def test_text_of_a_line_of_alto(tmp_path: Path, parts: list[str], text: str) -> None:
    parts = ["<SP/>" if part == " " else part for part in parts]
    strings = "".join(part if part.startswith("<") else f'<String CONTENT="{part}"/>' for part in parts)
    line = alto_text_line(tmp_path, f"<TextLine {BOX}>{strings}</TextLine>")
    assert (line.text, line.outline) == (text, Outline((1, 2, 31, 12)))


@pytest.mark.parametrize("points", ["10 10 60 10 60 30", "10,10 60,10 60,30", "10.2,9.8 60,10 59.7,30.1"])
def test_polygon_notations(tmp_path: Path, points: str) -> None:
    line = alto_text_line(tmp_path, alto_line("т", points))
    assert line.outline == Outline((10, 10, 61, 31), POLYGON, ((10, 25), (60, 25)))


def test_a_baseline_of_old_versions_is_a_height(tmp_path: Path) -> None:
    line = alto_text_line(tmp_path, f'<TextLine BASELINE="11" {BOX}><String CONTENT="т"/></TextLine>')
    assert line.outline == Outline((1, 2, 31, 12), (), ((1, 11), (31, 11)))


def test_two_points_of_alto_are_no_polygon(tmp_path: Path) -> None:
    shape = '<Shape><Polygon POINTS="1,1 9,9"/></Shape><String CONTENT="т"/>'
    line = alto_text_line(tmp_path, f'<TextLine BASELINE="10,25 60,25">{shape}</TextLine>')
    assert line.outline == Outline((10, 25, 61, 26), (), ((10, 25), (60, 25)))


@pytest.mark.parametrize("namespace", ["http://www.loc.gov/standards/alto/ns-v2#", ""])
def test_a_page_of_any_version_is_read(tmp_path: Path, namespace: str) -> None:
    document = alto("\n\n" + alto_line("т")).replace("http://www.loc.gov/standards/alto/ns-v4#", namespace)
    page = alto_page(tmp_path, document)
    assert (page.name, page.page, page.size, page.lines[0].where) == ("p", "p", (100, 50), "p.xml:8")


def test_lines_that_mark_only_some_spaces_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    words = '<String CONTENT="за"/><SP/><String CONTENT="1861"/><String CONTENT="годъ"/>'
    write(tmp_path / "p.xml", alto(f"{alto_line('да')}<TextLine {BOX}>{words}</TextLine>"))
    (note,) = [item.message for item in read("alto", tmp_path) if isinstance(item, Note)]
    assert note.startswith("1 lines ")
    assert note.endswith("p.xml:6")


def block(id_: str, *lines: str, attributes: str = "") -> str:
    inner = "".join(f'<TextLine ID="{line}" {BOX}><String CONTENT="{line}"/></TextLine>' for line in lines)
    return f'<TextBlock ID="{id_}" {attributes}>{inner}</TextBlock>'


BLOCKS = block("b", "2") + block("a", "1", "4") + block("c", "3")


@pytest.mark.parametrize(
    ("refs", "blocks", "expected"),
    [
        pytest.param("", BLOCKS, "2143", id="not stated"),
        pytest.param("a b c", BLOCKS, "1423", id="of blocks"),
        pytest.param("c a", BLOCKS, "3142", id="a block that is not named comes last"),
        pytest.param("1 2 3 4 4 3 2 1", BLOCKS, "1234", id="of lines; the first of two orders"),
        pytest.param("1 b gone", BLOCKS, "1243", id="of a line and a block"),
        pytest.param(
            "b w", f'<ComposedBlock ID="w">{block("a", "1")}</ComposedBlock>{block("b", "2")}', "21", id="nested"
        ),
        pytest.param(
            "",
            block("b", "2") + block("a", "1", attributes='IDNEXT="b"') + block("c", "3"),
            "123",
            id="of the next block",
        ),
        pytest.param("b a", block("a", "1", attributes='IDNEXT="b"') + block("b", "2"), "21", id="stated in both ways"),
        pytest.param(
            "", block("a", "1", attributes='IDNEXT="b"') + block("b", "2", attributes='IDNEXT="a"'), "12", id="a circle"
        ),
    ],
)
def test_reading_order_of_alto(tmp_path: Path, refs: str, blocks: str, expected: str) -> None:
    groups = "".join(f'<OrderedGroup><ElementRef REF="{ref}"/></OrderedGroup>' for ref in refs.split())
    document = alto(blocks).replace(
        "<Layout>", f"<ReadingOrder><UnorderedGroup>{groups}</UnorderedGroup></ReadingOrder><Layout>"
    )
    page = alto_page(tmp_path, document)
    in_file = [line.text for line in sorted(page.lines, key=lambda line: line.index or 0)]
    assert ("".join(texts([page])), in_file) == (expected, re.findall(r'TextLine ID="(\d)"', blocks))


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


FIRST, LAST = "readingOrder {index:9;}", "structure {type:x;} readingOrder {index:10;}"
SECOND, THIRD = page_line("2", custom=FIRST), page_line("3", custom=LAST)
ONE, TWO = region("one", page_line("1")), region("two", page_line("2"))
REF_TWO = '<RegionRefIndexed index="0" regionRef="two"/>'
TWO_THEN_ONE = f'<RegionRefIndexed index="1" regionRef="one"/>{REF_TWO}'
NESTED_GROUP = f'<UnorderedGroupIndexed index="1"><RegionRef regionRef="one"/></UnorderedGroupIndexed>{REF_TWO}'


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        pytest.param(ONE + TWO, "12", id="as in the file"),
        pytest.param(region("r", THIRD, SECOND), "23", id="Transkribus orders lines"),
        pytest.param(region("r", THIRD, custom=LAST) + region("s", SECOND, custom=FIRST), "23", id="and regions"),
        pytest.param(order(TWO_THEN_ONE) + ONE + TWO, "21", id="ReadingOrder"),
        pytest.param(order(REF_TWO) + ONE + TWO, "21", id="a region it does not name comes last"),
        pytest.param(order(NESTED_GROUP) + ONE + TWO, "21", id="nested groups"),
        pytest.param(
            order(TWO_THEN_ONE) + region("one", region("in", page_line("1"))) + TWO, "21", id="nested regions"
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
def test_text_of_a_line_of_page(tmp_path: Path, inner: str, expected: str) -> None:
    assert line_of(tmp_path, f'<TextLine><Coords points="{SQUARE}"/>{inner}</TextLine>').text == expected


def text_line(inner: str, custom: str = "") -> str:
    return f'<TextLine custom="{custom}"><Coords points="{SQUARE}"/>{inner}</TextLine>'


def placed_word(text: str, left: int, custom: str = "", top: int = 10) -> str:
    points = f"{left},{top} {left + 14},{top} {left + 14},{top + 10} {left},{top + 10}"
    return f'<Word id="w{left}" custom="{custom}"><Coords points="{points}"/>{reading(text)}</Word>'


GLYPHS = "<Word><Glyph>{}</Glyph><Glyph>{}</Glyph></Word>"
TYPED, READ, SURE = reading("да"), reading("ол", 'conf="0.9"'), reading("ол", 'index="1"')
DETAILS = 'dataType="other" dataTypeDetails'


@pytest.mark.parametrize(
    ("lines", "expected", "notes"),
    [
        pytest.param([SURE + reading("да", 'index="0"'), SURE], ["да", None], 2, id="LAREX: a guess, never typed"),
        pytest.param([TYPED + SURE, SURE], ["да", None], 2, id="no index is the first"),
        pytest.param([TYPED + SURE + reading("эх", 'index="1"')], ["да"], 1, id="two guesses with one index"),
        pytest.param([TYPED, SURE], ["да", None], 1, id="a guess beside no typed line, but others are typed"),
        pytest.param([SURE, reading("эх", 'index="2"')], ["ол", "эх"], 2, id="only guesses are said to be such"),
        pytest.param([TYPED + READ, READ], ["да", None], 2, id="a confidence in another text"),
        pytest.param([TYPED, READ], ["да", "ол"], 1, id="corrected lines can keep a confidence"),
        pytest.param([reading("да", f'{DETAILS}="OCR-D-GT"') + SURE], ["да"], 1, id="OCR-D's name of the truth"),
        pytest.param([TYPED, reading("ол", f'{DETAILS}="kraken model"')], ["да", None], 1, id="a data type"),
        pytest.param([reading("", 'index="0"') + SURE, TYPED], ["", "да"], 0, id="the truth is empty"),
        pytest.param([reading("да") + reading("но", 'index="0"')], [None], 1, id="two texts are first"),
        pytest.param([TYPED + TYPED], ["да"], 0, id="two texts are first and the same"),
        pytest.param([READ.replace("9", "8") + reading("да", 'conf="0.95"')], ["да"], 1, id="the more confident"),
        pytest.param([READ + reading("да", 'conf="0.9"')], [None], 1, id="equally confident"),
        pytest.param([GLYPHS.format(reading("д"), reading("а"))], ["да"], 0, id="glyphs only"),
        pytest.param([GLYPHS.format(reading("д"), "")], [None], 1, id="a glyph without a text"),
        pytest.param([word("да") + "<Word/>"], [None], 1, id="a word without a text"),
        pytest.param([placed_word("да", 10) + "<Word/>" + TYPED], ["да"], 0, id="words beside a text of the line"),
    ],
)
def test_a_program_s_text_is_no_transcription(
    lines: list[str], expected: list[str | None], notes: int, tmp_path: Path
) -> None:
    """None is a line whose text is not taken, which says why."""
    for number, line in enumerate(lines):  # each on a page of its own: the source decides
        write(tmp_path / f"{number}.xml", page_xml(region("r", text_line(line)), image=f"{number}.png"))
        picture(tmp_path / f"{number}.png")
    items = read("page", tmp_path)
    lines_read = [line for page in pages(items) for line in page.lines]
    assert [None if line.untranscribed else line.text for line in lines_read] == expected
    assert all(not line.text for line in lines_read if line.untranscribed)
    assert sum(isinstance(item, Note) for item in items) == notes


RIGHT, LEFT = "readingOrder {index:1;}", "readingOrder {index:0;}"
HEBREW = placed_word("שלום", 26) + placed_word("עולם", 10)


@pytest.mark.parametrize(
    ("words", "orders", "expected"),
    [
        pytest.param(word("да") + word("нет"), "", "да нет", id="no places: as in the file"),
        pytest.param(placed_word("б", 10, RIGHT) + placed_word("а", 40, LEFT), "", "а б", id="custom"),
        pytest.param(
            placed_word("б", 10) + placed_word("а", 26),
            order('<RegionRefIndexed index="0" regionRef="w26"/><RegionRefIndexed index="1" regionRef="w10"/>'),
            "а б",
            id="ReadingOrder",
        ),
        pytest.param(placed_word("б", 26) + placed_word("а", 10), "", "", id="neither stated nor that of their places"),
        pytest.param(placed_word("б", 26, LEFT) + placed_word("а", 10, LEFT), "", "", id="two are first"),
        pytest.param(HEBREW, "", "שלום עולם", id="from right to left"),
        pytest.param(placed_word("б", 26, top=10) + placed_word("а", 10, top=30), "", "", id="two rows"),
    ],
)
def test_words_are_joined_in_reading_order_or_refused(words: str, orders: str, expected: str, tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(orders + region("r", text_line(words))))
    items = read("page", tmp_path)
    assert texts(items) == [expected]
    assert sum(isinstance(item, Note) for item in items) == (not expected)


BASELINE = ((10, 25), (60, 25))
POINTS = "".join(f'<Point x="{x}" y="{y}"/>' for x, y in POLYGON)


@pytest.mark.parametrize(
    ("coords", "outline"),
    [
        pytest.param('<Coords points="10,10 60,10 60,30"/>', Outline.of_polygon(POLYGON), id="attribute"),
        pytest.param(f"<Coords>{POINTS}</Coords>", Outline.of_polygon(POLYGON), id="2010 points"),
        pytest.param('<Coords points="1e1,10 6.0E+1,10 60,3e1"/>', Outline.of_polygon(POLYGON), id="exponents"),
        pytest.param('<Baseline points="10,25 60,25"/>', Outline((10, 25, 61, 26), (), BASELINE), id="baseline"),
        pytest.param('<Coords points="10,10 60,30"/>', Outline((10, 10, 61, 31)), id="two corners are a box"),
    ],
)
def test_outlines(tmp_path: Path, coords: str, outline: Outline) -> None:
    assert line_of(tmp_path, f"<TextLine>{coords}{reading('т')}</TextLine>").outline == outline


@pytest.mark.parametrize(
    ("format_", "document"),
    [
        ("alto", alto(alto_line("т", "1 2 3") + alto_line("да"))),
        *(
            ("page", page_xml(region("r", page_line("т", points=f"10,10 {points} 90,40") + page_line("да"))))
            for points in ("NaN,NaN", "inf,10 9,9", "x,10")
        ),
    ],
)
def test_coordinates_that_are_no_numbers_cost_their_line_and_not_the_page(
    tmp_path: Path, format_: str, document: str
) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", document)
    items = read(format_, tmp_path)
    assert [reason for reason, _ in skipped(items)] == [SkipReason.NO_OUTLINE]
    assert texts(items) == ["да"]


@pytest.mark.parametrize(
    ("page", "region", "turns"),
    [
        pytest.param("", "", 0, id="not stated"),
        pytest.param('orientation="90"', "", -1, id="of the page, clockwise"),
        pytest.param('orientation="-89.5"', "", 1, id="of the page, counterclockwise"),
        pytest.param('orientation="90"', 'orientation="0.4"', 0, id="that of the region comes first"),
    ],
)
def test_orientation_says_how_a_line_without_a_baseline_is_read(
    tmp_path: Path, page: str, region: str, turns: int
) -> None:
    line = page_line("text", points="10,10 20,10 20,45 10,45")
    document = page_xml(f'<TextRegion {region} id="r1">{line}</TextRegion>').replace("<Page ", f"<Page {page} ")
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", document)
    outline = read_one("page", tmp_path).lines[0].outline
    assert outline is not None
    assert quarter_turns(outline) == turns


def test_a_box_that_was_written_as_corners_is_a_box_again(tmp_path: Path) -> None:
    line = line_of(tmp_path, page_line("т", custom="readingOrder {index:0;} outline {type:box;}"))
    assert line.outline == Outline((10, 10, 61, 31))


@pytest.mark.parametrize("lines", [1, 2])
def test_a_line_is_the_whole_image_only_if_it_is_alone(tmp_path: Path, lines: int) -> None:
    page = page_of(tmp_path, region("r", *[page_line("т", custom="outline {type:image;}")] * lines))
    assert [line.outline is None for line in page.lines] == [lines == 1] * lines


def test_an_image_named_otherwise_is_found_by_the_name_of_the_file(tmp_path: Path) -> None:
    page = page_of(tmp_path, region("r", page_line("слово")), image="export_0001.tif")
    assert page.image == tmp_path / "p.png"


def region_with_text(text: str, index: str = "") -> str:
    return f'<TextRegion id="r"><Coords points="10,10 60,10 60,30"/>{reading(text, index)}</TextRegion>'


def test_the_text_of_a_region_without_lines_is_a_line(tmp_path: Path) -> None:
    (line,) = page_of(tmp_path, region_with_text("слово")).lines
    assert (line.text, line.outline) == ("слово", Outline.of_polygon(POLYGON))


def test_a_region_without_lines_that_only_a_program_has_read_is_not_transcribed(tmp_path: Path) -> None:
    (line,) = page_of(tmp_path, region_with_text("слово", 'index="1"')).lines
    assert (line.text, bool(line.untranscribed)) == ("", True)


def test_the_text_of_a_region_without_lines_is_not_lost_if_it_has_several(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(region_with_text("раз\nдва") + region("s", page_line("три"))))
    items = read("page", tmp_path)
    assert (skipped(items), texts(items)) == ([(SkipReason.NO_OUTLINE, "p.xml:3")], ["три"])
    assert [line.text for line in pages(items)[0].skipped] == ["раз\nдва"]


BOMB = (
    "<!DOCTYPE alto ["
    + '<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{place} "{f"&a{place - 1};" * 10}">' for place in range(1, 10))
    + "]>"
)
QUADRATIC = f'<!DOCTYPE alto [<!ENTITY a "{"x" * 100_000}">]>'


@pytest.mark.parametrize(
    ("head", "text"),
    [
        pytest.param(BOMB, "&a9;", id="billion laughs"),
        pytest.param(QUADRATIC, "&a;" * 1000, id="quadratic blow-up"),
        pytest.param('<!DOCTYPE alto SYSTEM "http://127.0.0.1:9/a.dtd">', "т", id="a document type from the network"),
        pytest.param('<!DOCTYPE alto [<!ENTITY x "т">]>', "&x;", id="a harmless entity"),
        pytest.param('<!DOCTYPE alto [<!ENTITY x SYSTEM "secret.txt">]>', "т", id="an external entity, unused"),
    ],
)
def test_declared_entities_are_rejected(tmp_path: Path, head: str, text: str) -> None:
    picture(tmp_path / "p.png")
    path = write(tmp_path / "p.xml", alto(alto_line(text), head=head))
    assert skipped(read("alto", tmp_path)) == [(SkipReason.BAD_SOURCE, "p.xml")]
    for function in (xml.parse_xml_bytes, lambda raw: fill_xml(raw, {}), XmlTree):
        with pytest.raises(DataError):
            function(path.read_bytes())


@pytest.mark.parametrize(
    "image",
    ["../secret.png", "/etc/passwd", "C:\\secret.png", "file:///etc/passwd", "http://example.org/secret.png"],
)
def test_an_image_outside_the_source_is_not_used(tmp_path: Path, image: str) -> None:
    picture(tmp_path / "secret.png")
    write(tmp_path / "source" / "p.xml", alto(alto_line("т"), image=image))
    assert skipped(read("alto", tmp_path / "source")) == [(SkipReason.NO_IMAGE, "p.xml")]


def test_the_size_and_depth_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_XML_BYTES", 100_000)
    write(tmp_path / "deep.xml", alto("<a>" * 5000 + "</a>" * 5000))
    write(tmp_path / "large.xml", alto(alto_line("т" * 100_000)))
    assert skipped(read("alto", tmp_path)) == [(SkipReason.BAD_SOURCE, f"{name}.xml") for name in ("deep", "large")]
    with raises_code("too-large", "large.xml"):
        xml.parse_xml(tmp_path / "large.xml")


WORDS = (("a", 'conf="0.5"'), ("b", 'conf="1"'))


def equiv(text: str, attributes: str = "") -> str:
    return f"<TextEquiv {attributes}><Unicode>{text}</Unicode></TextEquiv>"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('<String CONTENT="a"/>', ("a", None), id="ALTO without one"),
        pytest.param('<String CONTENT="a" WC="0.5"/><String CONTENT="b" WC="1"/>', ("a b", 0.75), id="words of ALTO"),
        pytest.param('<String CONTENT="a" WC="0.5"/><String CONTENT="b" WC="87"/>', ("a b", None), id="other units"),
        pytest.param(equiv("a"), ("a", None), id="typed"),
        pytest.param(equiv("a", 'conf="0.25"'), ("a", 0.25), id="read"),
        pytest.param(equiv("a", 'conf="9.5E-5"'), ("a", 9.5e-5), id="read, hardly"),
        pytest.param(equiv("a", 'conf="1.5"'), ("a", None), id="read, in other units"),
        pytest.param(equiv("a", 'index="1" dataType="HTR" conf="0"'), ("a", 0.0), id="read, where others are typed"),
        pytest.param(equiv("a") + equiv("b", 'index="1" conf="0.5"'), ("a", None), id="typed beside what was read"),
        pytest.param("".join(f"<Word>{equiv(*word)}</Word>" for word in WORDS), ("a b", 0.75), id="words of PAGE"),
    ],
)
def test_any_text_of_a_line_with_the_confidence_stated_for_it(
    line: str, expected: tuple[str, float | None], tmp_path: Path
) -> None:
    line = f"<TextLine>{line}</TextLine>"
    is_alto = "<String" in line
    document = alto(line) if is_alto else page_xml(f"<TextRegion>{line}{page_line('typed')}</TextRegion>")
    assert parse_xml_page(write(tmp_path / "p.xml", document)).rated_texts()[0] == expected
