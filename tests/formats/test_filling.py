"""Filling texts into existing files changes the texts and nothing else."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from dsocr.document import Line, ProcessingStep
from dsocr.formats import fill_xml, parse_xml_page
from dsocr.formats.alto import fill_alto
from dsocr.formats.xml_tree import XmlTree
from tests.raising import raises_code

STEP = ProcessingStep("dsocr", "1.2", "handwriting read", "run mine; unit line", "2026-01-02T03:04:05+00:00")

ALTO = """<?xml version='1.0' encoding="UTF-8"?>
<!-- eScriptorium -->
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"\t>
  <Description><MeasurementUnit>pixel</MeasurementUnit>
    <sourceImageInformation><fileName>p.png</fileName></sourceImageInformation>
  </Description>
  <Layout><Page WIDTH="100" HEIGHT="50" ID="p" PHYSICAL_IMG_NR="1"><PrintSpace><TextBlock ID="b">
    <TextLine ID="one"
              HPOS="10" VPOS='10' WIDTH="50" HEIGHT="20"  >
      <Shape><Polygon POINTS="10 10 60 10 60 30 10 30"/></Shape>
      <!-- empty -->
    </TextLine>
    <TextLine ID="two" HPOS="10" VPOS="10" WIDTH="50" HEIGHT="20"><Shape><Polygon POINTS="1 1 9 1 9 9"/></Shape>
      <String WC="0.1"   CONTENT=""
          HPOS="10"></String></TextLine>
    <TextLine ID="three" HPOS="10" VPOS="10" WIDTH="50" HEIGHT="20"/>
    <TextLine ID="four" HPOS="1" VPOS="1" WIDTH="9" HEIGHT="9"><String CONTENT="old"/><SP/>
      <String CONTENT="words"/></TextLine>
  </TextBlock></PrintSpace></Page></Layout>
</alto>
"""

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<pc:PcGts xmlns:pc="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
  <pc:Metadata><pc:Creator>x</pc:Creator></pc:Metadata>
  <pc:Page imageFilename="p.png" imageWidth="100" imageHeight="50">
    <pc:TextRegion id="r"><pc:Coords points="0,0 9,0 9,9"/>
    <pc:TextLine id="one">
      <pc:Coords points="10,10 60,10 60,30"/>
      <pc:Baseline points="10,25 60,25"/>
      <pc:TextStyle fontSize="9"/>
    </pc:TextLine>
    <pc:TextLine id="two"><pc:Coords points="1,1 9,1 9,9"/>
      <pc:TextEquiv><pc:Unicode></pc:Unicode></pc:TextEquiv></pc:TextLine>
    <pc:TextLine id="three"><pc:Coords points="1,1 9,1 9,9"/>
      <pc:Word id="w"><pc:TextEquiv><pc:Unicode>old</pc:Unicode></pc:TextEquiv></pc:Word>
      <pc:TextEquiv index="0"><pc:Unicode>old</pc:Unicode></pc:TextEquiv>
      <pc:TextEquiv index="1"><pc:Unicode>old</pc:Unicode></pc:TextEquiv>
    </pc:TextLine>
  </pc:TextRegion></pc:Page>
</pc:PcGts>
"""


def texts(raw: bytes, folder: Path) -> list[str]:
    """The texts of the lines, in the file's order."""
    (folder / "x.xml").write_bytes(raw)
    return [line.text for line in sorted(parse_xml_page(folder / "x.xml").lines, key=lambda line: line.index or 0)]


def read(text: str, confidence: float | None = None, **details: Any) -> Line:
    """A line as a model has read it."""
    return Line(text, "x.xml", prediction={"confidence": confidence, **details})


def fill(document: str, texts: dict[int, str]) -> str:
    return fill_xml(document.encode(), {index: read(text) for index, text in texts.items()}).decode()


