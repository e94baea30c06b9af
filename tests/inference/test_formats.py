"""The formats that a transcription is written in, each read back by something else than what wrote it."""

import io
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pikepdf
import pypdfium2
import pytest
from lxml import etree
from PIL import Image, ImageChops, ImageStat

from dsocr.document import Line, Outline, Page, ProcessingStep, Region
from dsocr.errors import DataError
from dsocr.formats import OUTPUT_FORMATS, output_formats, parse_xml_page
from dsocr.formats.pdf import page_image
from dsocr.images import decode_image
from tests.data.making_pdf import image_object, scan, write_pdf
from tests.inference.reading_pages import draw_page

STEP = ProcessingStep("dsocr", "1.2.3", "handwriting read", "run mine; unit line", "2026-01-02T03:04:05+00:00")
SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
TEXTS = ["Ёжик шёл — «домой»", 'и нёс <яблоко> & "грушу"', "в 1905 г. 𝔄"]


def read_page(folder: Path, name: str = "scan.png") -> Page:
    """A page of three lines in two regions, the first with a confidence and a slanting baseline."""
    boxes = draw_page(folder / name)
    lines = []
    for number, (text, box) in enumerate(zip(TEXTS, boxes, strict=True)):
        left, top, right, bottom = box
        corners = ((left, top), (right - 1, top), (right - 1, bottom - 1), (left, bottom - 1))
        outline = Outline(box, corners, ((left, bottom - 12), (right, bottom - 8)) if not number else ())
        prediction = {"confidence": 0.875} if not number else {}
        region = Region("r1" if number < 2 else "r2")
        lines.append(Line(text, f"{name}#{number + 1}", outline, region, prediction=prediction))
    return Page(folder / name, Path(name).stem, name, tuple(lines), size=(600, 800))


def found(root: Any, path: str) -> list[Any]:
    return list(root.xpath(path))


def text_of_pdf(path: Path, page: int = 0) -> list[str]:
    pdf = pypdfium2.PdfDocument(path)
    try:
        text: str = pdf[page].get_textpage().get_text_bounded()
        return text.split("\r\n")
    finally:
        pdf.close()


@pytest.mark.parametrize(("name", "schema"), [("page", "page-2019-lines.xsd"), ("alto", "alto-4-2-lines.xsd")])
def test_markup_is_valid_and_holds_confidences_and_the_processing_step(name: str, schema: str, tmp_path: Path) -> None:
    OUTPUT_FORMATS[name].write_pages([read_page(tmp_path)], tmp_path / "out.xml", STEP)
    root = etree.parse(tmp_path / "out.xml")
    etree.XMLSchema(etree.parse(SCHEMAS / schema)).assertValid(root)
    seen = (tmp_path / "out.xml").read_text(encoding="utf-8")
    assert [line.text for line in parse_xml_page(tmp_path / "out.xml").lines] == TEXTS
    assert ('WC="0.8750"' if name == "alto" else 'conf="0.8750"') in seen
    assert "run mine; unit line" in seen


def test_alto_holds_the_confidence_of_each_word_and_character(tmp_path: Path) -> None:
    page = read_page(tmp_path)
    words = [{"text": "Ёжик", "start": 0, "end": 4, "confidence": 0.25}, {"text": "—", "start": 9, "confidence": 1.0}]
    characters = [0.5, *[1.0] * (len(TEXTS[0]) - 1)]
    line = replace(page.lines[0], prediction={"confidence": 0.875, "words": words, "characters": characters})
    OUTPUT_FORMATS["alto"].write_pages([replace(page, lines=(line,))], tmp_path / "out.xml", STEP)
    root = etree.parse(tmp_path / "out.xml")
    etree.XMLSchema(etree.parse(SCHEMAS / "alto-4-2-lines.xsd")).assertValid(root)
    strings = found(root, "//*[local-name()='String']")
    assert len({string.getprevious().tail for string in strings[1:]}) == 1, "each on a line of its own"
    assert [(string.get("CONTENT"), string.get("WC")) for string in strings] == [
        ("Ёжик", "0.2500"),
        ("шёл", "0.8750"),
        ("—", "1.0000"),
        ("«домой»", "0.8750"),
    ]
    assert [string.get("CC") for string in strings[:2]] == ["5 0 0 0", "0 0 0"]
    places = [(int(string.get("HPOS")), int(string.get("WIDTH"))) for string in strings]
    assert all(left + width <= then for (left, width), (then, _) in pairwise(places))
    assert (places[0][0], sum(places[-1])) == (40, 560)


