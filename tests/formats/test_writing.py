"""The formats that a transcription is written in, each read back by something else than what wrote it."""

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pikepdf
import pypdfium2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree
from PIL import Image, ImageChops, ImageStat

from dsocr.document import Line, Outline, Page, ProcessingStep, Region
from dsocr.formats import OUTPUT_FORMATS, parse_xml_page
from dsocr.formats.pdf import page_image
from dsocr.images import decode_image
from tests.formats.making_pdf import image_object, jpeg, pdf_of_names, scan, write_pdf
from tests.inference.reading_pages import draw_page
from tests.raising import raises_code

STEP = ProcessingStep("dsocr", "1.2.3", "handwriting read", "run mine; unit line", "2026-01-02T03:04:05+00:00")
SCHEMAS = Path(__file__).parent / "schemas"
TEXTS = ["Ёжик шёл — «домой»", 'и нёс <яблоко> & "грушу"', "в 1905 г. 𝔄"]
POINTS = 72 / 300
"""Points per pixel."""
CEILING = 300
"""Megabytes over the start that writing may take."""


def written(format_: str, pages: Iterable[Page], path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    OUTPUT_FORMATS[format_].write_pages(pages, path, STEP)
    return path


def drawn_page(folder: Path) -> Page:
    """A page of three lines in two regions, the first with a confidence and a slanting baseline."""
    lines = []
    for number, (text, box) in enumerate(zip(TEXTS, draw_page(folder / "scan.png"), strict=True)):
        left, top, right, bottom = box
        corners = ((left, top), (right - 1, top), (right - 1, bottom - 1), (left, bottom - 1))
        outline = Outline(box, corners, ((left, bottom - 12), (right, bottom - 8)) if not number else ())
        prediction = {"confidence": 0.875} if not number else {}
        region = Region("r1" if number < 2 else "r2")
        lines.append(Line(text, f"scan.png#{number + 1}", outline, region, prediction=prediction))
    return Page(folder / "scan.png", "scan", "scan.png", tuple(lines), size=(600, 800))


def page_with_words(folder: Path, **prediction: Any) -> Page:
    """The first line, with confidences of two of its words."""
    words = [{"text": "Ёжик", "start": 0, "end": 4, "confidence": 0.25}, {"text": "—", "start": 9, "confidence": 1.0}]
    page = drawn_page(folder)
    line = replace(page.lines[0], prediction={"confidence": 0.875, "words": words, **prediction})
    return replace(page, lines=(line,))


def found(root: Any, path: str) -> list[Any]:
    return list(root.xpath(path))


def text_of_pdf(path: Path, page: int = 0) -> list[str]:
    with pypdfium2.PdfDocument(path) as pdf:
        return str(pdf[page].get_textpage().get_text_bounded()).split("\r\n")


def require_valid(root: Any, schema: str) -> None:
    etree.XMLSchema(etree.parse(SCHEMAS / schema)).assertValid(root)


@pytest.mark.parametrize(("name", "schema"), [("page", "page-2019-lines.xsd"), ("alto", "alto-4-2-lines.xsd")])
def test_xml_is_valid_and_holds_confidences_and_the_processing_step(name: str, schema: str, tmp_path: Path) -> None:
    path = written(name, [drawn_page(tmp_path)], tmp_path / "out.xml")
    require_valid(etree.parse(path), schema)
    seen = path.read_text(encoding="utf-8")
    assert [line.text for line in parse_xml_page(path).lines] == TEXTS
    assert ('WC="0.8750"' if name == "alto" else 'conf="0.8750"') in seen
    assert STEP.settings in seen


def test_alto_holds_the_confidence_of_each_word_and_character(tmp_path: Path) -> None:
    page = page_with_words(tmp_path, characters=[0.5, *[1.0] * (len(TEXTS[0]) - 1)])
    root = etree.parse(written("alto", [page], tmp_path / "out.xml"))
    require_valid(root, "alto-4-2-lines.xsd")
    strings = found(root, "//*[local-name()='String']")
    assert len({string.getprevious().tail for string in strings[1:]}) == 1, "each on a line of its own"
    stated = [(string.get("CONTENT"), string.get("WC")) for string in strings]
    assert stated == [("Ёжик", "0.2500"), ("шёл", "0.8750"), ("—", "1.0000"), ("«домой»", "0.8750")]
    assert [string.get("CC") for string in strings[:2]] == ["5 0 0 0", "0 0 0"]
    places = [(int(string.get("HPOS")), int(string.get("WIDTH"))) for string in strings]
    assert all(left + width <= then for (left, width), (then, _) in pairwise(places))
    assert (places[0][0], sum(places[-1])) == (40, 560)


def test_a_searchable_pdf_shows_the_scan_and_gives_the_text_back(tmp_path: Path) -> None:
    page = drawn_page(tmp_path)
    path = written("pdf", [page, page], tmp_path / "out.pdf")
    assert text_of_pdf(path) == text_of_pdf(path, 1) == TEXTS
    with pypdfium2.PdfDocument(path) as pdf:
        assert pdf[0].get_size() == pytest.approx((600 * POINTS, 800 * POINTS), abs=0.01)
        shown = pdf[0].render(scale=1 / POINTS).to_pil().convert("L")
        text = pdf[0].get_textpage()
        place = text.search("домой").get_next()
        left, bottom, right, top = text.get_rect(text.count_rects(*place) - 1)
    with Image.open(page.image) as original:
        difference = ImageChops.difference(shown, original.convert("L"))
    assert max(difference.tobytes()) <= 2, "the text is invisible"
    # A word is found where it is written.
    assert 40 * POINTS < left < right <= 560 * POINTS + 0.5
    assert 60 * POINTS < 800 * POINTS - top < 800 * POINTS - bottom < 115 * POINTS


def test_a_jpeg_is_embedded_in_the_pdf_unchanged(tmp_path: Path) -> None:
    page = drawn_page(tmp_path)
    buffer = io.BytesIO()
    Image.open(page.image).convert("RGB").save(buffer, "JPEG", dpi=(200, 200))
    (tmp_path / "scan.jpg").write_bytes(buffer.getvalue())
    path = written("pdf", [replace(page, image=tmp_path / "scan.jpg")], tmp_path / "out.pdf")
    assert buffer.getvalue() in path.read_bytes()
    with pypdfium2.PdfDocument(path) as pdf:
        assert pdf[0].get_size() == pytest.approx((216, 288), abs=0.01)


def test_a_pdf_larger_than_its_memory_is_whole_and_repeatable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.formats.pdf._MEMORY", 1)
    page = drawn_page(tmp_path)
    paths = [written("pdf", [page] * 4, tmp_path / name / "out.pdf") for name in ("a", "b")]
    assert [text_of_pdf(paths[0], number) for number in range(4)] == [TEXTS] * 4
    assert [path.name for path in paths[0].parent.iterdir()] == ["out.pdf"]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def peak_in_mb() -> int:
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) // 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs a peak that can be reset")
@pytest.mark.parametrize("names", [pytest.param(400_000, id="many"), pytest.param(30_000_000, id="87 kB, 3 GB")])
def test_a_pdf_of_many_objects_takes_little_memory_or_is_named(tmp_path: Path, names: int) -> None:
    source = pdf_of_names(tmp_path / "in.pdf", names)
    assert source.stat().st_size < 100_000
    line = Line("слово", "in.pdf", Outline((10, 10, 60, 30)))
    page = Page(source, "in_0001", "in.pdf#1", (line,), scan().size, content=partial(jpeg, scan()), number=1)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak
    before = peak_in_mb()
    if names < 10_000_000:
        with pikepdf.open(written("pdf", [page], tmp_path / "out.pdf")) as pdf:
            assert len(pdf.Root.PieceInfo) == names
    else:
        with raises_code("pdf-too-costly", "in.pdf"):
            written("pdf", [page], tmp_path / "out.pdf")
    assert peak_in_mb() - before < CEILING


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
        Page(source, "in", "in.pdf", (Line(f"слово {number}", "in.pdf"),), image.size, number=number, content=content)
        for number, image in zip((1, 3), shown, strict=True)
        for content in [partial(page_image, source, number)]
    ]
    out = written("pdf", pages, tmp_path / "out.pdf")
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


