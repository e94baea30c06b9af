"""PDF files: scans come out as they are stored, other pages are rendered, texts find their pages."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from dsocr.data.prepare import prepare
from dsocr.document import SkipReason
from dsocr.formats import pdf
from dsocr.formats.pdf import count_pages, find_pdf, page_image, page_texts
from dsocr.images import decode_image
from dsocr.io.processes import LimitedProcess
from tests.data.hostile_files import letters_pdf
from tests.data.making import write
from tests.formats.making_pdf import encrypted_pdf, image_object, jpeg, scan, write_pdf
from tests.formats.reading import pages, read, skipped, texts
from tests.raising import raises_code

SCAN = scan()
DRAW = "q 96 0 0 144 0 0 cm /Im Do Q"
HIDDEN = f"{DRAW} BT 3 Tr /F 12 Tf 10 10 Td (hidden) Tj ET"


def looks_like(data: bytes, image: Image.Image) -> bool:
    shown = decode_image(data, name="p").image.convert("RGB")
    expected = image.resize(shown.size)
    return float(np.abs(np.asarray(shown, int) - np.asarray(expected, int)).mean()) < 6


@pytest.mark.parametrize("draw", [DRAW, HIDDEN], ids=["alone", "with hidden text"])
def test_a_scanned_jpeg_comes_out_byte_for_byte(tmp_path: Path, draw: str) -> None:
    path = write_pdf(tmp_path / "a.pdf", [image_object(SCAN)], draw=draw)
    assert page_image(path, 1) == jpeg(SCAN)


def test_another_scan_comes_out_pixel_for_pixel(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [image_object(SCAN, as_jpeg=False)])
    picture = decode_image(page_image(path, 1), name="a").image
    assert picture.tobytes() == SCAN.tobytes()


@pytest.mark.parametrize(
    ("mode", "bits", "space"),
    [
        pytest.param("L", 8, "DeviceGray", id="grey"),
        pytest.param("1", 1, "DeviceGray", id="black and white"),
        pytest.param("P", 8, "[/Indexed /DeviceRGB 255 <{palette}>]", id="a palette"),
    ],
)
def test_scans_of_few_colours_come_out_pixel_for_pixel(tmp_path: Path, mode: str, bits: int, space: str) -> None:
    picture = SCAN.convert(mode)
    palette = bytes(picture.getpalette() or []).ljust(768, b"\0").hex()
    colours = f"/{space}" if space.isalpha() else space.format(palette=palette)
    size = f"/Width {picture.width} /Height {picture.height} /BitsPerComponent {bits}"
    data = (f"/Type /XObject /Subtype /Image {size} /ColorSpace {colours}", picture.tobytes())
    found = decode_image(page_image(write_pdf(tmp_path / "a.pdf", [data]), 1), name="a").image
    assert found.convert("RGB").tobytes() == picture.convert("RGB").tobytes()


@pytest.mark.parametrize(
    ("draw", "page", "more", "shown"),
    [
        pytest.param(DRAW, "/Rotate 180", "", SCAN.rotate(180), id="a turned page"),
        pytest.param("q -96 0 0 -144 96 144 cm /Im Do Q", "", "", SCAN.rotate(180), id="a turned image"),
        pytest.param("q 96 0 0 -144 0 144 cm /Im Do Q", "", "", ImageOps.flip(SCAN), id="a mirrored image"),
        pytest.param(DRAW, "", "/Decode [1 0 1 0 1 0]", ImageOps.invert(SCAN), id="a negative"),
    ],
)
def test_a_page_that_shows_its_image_otherwise_is_rendered(
    tmp_path: Path, draw: str, page: str, more: str, shown: Image.Image
) -> None:
    path = write_pdf(tmp_path / "a.pdf", [image_object(SCAN, more=more)], draw=draw, page=page)
    data = page_image(path, 1)
    assert decode_image(data, name="a").image.size == (400, 600), "96 x 144 points at 300 dpi"
    assert looks_like(data, shown)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param("q 48 0 0 72 40 60 cm /Im Do Q", id="an image with a border"),
        pytest.param("q 96 0 0 144 0 0 cm /Im Do Q BT /F 12 Tf 10 10 Td (note) Tj ET", id="an image and a text"),
        pytest.param("q 96 0 0 144 0 0 cm /Im Do Q 0 0 9 9 re f", id="an image and a drawing"),
        pytest.param("0 0 40 40 re f", id="no image"),
    ],
)
def test_a_page_with_more_than_a_scan_is_rendered(tmp_path: Path, draw: str) -> None:
    path = write_pdf(tmp_path / "a.pdf", [image_object(SCAN)], draw=draw)
    assert decode_image(page_image(path, 1), name="a").image.size == (400, 600)


def test_a_page_too_large_to_render_is_an_error(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [image_object(SCAN)], box=(14400, 14400))
    with raises_code("pdf-too-costly", "a.pdf#1"):
        page_image(path, 1)


def test_an_image_that_would_fill_the_memory_is_an_error_by_its_stated_size(tmp_path: Path) -> None:
    head = "/Type /XObject /Subtype /Image /Width 60000 /Height 90000 /BitsPerComponent 8 /ColorSpace /DeviceRGB"
    path = write_pdf(tmp_path / "a.pdf", [(head, bytes(100))])
    with raises_code("pdf-too-costly", "a.pdf#1"):
        page_image(path, 1)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(b"%PDF-1.4 and no more", "pdf-damaged", id="cut off"),
        pytest.param(b"", "pdf-damaged", id="empty file"),
        pytest.param(None, "pdf-damaged", id="no pages"),
        pytest.param(encrypted_pdf(), "pdf-encrypted", id="encrypted"),
    ],
)
def test_a_pdf_that_cannot_be_opened_is_an_error(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = write_pdf(tmp_path / "a.pdf", [])
    if content is not None:
        path.write_bytes(content)
    with raises_code(code, "a.pdf"):
        count_pages(path)


@pytest.mark.parametrize(
    ("name", "number", "code"),
    [("a.pdf", 0, "pdf-damaged"), ("a.pdf", 2, "pdf-damaged"), ("b.pdf", 1, "input-missing")],
)
def test_a_missing_page_is_an_error(tmp_path: Path, name: str, number: int, code: str) -> None:
    write_pdf(tmp_path / "a.pdf", [image_object(SCAN)])
    with raises_code(code):
        page_image(tmp_path / name, number)


HEAVY = 500_000
"""Letters of a page that takes more memory than the tests allow; a page of a book has 3,000."""


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the memory that PDFium has usually, so that a page too heavy takes no time to make."""
    monkeypatch.setattr(pdf, "_PDFIUM", LimitedProcess(memory=256 * 2**20, seconds=60))