def test_a_searchable_pdf_shows_the_scan_and_gives_the_text_back(tmp_path: Path) -> None:
    page = read_page(tmp_path)
    OUTPUT_FORMATS["pdf"].write_pages([page, page], tmp_path / "out.pdf", STEP)
    assert text_of_pdf(tmp_path / "out.pdf") == text_of_pdf(tmp_path / "out.pdf", 1) == TEXTS
    pdf = pypdfium2.PdfDocument(tmp_path / "out.pdf")
    try:
        assert pdf[0].get_size() == pytest.approx((600 * 72 / 300, 800 * 72 / 300), abs=0.01)
        shown = pdf[0].render(scale=300 / 72).to_pil().convert("L")
    finally:
        pdf.close()
    with Image.open(tmp_path / "scan.png") as original:
        assert shown.size == original.size
        difference = max(abs(a - b) for a, b in zip(shown.tobytes(), original.tobytes(), strict=True))
    assert difference <= 2, "the text is invisible"


def test_a_word_is_found_where_it_is_written(tmp_path: Path) -> None:
    OUTPUT_FORMATS["pdf"].write_pages([read_page(tmp_path)], tmp_path / "out.pdf", STEP)
    pdf = pypdfium2.PdfDocument(tmp_path / "out.pdf")
    try:
        text = pdf[0].get_textpage()
        found = text.search("домой").get_next()
        assert found is not None
        left, bottom, right, top = text.get_rect(text.count_rects(*found) - 1)
    finally:
        pdf.close()
    points = 72 / 300
    assert 40 * points < left < right <= 560 * points + 0.5
    assert 60 * points < 800 * points - top < 800 * points - bottom < 115 * points


def test_a_jpeg_is_embedded_in_the_pdf_unchanged(tmp_path: Path) -> None:
    page = read_page(tmp_path)
    buffer = io.BytesIO()
    Image.open(tmp_path / "scan.png").convert("RGB").save(buffer, "JPEG", dpi=(200, 200))
    (tmp_path / "scan.jpg").write_bytes(buffer.getvalue())
    jpeg = replace(page, image=tmp_path / "scan.jpg")
    OUTPUT_FORMATS["pdf"].write_pages([jpeg], tmp_path / "out.pdf", STEP)
    assert buffer.getvalue() in (tmp_path / "out.pdf").read_bytes()
    pdf = pypdfium2.PdfDocument(tmp_path / "out.pdf")
    try:
        assert pdf[0].get_size() == pytest.approx((216, 288), abs=0.01)
    finally:
        pdf.close()