def page_with_places(folder: Path) -> Page:
    """A line of three words, where a model saw them: from 0.0 to 0.2, 0.25 to 0.5 and 0.6 to 1.0 of its width."""
    sides = {0: (0.0, 0.2), 3: (0.25, 0.5), 9: (0.6, 1.0)}
    words = [{"start": at, "confidence": 0.5, "left": a, "right": b} for at, (a, b) in sides.items()]
    page = drawn_page(folder)
    return replace(page, lines=(replace(page.lines[1], text="un petit mot", prediction={"words": words}),))


def test_word_boxes_are_where_the_words_were_seen(tmp_path: Path) -> None:
    page = page_with_places(tmp_path)
    box = page.lines[0].outline and page.lines[0].outline.box
    assert box
    left, top, right, bottom = box
    expected = [
        (left + round(a * (right - left)), left + round(b * (right - left)))
        for a, b in ((0, 0.2), (0.25, 0.5), (0.6, 1))
    ]

    alto = etree.parse(written("alto", [page], tmp_path / "alto.xml"))
    strings = [dict(one.attrib) for one in found(alto, "//*[local-name()='String']")]
    assert [(int(one["HPOS"]), int(one["HPOS"]) + int(one["WIDTH"])) for one in strings] == expected

    hocr = written("hocr", [page], tmp_path / "page.hocr").read_text(encoding="utf-8")
    boxes = [tuple(map(int, one.split())) for one in re.findall(r"ocrx_word[^>]*bbox ([\d ]+)", hocr)]
    assert boxes == [(begin, top, end, bottom) for begin, end in expected]

    path = written("page", [page], tmp_path / "page.xml")
    require_valid(etree.parse(path), "page-2019-lines.xsd")
    coords = [
        one.get("points").split()
        for one in found(etree.parse(path), "//*[local-name()='Word']/*[local-name()='Coords']")
    ]
    assert [(int(one[0].split(",")[0]), int(one[1].split(",")[0]) + 1) for one in coords] == expected
    assert [line.text for line in parse_xml_page(path).lines] == ["un petit mot"]

    pdf = written("pdf", [page], tmp_path / "page.pdf")
    assert text_of_pdf(pdf) == ["un petit mot"]
    with pypdfium2.PdfDocument(pdf) as opened:
        text = opened[0].get_textpage()
        starts = [text.get_charbox(at)[0] / POINTS for at in (0, 3, 9)]
    assert starts == pytest.approx([begin for begin, _ in expected], abs=4)


