"""Tests of reading the texts that people have beside their scans."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from docx.enum.text import WD_BREAK

from dsocr.data.page_texts import read_page_texts
from dsocr.errors import DataError
from tests.raising import raises_code

Make = Callable[[Path], Path]
TEI = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><title>Letters</title></teiHeader><text><body>
<pb facs="scans/p1.jpg"/><p>Dear <hi>brother</hi>,<lb/>we are <note>sic</note>well</p>
<pb facs="scans/p2.jpg"/><p>and hope the re<lb break="no"/>turn<!-- soon --> is near</p></body></text></TEI>"""
PAGE = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"><Metadata/>
<Page imageFilename="p1.jpg" imageWidth="9" imageHeight="9"><TextRegion id="r"><Coords points="0,0 8,0 8,8"/>
<TextEquiv><Unicode>a text of the whole region</Unicode></TextEquiv></TextRegion></Page></PcGts>"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"p2.txt": "second", "p1.md": "# First\n\na **bold** [word](x.html)", "empty.txt": " \n"},
            [("p1", "First a bold word", "p1.md"), ("p2", "second", "p2.txt")],
            id="a file a page is named as its page",
        ),
        pytest.param(
            {"all.txt": "first\fsecond\f"},
            [("", "first", "all.txt#1"), ("", "second", "all.txt#2")],
            id="form feeds part pages",
        ),
        pytest.param(
            {"edition.xml": TEI},
            [
                ("p1", "Dear brother, we are well", "edition.xml:2"),
                ("p2", "and hope the return is near", "edition.xml:3"),
            ],
            id="TEI is parted at its page breaks, without notes and header",
        ),
        pytest.param(
            {"0001.xml": PAGE},
            [("p1", "a text of the whole region", "0001.xml")],
            id="the text of a region without lines",
        ),
        pytest.param(
            {"texts.csv": "image,text\nscans/p1.jpg,one\np2.jpg,two\n"},
            [("p1", "one", "texts.csv:2"), ("p2", "two", "texts.csv:3")],
            id="a row of a table is a page",
        ),
    ],
)
def test_pages_are_named_and_parted(
    files: dict[str, str], expected: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    texts = read_page_texts(tmp_path)
    assert [(text.name, " ".join(text.text.split()), text.where) for text in texts] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("<choice>\n<abbr>г.</abbr> <expan>годъ</expan></choice>,", "г.,", id="abbreviation"),
        pytest.param("<choice><corr>убрана</corr><!-- ! --><sic>уброна</sic></choice>", "уброна", id="error"),
        pytest.param(
            "<choice><orig>че<lb break='no'/>ловѣкъ</orig><reg>человек</reg></choice>", "человѣкъ", id="spelling"
        ),
        pytest.param("<choice><choice><sic>а</sic><corr>о</corr></choice><reg>у</reg></choice>", "а", id="nested"),
        pytest.param("<choice><unclear>а</unclear><unclear>о</unclear></choice>", "а", id="the likelier first"),
        pytest.param("<choice><sic/><corr>въ</corr></choice>домъ", "домъ", id="omitted by the writer"),
        pytest.param("<app><rdg>он</rdg><lem>онъ</lem></app>", "онъ", id="the witness that is followed"),
        pytest.param("<app><rdg>онъ</rdg><rdg>он</rdg></app>", "онъ", id="the first witness"),
        pytest.param("кн<ex>язь</ex> <supplied>Иванъ</supplied>", "кн", id="letters of the editor"),
        pytest.param("<subst><del>он</del> <add>она</add></subst> <reg>и</reg>", "он она и", id="no choice"),
        pytest.param("<choice/>", None, id="an empty choice"),
    ],
)
def test_one_reading_of_tei_is_taken(tmp_path: Path, body: str, expected: str | None) -> None:
    (tmp_path / "a.xml").write_text(f"<TEI><text><p>{body}</p><pb/><p>.</p></text></TEI>", encoding="utf-8")
    assert [" ".join(page.text.split()) for page in read_page_texts(tmp_path)] == [*filter(None, [expected]), "."]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("texts.odt", b"PK", "texts-format"),
        ("empty.txt", b" \n", "texts-missing"),
        ("old.txt", "отлучке на год".encode("cp1251"), "not-utf8"),
        ("page.xml", b"<html><body>text</body></html>", "texts-format"),
        ("word.docx", b"not a zip archive", "docx-damaged"),
        ("scans/p.jpg", b"", "texts-missing"),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / name).write_bytes(content)
    with raises_code(code):
        read_page_texts(tmp_path / name.partition("/")[0])