@pytest.mark.parametrize("document", [ALTO, PAGE], ids=["alto", "page"])
def test_texts_come_back_and_all_else_is_byte_equal(document: str, tmp_path: Path) -> None:
    fills = {0: read('мама & <папа> "ё"', 0.5), 1: read("строка", 1.0), 2: read("три")}
    filled = fill_xml(document.encode(), fills)
    assert texts(filled, tmp_path)[:3] == [line.text for line in fills.values()]
    # What was put in is taken out again by hand, and what was there is left.
    inserted = re.compile(
        r'\n      <String CONTENT=.мама[^>]*/>|><String CONTENT="три".*?</TextLine>| WC="1.0000"'
        r"|\n      <pc:TextEquiv conf=\"0.5000\">.*?</pc:TextEquiv>"
    )
    rest = inserted.sub(lambda found: "/>" if found[0].startswith(">") else "", filled.decode())
    if document is ALTO:
        assert rest == document.replace(' WC="0.1"', "").replace('CONTENT=""', 'CONTENT="строка"')
    else:
        assert rest.partition('<pc:TextLine id="two">')[0] == document.partition('<pc:TextLine id="two">')[0]
        assert "older" not in rest
        assert "<pc:Word" not in rest, "the words that were read before would contradict the line"
    assert fill_xml(document.encode(), {}, STEP) == document.encode()


SURE = read("да нет", 0.9, words=[{"start": 0, "confidence": 0.75}], characters=(1.0, 0.94, 0.9, 0.85, 0.31, 0.02))


@pytest.mark.parametrize(
    ("document", "index", "line", "expected"),
    [
        pytest.param(ALTO, 3, read("слово", 0.25), 'WC="0.2500"', id="ALTO"),
        pytest.param(PAGE.replace('index="1"', ""), 0, read("слово", 0.25), 'conf="0.2500"', id="PAGE"),
        pytest.param(
            ALTO,
            1,
            SURE,
            '<String WC="0.9000" CC="0 0 1 1 6 9"   CONTENT="да нет"\n          HPOS="10"></String>',
            id="of a line in one string and of each character",
        ),
        pytest.param(
            ALTO,
            3,
            SURE,
            '<String CONTENT="да" HPOS="1" VPOS="1" WIDTH="3" HEIGHT="9" WC="0.7500" CC="0 0"/>'
            '<SP HPOS="4" VPOS="1" WIDTH="1" HEIGHT="9"/>'
            '<String CONTENT="нет" HPOS="5" VPOS="1" WIDTH="5" HEIGHT="9" WC="0.9000" CC="1 6 9"/>',
            id="of each word, where words were written before",
        ),
    ],
)
def test_confidences_are_written(document: str, index: int, line: Line, expected: str, tmp_path: Path) -> None:
    filled = fill_xml(document.encode(), {index: line})
    assert expected in filled.decode()
    assert texts(filled, tmp_path)[index] == line.text


def test_a_text_that_is_taken_out_leaves_the_content_that_is_required() -> None:
    filled = etree.fromstring(
        fill_alto(XmlTree(fill(ALTO, {1: "old"}).encode()), {place: read("") for place in range(4)})
    )
    strings = list(filled.iter("{*}String"))
    assert len(strings) == 4
    assert all(string.get("CONTENT") == "" and string.get("CC") is None for string in strings)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param('HPOS="1"', id="half of it"),
        pytest.param('HPOS="x" VPOS="1" WIDTH="9" HEIGHT="9"', id="no number"),
        pytest.param('HPOS="1e999" VPOS="1" WIDTH="9" HEIGHT="9"', id="beyond all numbers"),
    ],
)
def test_words_of_a_line_without_a_place_have_none(place: str) -> None:
    document = ALTO.replace('HPOS="1" VPOS="1" WIDTH="9" HEIGHT="9"', place)
    assert '<String CONTENT="да"/><SP/><String CONTENT="нет"/>' in fill(document, {3: "да нет"})


@example("да  нет")
@given(st.text("аб <&\u00a0", min_size=1, max_size=20))
def test_words_are_read_back_as_the_text_they_were(text: str) -> None:
    root = etree.fromstring(fill_alto(XmlTree(ALTO.encode()), {2: read(text, 0.5)}, words=True))
    line = list(root.iter("{*}TextLine"))[2]
    parts = line.iterchildren("{*}String", "{*}SP")
    assert "".join(str(part.get("CONTENT", " ")) for part in parts) == text


def test_the_processing_step_is_written_once_per_run_with_a_unique_id() -> None:
    twice = fill_xml(fill_xml(ALTO.encode(), {0: read("а")}, STEP), {1: read("б")}, STEP)
    root = etree.fromstring(twice)
    assert [step.get("ID") for step in root.iter("{*}Processing")] == ["dsocr", "dsocr-2"]
    assert root.findtext(".//{*}processingStepSettings") == STEP.settings
    (item,) = etree.fromstring(fill_xml(PAGE.encode(), {0: read("а")}, STEP)).iter("{*}MetadataItem")
    assert (item.get("type"), item.get("name")) == ("processingStep", STEP.description)


