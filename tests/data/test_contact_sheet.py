"""Sheets of samples: a page with texts, or a PNG without."""

import base64
import io
import re
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.contact_sheet import SheetRow, sheet_writer
from tests.raising import raises_code

ROWS = [
    SheetRow("<b>ёж & Ко</b>", "train/1.png, writer <i>", [("original", Image.new("L", (300, 60), 200))] * 3),
    SheetRow("line\nbreak", "train/2.png", [("original", Image.new("RGB", (3000, 90), "navy"))] * 3),
]


def test_a_page_holds_every_picture_and_every_text_escaped(tmp_path: Path) -> None:
    sheet_writer(tmp_path / "s.html")("Письма <1>", ROWS)
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;ёж &amp; Ко&lt;/b&gt;" in page
    assert "writer &lt;i&gt;" in page
    assert "<title>Письма &lt;1&gt;</title>" in page
    assert "<script" not in page
    assert not re.search("https?:", page)
    pictures = [
        Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall(r"data:image/jpeg;base64,([^\"]+)", page)
    ]
    assert [picture.width for picture in pictures] == [300] * 3 + [720] * 3


def test_a_png_lays_rows_and_columns_side_by_side(tmp_path: Path) -> None:
    sheet_writer(tmp_path / "s.PNG")("title", ROWS)
    with Image.open(tmp_path / "s.PNG") as sheet:
        assert sheet.size == (3 * 728 + 8, 60 + 22 + 3 * 8)
        assert sheet.getpixel((10, 10)) == (200, 200, 200)
        assert sheet.getpixel((2 * 728 + 10, 80)) == (0, 0, 128)


@pytest.mark.parametrize(
    ("name", "code"),
    [("sheet.gif", "sheet-format"), ("sheet", "sheet-format"), ("nowhere/sheet.html", "output-folder-missing")],
)
def test_wrong_path_is_an_error_before_images_are_made(name: str, code: str, tmp_path: Path) -> None:
    with raises_code(code):
        sheet_writer(tmp_path / name)