@pytest.mark.usefixtures("tight")
def test_a_page_that_takes_too_much_memory_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    letters_pdf(tmp_path / "s", [3, HEAVY, 3])
    path = tmp_path / "s" / "bomb.pdf"
    with raises_code("pdf-too-costly", "bomb.pdf#2") as error:
        page_texts(path)
    assert decode_image(page_image(path, 3), name="a").image.size == (251, 251)
    assert "image" in (error.value.hint or ""), "the remedy is an image of the page"


def three_pages(folder: Path, name: str = "a") -> Path:
    return write_pdf(folder / f"{name}.pdf", [image_object(scan(place=place)) for place in (0, 20, 40)])


@pytest.mark.parametrize(
    ("files", "where"),
    [
        pytest.param({"a.txt": "раз\n\fдва\n\fтри\n\f"}, "a.txt#2", id="form feeds as pdftotext writes them"),
        pytest.param({"a.txt": "раз\fдва\fтри"}, "a.txt#2", id="form feeds between pages"),
        pytest.param({"a_1.txt": "раз", "a_2.txt": "два", "a_3.txt": "три"}, "a_2.txt", id="numbered"),
        pytest.param({"a-01.txt": "раз", "a_0002.txt": "два", "a-3.txt": "три"}, "a_0002.txt", id="with zeros"),
    ],
)
def test_texts_find_their_pages(tmp_path: Path, files: dict[str, str], where: str) -> None:
    three_pages(tmp_path)
    for name, text in files.items():
        write(tmp_path / name, text)
    found = pages(read("pdf", tmp_path / "a.pdf"))
    assert [text.strip() for text in texts(found)] == ["раз", "два", "три"]
    assert (found[1].name, found[1].page, found[1].where) == ("a_0002", "a_0002", where)
    assert pickle.loads(pickle.dumps(found[1].content))() == jpeg(scan(place=20))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"a.txt": "раз\fдва"}, (SkipReason.BAD_SOURCE, "a.pdf"), id="pages missing"),
        pytest.param({"a.txt": "1\f2\f3\f4"}, (SkipReason.BAD_SOURCE, "a.pdf"), id="too many"),
        pytest.param({"a.txt": "1\f2\f3", "a_1.txt": "1"}, (SkipReason.BAD_SOURCE, "a.pdf"), id="both kinds"),
        pytest.param({"a_1.txt": "1", "a_01.txt": "1"}, (SkipReason.BAD_SOURCE, "a.pdf"), id="twice"),
        pytest.param({"a_9.txt": "9"}, (SkipReason.NO_IMAGE, "a_9.txt"), id="no such page"),
        pytest.param({"a_2.txt": "2"}, (SkipReason.NO_TRANSCRIPTION, "a.pdf#1"), id="not all yet"),
        pytest.param({"b.txt": "b"}, (SkipReason.NO_TRANSCRIPTION, "a.pdf"), id="no text"),
    ],
)
def test_texts_that_do_not_match_a_page_are_skipped(
    tmp_path: Path, files: dict[str, str], expected: tuple[SkipReason, str]
) -> None:
    three_pages(tmp_path)
    for name, text in files.items():
        write(tmp_path / name, text)
    assert expected in skipped(read("pdf", tmp_path))


def test_a_number_in_a_name_is_not_a_page(tmp_path: Path) -> None:
    three_pages(tmp_path, "box")
    three_pages(tmp_path, "box_1")
    write(tmp_path / "box_1.txt", "раз\fдва\fтри")
    assert find_pdf(tmp_path) == [tmp_path / "box_1.pdf"]


def test_pages_cannot_be_taken_apart(tmp_path: Path) -> None:
    three_pages(tmp_path / "s")
    write(tmp_path / "s" / "a.txt", "1\f2\f3")
    with raises_code("unit-unsupported"):
        prepare(tmp_path / "s", tmp_path / "out", unit="line")