def test_hocr_is_xhtml_with_boxes_and_confidences(tmp_path: Path) -> None:
    path = written("hocr", [drawn_page(tmp_path)], tmp_path / "out.hocr")
    root = etree.parse(path, etree.XMLParser(load_dtd=False, no_network=True))
    lines = found(root, "//*[@class='ocr_line']")
    assert ["".join(line.itertext()) for line in lines] == TEXTS
    assert lines[0].get("title") == "bbox 40 60 560 110; baseline 0.0077 -12"
    words = found(root, "//*[@class='ocrx_word']")
    boxes = [list(map(int, re.findall(r"\d+", word.get("title"))[:4])) for word in words[:4]]
    assert all(a[2] <= b[0] for a, b in pairwise(boxes[:3])), "words are beside each other"
    assert words[0].get("title").endswith("x_wconf 88")
    path = written("hocr", [page_with_words(tmp_path)], tmp_path / "words.hocr")
    assert re.findall(r"x_wconf (\d+)", path.read_text(encoding="utf-8")) == ["25", "88", "100", "88"]


def test_tei_is_well_formed_and_points_at_its_zones(tmp_path: Path) -> None:
    root = etree.parse(written("tei", [drawn_page(tmp_path)] * 2, tmp_path / "out.tei"))
    ids = found(root, "//@xml:id")
    assert len(ids) == len(set(ids)) == 8
    assert {reference.removeprefix("#") for reference in found(root, "//@facs")} == set(ids)
    assert [text.strip() for text in found(root, "//*[local-name()='lb']/following-sibling::text()[1]")] == TEXTS * 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@example([r"~~зачёркнуто~~ и \сверху/", "сло[?]во слово[?]", "[нрзб] и [unclear]"])
@given(st.lists(st.text(r"~\/[?]<>& ab", max_size=12), min_size=3, max_size=3))
def test_marks_are_elements_in_tei_and_never_break_it(tmp_path: Path, texts: list[str]) -> None:
    page = Page(Path("p.png"), "p", "p", tuple(Line(text or "-", "p") for text in texts), size=(60, 80))
    root = etree.parse(written("tei", [page], tmp_path / "out.tei"))
    marks = {"del", "add", "unclear", "gap"}
    names = [
        etree.QName(element).localname
        for element in found(root, "//*[local-name()='body']/descendant-or-self::*")
        if element.text != ""
    ]
    if "[нрзб] и [unclear]" in texts:
        assert [name for name in names if name in marks] == ["del", "add", "unclear", "unclear", "gap", "gap"]
    assert set(names) <= marks | {"body", "div", "pb", "p", "lb"}


def test_running_text_has_regions_and_pages(tmp_path: Path) -> None:
    path = written("text", [drawn_page(tmp_path)] * 2, tmp_path / "out.txt")
    seen = "\n".join(TEXTS[:2]) + "\n\n" + TEXTS[2] + "\n"
    assert path.read_text(encoding="utf-8") == f"{seen}\f{seen}"
