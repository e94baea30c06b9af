"""Converting loses nothing in silence, overwrites nothing of others, and does the same twice."""

import json
import shutil
from pathlib import Path

import pytest

from dsocr.data.convert import convert
from dsocr.data.prepare import prepare
from dsocr.document import Line, Page, SkipReason
from dsocr.formats import TARGET_FORMATS, detect_format
from dsocr.images import decode_image
from tests.data.making import SQUARE, alto, alto_line, page_line, page_xml, pair, picture, write, write_pages
from tests.formats.making_sources import SOURCES
from tests.raising import raises_code


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "source", ["anna_1", "boris_1"], lines=1)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", TARGET_FORMATS)
def test_the_same_source_gives_the_same_bytes(target: str, tmp_path: Path) -> None:
    SOURCES["alto"](tmp_path / "source")
    first, second = (contents(convert(tmp_path / "source", tmp_path / out, to=target).output) for out in ("a", "b"))
    assert first == second
    assert not any(tmp_path.name.encode() in content for content in first.values())


@pytest.mark.parametrize(
    ("target", "text"),
    [
        pytest.param("page", "а\x01б", id="a control character in XML"),
        pytest.param("alto", "а\uffffб", id="no character at all in XML"),
        pytest.param("page", "а\ud800б", id="half a character in XML"),
        pytest.param("tsv", "а\0б", id="NUL in a table"),
        pytest.param("parquet", "а\udfffб", id="half a character in Parquet"),
        pytest.param("ms-swift", "<image>", id="what stands for an image"),
    ],
)
def test_a_text_that_a_format_cannot_hold_is_skipped(target: str, text: str, tmp_path: Path) -> None:
    picture(tmp_path / "source" / "a.png")
    rows = [{"image": "a.png", "text": "да"}, {"image": "a.png", "text": text}]
    write(tmp_path / "source" / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    report = convert(tmp_path / "source", tmp_path / "out", to=target)
    assert [(item.reason, item.where) for item in report.skipped] == [(SkipReason.UNWRITABLE, "t.jsonl:2")]
    assert report.conversion.lines == 1
    with raises_code("unwritable", "t.jsonl:2"):
        convert(tmp_path / "source", tmp_path / "strict", to=target, strict=True)
    assert not (tmp_path / "strict").exists()


def test_pages_of_a_document_are_in_the_natural_order_of_their_names(tmp_path: Path) -> None:
    report = convert(write_pages(tmp_path / "source", ["10", "9", "9 об"], lines=1), tmp_path / "out", to="text")
    text = (tmp_path / "out" / "transcription.txt").read_text(encoding="utf-8")
    assert text.split("\n\f") == ["9 строка 0", "9 об строка 0", "10 строка 0\n"]
    assert any("9, 9 об, 10" in note for note in report.conversion.notes)


@pytest.mark.parametrize("target", TARGET_FORMATS)
def test_names_with_half_characters_are_escaped(target: str, tmp_path: Path) -> None:
    picture(tmp_path / "source" / "a.png")
    row = {"image": "a.png", "text": "да", "writer": "Анна \ud800", "page": "\udc00", "note\ud800": "\ud801"}
    write(tmp_path / "source" / "t.jsonl", json.dumps(row) + "\n")
    assert convert(tmp_path / "source", tmp_path / "out", to=target).conversion.lines == 1


@pytest.mark.parametrize("target", ["page", "tsv"])
def test_skipped_items_are_counted_and_listed(target: str, pages: Path, tmp_path: Path) -> None:
    write(pages / "bad.xml", "<alto><Layout>")
    write(pages / "gone.xml", alto(alto_line("т"), image="gone.png"))
    write(pages / "broken.png", "no image")
    write(pages / "broken.xml", alto(alto_line("т"), image="broken.png"))
    picture(pages / "other.png", size=(100, 100))
    write(pages / "other.xml", alto(alto_line("т"), image="other.png"))
    report = convert(pages, tmp_path / "out", to=target)
    assert {reason: part.count for reason, part in report.conversion.skipped.items()} == dict.fromkeys(
        ("source cannot be read", "image not found", "image cannot be read", "outlines of another image"), 1
    )
    assert (report.conversion.images, report.conversion.lines) == (2, 2)
    card = json.loads((tmp_path / "out" / "conversion.json").read_text("utf-8"))
    assert card["skipped"]["image not found"]["examples"][0].startswith("gone.xml: ")
    with raises_code("bad-source", "bad.xml"):
        convert(pages, tmp_path / "strict", to=target, strict=True)


def test_a_box_without_a_pixel_is_skipped_and_nothing_left_is_an_error(tmp_path: Path) -> None:
    picture(tmp_path / "source" / "p.png")
    empty = '<TextLine HPOS="5" VPOS="5" WIDTH="0" HEIGHT="9"><String CONTENT="т"/></TextLine>'
    write(tmp_path / "source" / "p.xml", alto(alto_line("да") + empty))
    report = convert(tmp_path / "source", tmp_path / "out", to="page")
    assert [item.reason for item in report.skipped] == [SkipReason.TOO_SMALL]
    pair(tmp_path / "blank", "a", " \n")
    with raises_code("no-lines"):
        convert(tmp_path / "blank", tmp_path / "nothing", to="page")
    assert not (tmp_path / "nothing").exists()


ALTO_WITH_STRUCTURE = """<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">
<Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>p.png</fileName></sourceImageInformation></Description>
<Tags><OtherTag ID="BT1" LABEL="MainZone"/><OtherTag ID="LT2" LABEL="DefaultLine"/><OtherTag ID="LT3"/>
<OtherTag ID="BT9" LABEL="UnusedZone"/></Tags>
<Layout><Page WIDTH="100" HEIGHT="50"><PrintSpace>
<TextBlock ID="eSc_textblock_a" TAGREFS="BT1" HPOS="1" VPOS="1" WIDTH="90" HEIGHT="40">
<TextLine ID="eSc_line_b" TAGREFS="LT2" HPOS="10" VPOS="10" WIDTH="50" HEIGHT="20">
<String CONTENT="два" HPOS="10" VPOS="10" WIDTH="20" HEIGHT="20"/><SP/>
<String CONTENT="слова" HPOS="40" VPOS="10" WIDTH="20" HEIGHT="20"><Glyph CONTENT="с"/></String></TextLine>
<TextLine ID="eSc_line_a" TAGREFS="LT3 LT2" HPOS="10" VPOS="30" WIDTH="50" HEIGHT="20">
<String CONTENT="три" HPOS="10" VPOS="30" WIDTH="50" HEIGHT="20"/></TextLine></TextBlock>
<TextBlock ID="empty" HPOS="1" VPOS="1" WIDTH="9" HEIGHT="4"/><Illustration ID="i"/>
</PrintSpace></Page></Layout></alto>"""

CELL = (
    f'<TextLine id="l2"><Coords points="{SQUARE}"/><Word id="w"><Coords points="{SQUARE}"/></Word>'
    "<TextEquiv><Unicode>в ячейке</Unicode></TextEquiv></TextLine>"
)
PAGE_WITH_STRUCTURE = page_xml(
    f'<TextRegion id="r_7" type="heading"><Coords points="{SQUARE}"/>'
    f'<TextLine id="l1" custom="structure {{type:catch-word;}} abbrev {{offset:0; length:2;}}">'
    f'<Coords points="{SQUARE}"/><TextEquiv><Unicode>слово</Unicode></TextEquiv></TextLine></TextRegion>'
    f'<TableRegion id="t"><Coords points="{SQUARE}"/>'
    f'<TableCell id="c 1" custom="structure {{type:cell;}}"><Coords points="{SQUARE}"/>{CELL}</TableCell></TableRegion>'
    f'<SeparatorRegion id="s"><Coords points="{SQUARE}"/></SeparatorRegion>'
    f'<TextRegion id="alone"><Coords points="{SQUARE}"/><TextEquiv><Unicode>сам</Unicode></TextEquiv></TextRegion>'
)
NESTED_REGION = page_xml(
    f'<TextRegion id="r"><Coords points="{SQUARE}"/><TextRegion id="s"><Coords points="{SQUARE}"/>'
    f"{page_line('слово')}</TextRegion>{page_line('два')}</TextRegion>"
)
ALTO_IDS = ["line ids: 2", "line types: 2 (DefaultLine 1, LT3 DefaultLine 1)", "region ids: 1"]
ALTO_IDS += ["region types: 1 (MainZone 1)"]
FROM_ALTO = [
    "glyphs: 1",
    "other regions: 1 (Illustration 1)",
    "text regions without lines: 1",
    "unused tag definitions: 1 (UnusedZone 1)",
    "word boxes: 2",
]
PAGE_IDS = ["line ids: 2", "line types: 1 (catch-word 1)", "region ids: 3", "region types: 2 (cell 1, heading 1)"]
FROM_PAGE = [
    "other regions: 1 (SeparatorRegion 1)",
    "tables without rows and columns: 1",
    "tags in texts: 1 (abbrev 1)",
    "word boxes: 1",
]


@pytest.mark.parametrize(
    ("document", "target", "expected"),
    [
        pytest.param(ALTO_WITH_STRUCTURE, "page", FROM_ALTO, id="ALTO to PAGE"),
        pytest.param(ALTO_WITH_STRUCTURE, "alto", FROM_ALTO, id="ALTO to ALTO"),
        pytest.param(ALTO_WITH_STRUCTURE, "tsv", sorted([*ALTO_IDS, *FROM_ALTO]), id="ALTO to a table"),
        pytest.param(
            PAGE_WITH_STRUCTURE,
            "alto",
            ["ids that were invalid or occurred twice, and were replaced: 1", *FROM_PAGE],
            id="PAGE to ALTO",
        ),
        pytest.param(NESTED_REGION, "page", ["nested text regions: 1"], id="nested regions"),
        pytest.param(PAGE_WITH_STRUCTURE, "tsv", sorted([*PAGE_IDS, *FROM_PAGE]), id="PAGE to a table"),
    ],
)
def test_structure_that_is_not_written_is_counted(
    document: str, target: str, expected: list[str], tmp_path: Path
) -> None:
    picture(tmp_path / "source" / "p.png")
    write(tmp_path / "source" / "p.xml", document)
    left_behind = convert(tmp_path / "source", tmp_path / "out", to=target).conversion.left_behind
    assert [content for content in left_behind if "regions of lines" not in content] == expected


def converted(document: str, target: str, folder: Path) -> tuple[Line, ...]:
    """The lines of a document after its conversion."""
    picture(folder / "source" / "p.png")
    write(folder / "source" / "p.xml", document)
    out = convert(folder / "source", folder / "out", to=target).output
    (page,) = detect_format(out, None, {}).read(out, {})
    assert isinstance(page, Page)
    return page.lines


@pytest.mark.parametrize("target", ["page", "page-2013", "alto"])
@pytest.mark.parametrize(
    ("document", "ids", "kinds"),
    [
        # The first tag with a label is the type; signs that would end it in `custom` are written as Transkribus does.
        pytest.param(
            ALTO_WITH_STRUCTURE.replace("MainZone", "Main:a;{b}#1"),
            [("eSc_textblock_a", "eSc_line_b"), ("eSc_textblock_a", "eSc_line_a")],
            [("Main:a;{b}#1", "DefaultLine")] * 2,
            id="ALTO",
        ),
        # An id with a space is not valid, and the text of a region alone becomes a line.
        pytest.param(
            PAGE_WITH_STRUCTURE,
            [("r_7", "l1"), ("r2", "l2"), ("alone", "r3l1")],
            [("heading", "catch-word"), ("cell", ""), ("", "")],
            id="PAGE",
        ),
    ],
)
def test_ids_and_types_are_kept(
    document: str, ids: list[tuple[str, str]], kinds: list[tuple[str, str]], target: str, tmp_path: Path
) -> None:
    lines = converted(document, target, tmp_path)
    assert [(line.region and line.region.id, line.id) for line in lines] == ids
    assert [(line.region and line.region.kind, line.kind) for line in lines] == kinds


@pytest.mark.parametrize("target", ["page", "alto"])
def test_ids_that_occur_twice_are_replaced(target: str, tmp_path: Path) -> None:
    given = ("r1l2", "", "r1l2", "page", "order", "r1")
    lines = "".join(alto_line(f"т{id_}").replace("<TextLine", f'<TextLine ID="{id_}"') for id_ in given)
    ids = [line.id for line in converted(alto(lines), target, tmp_path)]
    assert ids[0] == "r1l2"
    assert len(set(ids)) == len(ids)


def test_columns_that_have_no_place_are_reported(tmp_path: Path) -> None:
    SOURCES["table"](tmp_path / "source")
    report = convert(tmp_path / "source", tmp_path / "out", to="alto")
    writers, pages, columns = report.conversion.left_behind
    assert (writers, pages, columns) == ("writers: 8", "page names: 8", "columns: note")


@pytest.mark.parametrize("target", ["parquet", "ms-swift"])
def test_a_line_of_a_page_and_an_image_of_its_name_stay_apart(target: str, tmp_path: Path) -> None:
    for name in ("p", "P_0001"):
        picture(tmp_path / "source" / f"{name}.png")
    write(tmp_path / "source" / "t.tsv", "image\ttext\tbbox\np.png\tline\t10,10 61,31\nP_0001.png\twhole\t\n")
    out = convert(tmp_path / "source", tmp_path / "out", to=target).output
    again = [item for item in detect_format(out, None, {}).read(out, {}) if isinstance(item, Page)]
    contents = {item.lines[0].text: item.content() if item.content else item.image.read_bytes() for item in again}
    sizes = {text: decode_image(content, name=text).image.size for text, content in contents.items()}
    assert sizes == {"line": (51, 21), "whole": (100, 50)}
    assert len({item.name.casefold() for item in again}) == 2


def test_an_archive_is_converted_like_its_content(pages: Path, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "scans"), "zip", pages)
    zipped = convert(tmp_path / "scans.zip", tmp_path / "zipped", to="page")
    plain = convert(pages, tmp_path / "plain", to="page")
    assert zipped.conversion.source == "scans.zip"
    assert zipped.conversion.model_copy(update={"source": "source"}) == plain.conversion
    assert contents(zipped.output) | {"conversion.json": b""} == contents(plain.output) | {"conversion.json": b""}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "scans.zip", "source", "zipped"]


def test_a_dataset_in_parquet_files_is_converted_like_one_of_files(pages: Path, tmp_path: Path) -> None:
    for store in ("files", "parquet"):
        prepare(pages, tmp_path / store / "dataset", store=store, split="1/0/0")
        convert(tmp_path / store / "dataset", tmp_path / store / "out", to="unsloth")
    files, packed = (contents(tmp_path / store / "out") for store in ("files", "parquet"))
    assert files == packed


def test_a_conversion_is_replaced_when_asked(pages: Path, tmp_path: Path) -> None:
    convert(pages, tmp_path / "out", to="page")
    with raises_code("output-exists"):
        convert(pages, tmp_path / "out", to="tsv")
    convert(pages, tmp_path / "out", to="tsv", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["conversion.json", "images", "lines.tsv"]