def test_a_pdf_larger_than_its_memory_is_whole_and_repeatable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.formats.pdf._MEMORY", 1)
    page = read_page(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        OUTPUT_FORMATS["pdf"].write_pages([page] * 4, tmp_path / name / "out.pdf", STEP)
        assert [text_of_pdf(tmp_path / name / "out.pdf", number) for number in range(4)] == [TEXTS] * 4
        assert [path.name for path in (tmp_path / name).iterdir()] == ["out.pdf"]
    assert (tmp_path / "a" / "out.pdf").read_bytes() == (tmp_path / "b" / "out.pdf").read_bytes()


def test_pages_of_a_pdf_keep_their_size(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "in.pdf", [image_object(scan())])
    line = Line("слово\nи дело", "in.pdf#1")
    page = Page(path, "in_0001", "in.pdf#1", (line,), (200, 300), content=partial(page_image, path, 1), number=1)
    OUTPUT_FORMATS["pdf"].write_pages([page], tmp_path / "o.pdf", STEP)
    assert text_of_pdf(tmp_path / "o.pdf") == ["слово", "и дело"]
    pdf = pypdfium2.PdfDocument(tmp_path / "o.pdf")
    try:
        assert pdf[0].get_size() == pytest.approx((96, 144), abs=0.01)
    finally:
        pdf.close()


def test_hocr_is_xhtml_with_boxes(tmp_path: Path) -> None:
    OUTPUT_FORMATS["hocr"].write_pages([read_page(tmp_path)], tmp_path / "out.hocr", STEP)
    parser = etree.XMLParser(load_dtd=False, no_network=True)
    root = etree.parse(tmp_path / "out.hocr", parser)
    lines = found(root, "//*[@class='ocr_line']")
    assert ["".join(line.itertext()) for line in lines] == TEXTS
    assert lines[0].get("title") == "bbox 40 60 560 110; baseline 0.0077 -12"
    words = found(root, "//*[@class='ocrx_word']")
    boxes = [list(map(int, re.findall(r"\d+", word.get("title"))[:4])) for word in words[:4]]
    assert all(a[2] <= b[0] for a, b in pairwise(boxes[:3])), "words stand beside each other"
    assert words[0].get("title").endswith("x_wconf 88")


def test_hocr_holds_the_confidence_of_each_word(tmp_path: Path) -> None:
    page = read_page(tmp_path)
    words = [{"text": "Ёжик", "start": 0, "end": 4, "confidence": 0.25}, {"text": "—", "start": 9, "confidence": 1.0}]
    line = replace(page.lines[0], prediction={"confidence": 0.875, "words": words})
    OUTPUT_FORMATS["hocr"].write_pages([replace(page, lines=(line,))], tmp_path / "out.hocr", STEP)
    seen = (tmp_path / "out.hocr").read_text(encoding="utf-8")
    assert re.findall(r"x_wconf (\d+)", seen) == ["25", "88", "100", "88"]


def test_tei_is_well_formed_and_points_at_its_zones(tmp_path: Path) -> None:
    OUTPUT_FORMATS["tei"].write_pages([read_page(tmp_path), read_page(tmp_path)], tmp_path / "out.tei", STEP)
    root = etree.parse(tmp_path / "out.tei")
    ids = found(root, "//@xml:id")
    assert len(ids) == len(set(ids)) == 8
    pointed = [reference.removeprefix("#") for reference in found(root, "//@facs")]
    assert set(pointed) == set(ids)
    assert [text.strip() for text in found(root, "//*[local-name()='lb']/following-sibling::text()[1]")] == TEXTS * 2


def test_running_text_has_regions_and_pages(tmp_path: Path) -> None:
    page = read_page(tmp_path)
    OUTPUT_FORMATS["text"].write_pages([page, page], tmp_path / "out.txt", STEP)
    seen = "\n".join(TEXTS[:2]) + "\n\n" + TEXTS[2] + "\n"
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == f"{seen}\f{seen}"


@pytest.mark.parametrize(
    ("out", "names", "kinds", "chosen"),
    [
        pytest.param("a.txt", [], ["image"], (["text"], False), id="by its ending"),
        pytest.param("a", [], ["markup"], (["filled"], True), id="ALTO and PAGE come back"),
        pytest.param("a", [], ["image", "pdf"], (["page"], True), id="a folder without a format: PAGE"),
        pytest.param("a.xml", [], ["markup"], (["filled"], False), id="a single one"),
        pytest.param("a.xml", ["alto"], ["image"], (["alto"], False), id="a single page"),
        pytest.param("a", ["alto", "pdf"], ["image"], (["alto", "pdf"], True), id="two formats"),
        pytest.param("box.1905", ["text"], ["image"], (["text"], True), id="a folder with a point in its name"),
    ],
)
def test_formats_are_chosen(out: str, names: list[str], kinds: list[str], chosen: tuple[list[str], bool]) -> None:
    formats, is_folder = output_formats(Path("nowhere") / out, names, all_xml=kinds == ["markup"])
    assert ([format_.name for format_ in formats], is_folder) == chosen


@pytest.mark.parametrize(
    ("out", "names", "message"),
    [
        pytest.param("a.xml", [], "both PAGE and ALTO", id="XML of which kind"),
        pytest.param("a.docx", [], "no kind of output", id="unknown ending"),
        pytest.param("a.txt", ["text", "jsonl"], "one format", id="two formats in a file"),
        pytest.param("a", ["word"], "unknown output format", id="unknown format"),
    ],
)
def test_conflicting_formats_are_an_error(out: str, names: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        output_formats(Path("nowhere") / out, names, all_xml=False)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_pdf_keeps_bookmarks_title_author_and_annotations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotation: int
) -> None:
    monkeypatch.setattr("dsocr.formats.pdf._MEMORY", 1)  # saved and opened again after each page
    scans = [image_object(scan(place=place)) for place in (0, 9, 18)]
    source = write_pdf(
        tmp_path / "in.pdf",
        scans,
        box=(106, 164),
        page=f"/Rotate {rotation} /CropBox [10 20 106 164]",
        draw="q 96 0 0 144 10 20 cm /Im Do Q",
    )
    with pikepdf.open(source, allow_overwriting_input=True) as pdf:
        pdf.docinfo["/Title"], pdf.docinfo["/Author"] = "Письма", "Анна"
        with pdf.open_outline() as outline:
            outline.root += [pikepdf.OutlineItem(f"Письмо {number}", number - 1) for number in (1, 3)]
        link = pikepdf.Dictionary(
            Type=pikepdf.Name.Annot,
            Subtype=pikepdf.Name.Link,
            Rect=[10, 20, 58, 164],
            Dest=[pdf.pages[2].obj, pikepdf.Name.Fit],
        )
        pdf.pages[0].Annots = [pdf.make_indirect(link)]
        pdf.save()
    shown = [decode_image(page_image(source, number), name="in").image for number in (1, 3)]
    pages = [
        Page(
            source,
            f"in_{number:04d}",
            f"in.pdf#{number}",
            (Line(f"слово {number}", "in.pdf"),),
            image.size,
            content=partial(page_image, source, number),
            number=number,
        )
        for number, image in zip((1, 3), shown, strict=True)
    ]
    out = tmp_path / "out.pdf"
    OUTPUT_FORMATS["pdf"].write_pages(pages, out, STEP)
    with pikepdf.open(out) as pdf:
        assert (str(pdf.docinfo["/Title"]), str(pdf.docinfo["/Author"])) == ("Письма", "Анна")
        with pdf.open_outline() as outline:
            assert [item.title for item in outline.root] == ["Письмо 1", "Письмо 3"]
            assert [pdf.pages.index(pikepdf.Page(item.destination[0])) for item in outline.root] == [0, 1]
        (annotation,) = pdf.pages[0].Annots
        across, up = (48, 144) if rotation in {0, 180} else (144, 48)
        left, bottom, right, top = map(float, annotation.Rect)
        assert (right - left, top - bottom) == (across, up)
        assert pdf.pages.index(pikepdf.Page(annotation.Dest[0])) == 1
        images = [item for item in pdf.objects if isinstance(item, pikepdf.Stream) and item.get("/Subtype") == "/Image"]
        assert len(images) == 2, "each page image is stored once"
    for number, (page, image) in enumerate(zip(pages, shown, strict=True), start=1):
        assert text_of_pdf(out, number - 1) == [page.lines[0].text]
        again = decode_image(page_image(out, number), name="out").image.resize((96, 144))
        difference = ImageChops.difference(again.convert("L"), image.convert("L").resize((96, 144)))
        assert ImageStat.Stat(difference).mean[0] < 4
    with pypdfium2.PdfDocument(source) as before, pypdfium2.PdfDocument(out) as after:
        assert after[0].get_size() == pytest.approx(before[0].get_size())