@pytest.mark.parametrize(
    "encoding",
    [
        pytest.param("windows-1251", id="a Russian export of old"),
        pytest.param("utf-16", id="with its mark"),
        pytest.param("utf-8-sig", id="Windows' mark"),
        pytest.param("iso-8859-1", id="letters that the encoding has not become references"),
    ],
)
def test_encoding_and_line_ends_stay(encoding: str, tmp_path: Path) -> None:
    document = ALTO.replace("\n", "\r\n").replace("UTF-8", encoding.removesuffix("-sig"))
    raw = document.encode(encoding)
    filled = fill_xml(raw, {0: read("Щука")})
    assert texts(filled, tmp_path)[0] == "Щука"
    assert filled[:4] == raw[:4]
    decoded = filled.decode(encoding)
    assert decoded.count("\r\n") == decoded.count("\n") == document.count("\r\n") + 1


UTF_16 = '<?xml version="1.0" encoding="utf-16"?>'


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"<!DOCTYPE alto><alto/>", "xml-doctype", id="document type"),
        pytest.param(b"<alto>", "xml-invalid", id="cut off"),
        pytest.param('<alto a="é"/>'.encode("latin-1"), "xml-invalid", id="not UTF-8"),
        pytest.param(b'<?xml version="1.0" encoding="none"?><alto/>', "xml-invalid", id="unknown encoding"),
        pytest.param(f"{UTF_16}<alto/>".encode("utf-16-le"), "xml-encoding", id="no mark"),
    ],
)
def test_a_file_that_cannot_be_filled_is_an_error(raw: bytes, code: str) -> None:
    with raises_code(code):
        fill_xml(raw, {0: read("а")})


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_any_text_round_trips_except_characters_xml_forbids(text: str) -> None:
    for document in (ALTO, PAGE):
        root = etree.fromstring(fill_xml(document.encode(), {0: read(text)}))
        found = root.xpath("string((//@CONTENT | //*[local-name()='Unicode'])[1])")
        legal = all(letter in "\t\n\r" or " " <= letter <= "\ud7ff" or letter >= "\ue000" for letter in text)
        if legal and not {"\ufffe", "\uffff"} & set(text):
            assert found == text


def test_hyphenation_attributes_are_removed_with_the_old_text() -> None:
    parted = ALTO.replace('WC="0.1"', 'WC="0.1" SUBS_TYPE="HypPart1" SUBS_CONTENT="каранда"')
    assert "SUBS_" in parted
    assert "SUBS_" not in fill(parted, {1: "строка"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("a {b:3;} textStyle {offset:0; length:3;} c {d:e;}", "a {b:3;} c {d:e;}", id="among others"),
        pytest.param("unclear {length:2; offset:1;} a {b:0;} abbrev {offset:0;}", "a {b:0;}", id="first and last"),
        pytest.param("textStyle {offset:0; length:3;}", "", id="nothing else"),
        pytest.param("gap{offset:1;length:0;continued:true;}  x", "x", id="without spaces"),
        pytest.param("a  {b:3;}  note {text:the offset is 3;} ", "a  {b:3;}  note {text:the offset is 3;} ", id="none"),
    ],
)
def test_tags_of_places_in_the_former_text_go_with_it(before: str, after: str) -> None:
    document = PAGE.replace('<pc:TextLine id="two">', f'<pc:TextLine id="two" custom="{before}">')
    filled = fill(document.replace("<pc:Unicode></", "<pc:Unicode>было</"), {1: "стало"})
    custom = f' custom="{after}"' if after else ""
    expected = PAGE.replace('<pc:TextLine id="two">', f'<pc:TextLine id="two"{custom}>')
    assert filled == expected.replace("<pc:Unicode></", "<pc:Unicode>стало</")


def test_tags_of_places_in_a_text_stay_where_it_is_the_same_and_on_other_lines() -> None:
    tagged = '<pc:TextLine custom="textStyle {offset:0; length:3;}"'
    document = PAGE.replace("<pc:TextLine", tagged).replace("<pc:Unicode></", "<pc:Unicode>мы &amp; вы</")
    assert fill(document, {1: "мы & вы"}) == document
    assert fill(document, {0: "другая"}).count("textStyle") == 2