def test_a_word_file_is_parted_at_its_page_breaks_and_its_tables_are_read(tmp_path: Path) -> None:
    from docx import Document

    document = Document()
    document.add_paragraph("first page").add_run().add_break(WD_BREAK.PAGE)
    document.add_paragraph("second page")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.save(str(tmp_path / "text.docx"))
    texts = read_page_texts(tmp_path / "text.docx")
    assert [text.text.split() for text in texts] == [["first", "page"], ["second", "page", "left", "right"]]


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
EMPTY_CELL = "<w:tc><w:p/></w:tc>"
WIDE_CELL = '<w:tc><w:tcPr><w:gridSpan w:val="100000000"/></w:tcPr><w:p/></w:tc>'


def write_word(path: Path, body: str) -> Path:
    """A Word file with this body."""
    from docx import Document

    Document().save(str(path.with_suffix(".empty")))
    with ZipFile(path.with_suffix(".empty")) as source, ZipFile(path, "w", ZIP_DEFLATED) as target:
        for name in source.namelist():
            text = f"<w:document {WORD}><w:body>{body}</w:body></w:document>".encode()
            target.writestr(name, text if name == "word/document.xml" else source.read(name))
    path.with_suffix(".empty").unlink()
    return path


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param("<w:p><w:hyperlink><w:r><w:t>linked</w:t></w:r></w:hyperlink></w:p>", "linked", id="a link"),
        pytest.param("<w:p><w:ins><w:r><w:t>added</w:t></w:r></w:ins></w:p>", "added", id="a tracked insertion"),
        pytest.param(
            "<w:p><w:del><w:r><w:t>x</w:t></w:r></w:del></w:p><w:p><w:r><w:t>y</w:t></w:r></w:p>", "y", id="a deletion"
        ),
        pytest.param(
            "<w:p><w:r><w:rPr><w:strike/></w:rPr><w:t>a</w:t></w:r><w:r><w:rPr><w:dstrike/></w:rPr><w:t>b</w:t></w:r>"
            '<w:r><w:rPr><w:strike w:val="0"/></w:rPr><w:t> c</w:t></w:r></w:p>',
            "~~ab~~ c",
            id="struck through",
        ),
        pytest.param("<w:p><w:smartTag><w:r><w:t>Minsk</w:t></w:r></w:smartTag></w:p>", "Minsk", id="a smart tag"),
        pytest.param(
            "<w:sdt><w:sdtContent><w:p><w:r><w:t>held</w:t></w:r></w:p></w:sdtContent></w:sdt>", "held", id="a control"
        ),
        pytest.param(
            "<w:tbl><w:tr><w:tc><w:tbl><w:tr><w:tc><w:p><w:r><w:t>inner</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
            "<w:p><w:r><w:t>outer</w:t></w:r></w:p></w:tc></w:tr></w:tbl>",
            "inner outer",
            id="a table in a table",
        ),
        pytest.param(
            "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>",
            "a b",
            id="tabs",
        ),
    ],
)
def test_all_that_a_word_file_shows_is_read(body: str, words: str, tmp_path: Path) -> None:
    (text,) = read_page_texts(write_word(tmp_path / "a.docx", body))
    assert " ".join(text.text.split()) == words


def word_of(body: str, count: int) -> Make:
    return lambda path: write_word(path.with_suffix(".docx"), body.replace("...", f"<w:p/>{EMPTY_CELL}" * count))


def text_of(suffix: str, content: str) -> Make:
    def make(path: Path) -> Path:
        path.with_suffix(suffix).write_text(content, encoding="utf-8")
        return path.with_suffix(suffix)

    return make


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(word_of(f"<w:tbl><w:tr>{WIDE_CELL}</w:tr></w:tbl>", 0), id="a cell over 100,000,000 columns"),
        pytest.param(word_of("<w:p>...</w:p>", 300_000), id="600,000 paragraphs and cells"),
        pytest.param(text_of(".md", " *a" * 100_000), id="Markdown of stars without an end"),
        pytest.param(text_of(".md", "[" * 300_000), id="Markdown of brackets"),
        pytest.param(text_of(".md", "[](" * 100_000), id="Markdown of links"),
        pytest.param(text_of(".md", "![" * 150_000), id="Markdown of images"),
        pytest.param(text_of(".md", "-\n" * 300_000), id="Markdown of rules"),
        pytest.param(text_of(".md", "__a_" * 100_000), id="Markdown of underscores"),
        pytest.param(text_of(".txt", "a\f" * 300_000), id="300,000 pages"),
    ],
)
def test_a_hostile_text_takes_no_time(make: Make, tmp_path: Path) -> None:
    path, began = make(tmp_path / "a"), time.process_time()
    with suppress(DataError):
        read_page_texts(path)
    assert time.process_time() - began < 2
