"""Documents that a source is converted to: text, TEI, PDF and DOCX say what the pages say."""

import re
from collections.abc import Callable
from pathlib import Path

import pypdfium2
import pytest
from docx import Document
from lxml import etree

from dsocr.data.convert import convert
from dsocr.document import Page
from dsocr.formats.alto import read_alto
from tests.data.making import alto, alto_line, picture, write, write_pages
from tests.raising import raises_code

LINES = [f"{page} строка {line}" for page in ("1", "2") for line in range(3)]


def words_of_text(path: Path) -> list[str]:
    return path.read_text("utf-8").replace("\f", "").splitlines()


def words_of_tei(path: Path) -> list[str]:
    root = etree.parse(path).getroot()
    assert "not corrected" not in etree.tostring(root, encoding="unicode")
    assert len(root.findall(".//{*}zone")) == len(LINES)
    return [(element.tail or "").strip() for element in root.iter("{*}lb")]


def words_of_pdf(path: Path) -> list[str]:
    with pypdfium2.PdfDocument(path) as document:
        texts = [page.get_textpage().get_text_range() for page in document]
    assert len(texts) == 2
    return re.findall(r"\d строка \d", " ".join(texts))


def words_of_docx(path: Path) -> list[str]:
    styled = [
        (paragraph.style and paragraph.style.name, paragraph.text.strip())
        for paragraph in Document(str(path)).paragraphs
    ]
    assert [text for style, text in styled if style == "Heading 2"] == ["1", "2"]
    return [line for style, text in styled if style == "Normal" for line in text.splitlines()]


READERS = {"text": words_of_text, "tei": words_of_tei, "pdf": words_of_pdf, "docx": words_of_docx}
SUFFIXES = {"text": "txt"}


@pytest.mark.parametrize(("to", "read"), READERS.items())
def test_a_document_has_all_texts_in_order(to: str, read: Callable[[Path], list[str]], tmp_path: Path) -> None:
    source = write_pages(tmp_path / "s", ["1", "2"])
    report = convert(source, tmp_path / "out", to=to)
    document = tmp_path / "out" / f"transcription.{SUFFIXES.get(to, to)}"
    assert read(document) == LINES
    assert (report.conversion.images, report.conversion.lines) == (2, 6)
    assert document.name in report.next
    (source / "2.png").write_bytes(b"damaged")
    again = convert(source, tmp_path / "again", to=to)
    assert again.conversion.images == (1 if to in {"tei", "pdf"} else 2)
    if to in {"text", "docx"}:
        assert (tmp_path / "again" / document.name).read_bytes() == document.read_bytes()


def test_without_a_format_a_source_keeps_its_own(tmp_path: Path) -> None:
    picture(tmp_path / "s" / "p.png")
    write(tmp_path / "s" / "p.xml", alto(alto_line("строка")))
    convert(tmp_path / "s", tmp_path / "out")
    (page,) = (item for item in read_alto(tmp_path / "out") if isinstance(item, Page))
    assert page.lines[0].text == "строка"
    write(tmp_path / "t" / "t.csv", "image,text\np.png,строка\n")
    picture(tmp_path / "t" / "p.png")
    assert convert(tmp_path / "t", tmp_path / "table").conversion.target == "tsv"
    with raises_code("format-unknown"):
        convert(tmp_path / "s", tmp_path / "new", to="odt")