NESTED = (("TextRegion", "a"), ("TextRegion", "b"), ("TableCell", "c"))


def region(text: str | None, *lines: str, orders: Sequence[int] = (), more: str = "") -> str:
    """A PAGE file with one region that says `text`, None for nothing, around lines that say theirs."""
    drawn = "".join(
        f'<TextLine id="l{place}" custom="readingOrder {{index:{order};}}"><Coords points="1,1 9,1 9,9"/>'
        f"<TextEquiv><Unicode>{line}</Unicode></TextEquiv></TextLine>"
        for place, (line, order) in enumerate(zip(lines, orders or range(len(lines)), strict=True))
    )
    reading = "" if text is None else f"<TextEquiv conf='0.9'><Unicode>{text}</Unicode></TextEquiv>{more}"
    return (
        '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15">'
        '<Page imageFilename="p.png" imageWidth="100" imageHeight="50"><TextRegion id="r">'
        f'<Coords points="0,0 9,0 9,9"/>{drawn}{reading}<TextStyle fontSize="9"/></TextRegion></Page></PcGts>'
    )


def region_text(raw: str) -> list[str]:
    """All texts of the outermost region."""
    found = etree.fromstring(raw).findall(".//{*}Page/{*}TextRegion/{*}TextEquiv/{*}Unicode")
    return [text.text or "" for text in found]


@pytest.mark.parametrize(
    ("text", "lines", "fills", "becomes"),
    [
        pytest.param("а\nб", ["а", "б"], {1: "в"}, "а\nв", id="a line is read again"),
        pytest.param("чужой", ["а", "б"], {1: "в"}, "а\nв", id="it contradicted its lines, and one is read again"),
        pytest.param("", ["", ""], {0: "а", 1: "б"}, "а\nб", id="Transkribus' empty texts"),
        pytest.param("а б", ["а", "б", ""], {2: "в"}, "а\nб\nв", id="the rest of a page that was read in part"),
        pytest.param("а\nб", ["а", "б"], {0: "а"}, "а\nб", id="read again alike"),
        pytest.param("весь текст", ["", ""], {0: "а", 1: "б"}, "весь текст", id="nobody has it but the region"),
        pytest.param("а\nв", ["а", "б"], {0: "а"}, "а\nв", id="it was corrected, and its line is read as it was"),
        pytest.param("а &lt; б", ["", ""], {0: "а &"}, "а < б", id="signs of XML"),
    ],
)
def test_the_text_of_a_region_follows_its_lines(
    text: str, lines: list[str], fills: dict[int, str], becomes: str
) -> None:
    assert region_text(fill(region(text, *lines), fills)) == [becomes]


def test_a_region_gets_its_lines_in_reading_order_and_loses_its_old_readings() -> None:
    more = '\n<TextEquiv index="1"><Unicode>в</Unicode></TextEquiv>'
    filled = fill(region("а\nб", "б", "а", orders=[1, 0], more=more), {0: "б", 1: "<я>"})
    assert region_text(filled) == ["<я>\nб"]
    assert "conf" not in filled, "how sure the former text was"
    assert '<TextStyle fontSize="9"/>' in filled


def test_of_nested_regions_and_cells_those_around_a_filled_line_follow_it() -> None:
    drawn = '<{0} id="{1}"><Coords points="1,1 9,1 9,9"/>{2}<TextEquiv><Unicode>{1}</Unicode></TextEquiv></{0}>'
    regions = [drawn.format(tag, id_, drawn.format("TextLine", id_, "")) for tag, id_ in NESTED]
    raw = region("a b", more="").replace("<TextEquiv conf", f"{''.join(regions[:2])}<TextEquiv conf")
    raw = raw.replace("</Page>", f'<TableRegion id="t"><Coords points="1,1 9,1 9,9"/>{regions[2]}</TableRegion></Page>')
    for fills, expected in (({1: "в"}, [*"aa", *"вв", "a\nв", *"cc"]), ({2: "г"}, [*"aabb", "a b", *"гг"])):
        assert etree.fromstring(fill(raw, fills)).xpath("//*[local-name()='Unicode']/text()") == expected
