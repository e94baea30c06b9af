"""Documents to read: text, JSON lines, hOCR, TEI and Word, and sources converted to one as text, TEI, PDF or Word.

hOCR 1.2 is XHTML with the box of each page, region, line and word: words that no reader has seen share the width of
their line by their number of characters, and have its confidence. TEI P5 is a facsimile with the zones of lines, and
the text with its line beginnings.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, cast
from xml.sax.saxutils import escape, quoteattr

from dsocr import __version__
from dsocr.document import (
    Box,
    Line,
    Outline,
    Page,
    ProcessingStep,
    Skipped,
    SkipReason,
    bounds_of_boxes,
    format_points,
    word_boxes,
)
from dsocr.errors import DataError
from dsocr.formats.format import Format, WritePage, Written, image_bytes
from dsocr.formats.xml import group_by_region, replace_forbidden
from dsocr.images import decode_image, scale_line
from dsocr.io.files import current_time

DOCUMENTS = ("text", "tei", "pdf", "docx")
"""Formats of documents that a source can be converted to, though they are no source of pages."""

_NAME = "transcription"
"""The name of a conversion's document."""
_SHOW_IMAGES = frozenset({"tei", "pdf"})
"""Formats that say where on the image a line is."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def write_text(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write the texts of all pages in order: a blank line between regions, a form feed between pages.

    The text of a line image follows its place and a tab.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        separator = ""
        for page in pages:
            if page.unit == "line":
                for line in page.lines:
                    file.write(f"{line.where}\t{line.text.replace(chr(10), ' / ')}\n")
                continue
            regions = groupby(page.transcribed_lines, key=lambda line: line.region)
            texts = ("\n".join(line.text for line in lines) for _, lines in regions)
            file.write(separator + "\n\n".join(texts) + "\n")
            separator = "\f"


def write_json_lines(pages: Iterable[Page], path: Path, step: ProcessingStep, *, characters: bool = False) -> None:
    """Write a JSON object for each line, with or without text, pages and lines in order."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for page in pages:
            for line in page.lines:
                file.write(json.dumps(line_row(page, line, characters=characters), ensure_ascii=False) + "\n")


def line_row(page: Page, line: Line, *, characters: bool = False) -> dict[str, Any]:
    """Return a line as a JSON object; `characters` includes the confidence of each character."""
    prediction = {name: value for name, value in (line.prediction or {}).items() if characters or name != "characters"}
    row: dict[str, Any] = {"id": line.where, "text": line.text, **prediction}
    if line.prediction is None and line.text:
        row["was_there"] = True
    if line.outline is not None:
        row |= {
            "page": page.where,
            "region": line.region.id if line.region else None,
            "bbox": line.outline.box,
            "polygon": format_points(line.outline.polygon),
            "baseline": format_points(line.outline.baseline),
        }
    return row


_HOCR = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml">
<head>
<title>{title}</title>
<meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
<meta name="ocr-system" content={system}/>
<meta name="ocr-capabilities" content="ocr_page ocr_carea ocr_line ocrx_word"/>
</head>
<body>
"""


def write_hocr(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write one document; lines without a text are omitted."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        system = quoteattr(f"{step.software} {step.version}; {step.settings}")
        file.write(_HOCR.format(title=escape(path.stem), system=system))
        for number, page in enumerate(pages, start=1):
            file.writelines(_hocr_page(page, number))
        file.write("</body>\n</html>\n")


def _hocr_page(page: Page, number: int) -> Iterator[str]:
    name = replace_forbidden(page.image.name).replace('"', "'")
    width, height = cast("tuple[int, int]", page.size)
    title = f'image "{name}"; bbox 0 0 {width} {height}; ppageno {number - 1}'
    yield f'<div class="ocr_page" id="page_{number}" title={quoteattr(title)}>\n'
    for region_number, lines in enumerate(group_by_region(page.transcribed_lines), start=1):
        boxes = [page.visible_box(line) for line in lines]
        region = _numbers(bounds_of_boxes(boxes))
        yield f'<div class="ocr_carea" id="block_{number}_{region_number}" title="bbox {region}">\n'
        for line_number, (line, box) in enumerate(zip(lines, boxes, strict=True), start=1):
            yield _hocr_line(line, box, f"{number}_{region_number}_{line_number}")
        yield "</div>\n"
    yield "</div>\n"


def _hocr_line(line: Line, box: Box, id_: str) -> str:
    title = f"bbox {_numbers(box)}{_hocr_baseline(line, box)}"
    known = line.word_confidences
    words = word_boxes(replace_forbidden(line.text), box, line.word_sides)
    spans = " ".join(
        f'<span class="ocrx_word" id="word_{id_}_{number}" title="bbox {_numbers(word_box or box)}'
        f'{_confidence(known.get(start, line.confidence))}">{escape(word)}</span>'
        for number, (word, start, word_box) in enumerate(words, start=1)
    )
    return f'<span class="ocr_line" id="line_{id_}" title="{title}">{spans}</span>\n'


def _confidence(confidence: float | None) -> str:
    return "" if confidence is None else f"; x_wconf {round(100 * confidence)}"


def _hocr_baseline(line: Line, box: Box) -> str:
    """Return slope and offset from the box's lower left corner, downwards positive, as hOCR defines them."""
    points = line.outline.baseline if line.outline else ()
    if len(points) < 2 or points[-1][0] == points[0][0]:
        return ""
    slope = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    return f"; baseline {slope:.4f} {round(points[0][1] + slope * (box[0] - points[0][0]) - box[3])}"


def _numbers(box: Box) -> str:
    return " ".join(map(str, box))


_TEI = """<?xml version="1.0" encoding="UTF-8"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0">
<teiHeader>
<fileDesc>
<titleStmt><title>{title}</title></titleStmt>
<publicationStmt><p>{status}</p></publicationStmt>
<sourceDesc><p>The images named in the facsimile.</p></sourceDesc>
</fileDesc>
<encodingDesc><appInfo><application ident={name} version={version}><label>{label}</label>\
<desc>{settings}</desc></application></appInfo></encodingDesc>
</teiHeader>
<facsimile>
"""

_TEI_MARKS = (
    (re.compile(r"~~(.+?)~~"), r"<del>\1</del>"),
    (re.compile(r"\\([^\\/<>]+)/"), r"<add>\1</add>"),
    (re.compile(r"(\w+)\[\?\]"), r"<unclear>\1</unclear>"),
    (re.compile(r"\[(?:unclear|нрзб\.?)\]"), '<gap reason="illegible"/>'),
)


def write_tei(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write one document; lines without a text have no zone."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        version = ".".join(step.version.split(".")[:3])
        status = "Transcribed by a program; not corrected." if step.settings else step.description
        head = {
            "status": escape(status),
            "title": escape(path.stem),
            "label": escape(step.software),
            "settings": escape(step.settings),
        }
        file.write(_TEI.format(name=quoteattr(step.software), version=quoteattr(version), **head))
        body: list[str] = []
        for number, page in enumerate(pages, start=1):
            file.writelines(_tei_surface(page, number))
            body += _tei_text(page, number)
        file.write("</facsimile>\n<text>\n<body>\n<div>\n")
        file.writelines(body)
        file.write("</div>\n</body>\n</text>\n</TEI>\n")


def _tei_surface(page: Page, number: int) -> Iterator[str]:
    width, height = cast("tuple[int, int]", page.size)
    name = replace_forbidden(page.image.name)
    yield f'<surface xml:id="p{number}" ulx="0" uly="0" lrx="{width}" lry="{height}">\n'
    yield f'<graphic url={quoteattr(name)} width="{width}px" height="{height}px"/>\n'
    for row, line in enumerate(page.transcribed_lines, start=1):
        if line.outline:
            confidence = "" if line.confidence is None else f' n="{line.confidence:.4f}"'
            yield f'<zone xml:id="p{number}l{row}" type="line"{confidence} {_coordinates(line.outline)}/>\n'
    yield "</surface>\n"


def _coordinates(outline: Outline) -> str:
    left, top, right, bottom = (max(side, 0) for side in outline.box)
    points = [(max(x, 0), max(y, 0)) for x, y in outline.polygon]
    polygon = f' points="{format_points(points)}"' if points else ""
    return f'ulx="{left}" uly="{top}" lrx="{right}" lry="{bottom}"{polygon}'


def _tei_text(page: Page, number: int) -> Iterator[str]:
    yield f'<pb n="{number}" facs="#p{number}"/>\n'
    row = 0
    for lines in group_by_region(page.transcribed_lines):
        yield "<p>\n"
        for line in lines:
            row += 1
            facs = f' facs="#p{number}l{row}"' if line.outline else ""
            text = "<lb/>".join(map(_mark_up, replace_forbidden(line.text).split("\n")))
            yield f"<lb{facs}/>{text}\n"
        yield "</p>\n"


def _mark_up(text: str) -> str:
    r"""Escape a text and write the marks of the workbench as elements.

    `~~x~~` was struck out, `\\x/` inserted; `[?]` stands after a doubtful word, `[unclear]` and `[нрзб]` for illegible
    ones.
    """
    text = escape(text)
    for pattern, element in _TEI_MARKS:
        text = pattern.sub(element, text)
    return text


def write_docx(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write a Word document: a heading and a page for each image, a paragraph for each region, a row for each line."""
    from docx import Document
    from docx.enum.text import WD_BREAK

    document = Document()
    for number, page in enumerate(pages):
        if number:
            document.add_paragraph().add_run().add_break(WD_BREAK.PAGE)
        document.add_heading(replace_forbidden(page.page or page.name), level=2)
        for lines in group_by_region(page.transcribed_lines):
            paragraph = document.add_paragraph()
            for place, line in enumerate(lines):
                if place:
                    paragraph.add_run().add_break()
                paragraph.add_run(replace_forbidden(line.text))
    document.core_properties.title = path.stem
    document.core_properties.author = ""
    document.core_properties.comments = replace_forbidden(f"{step.software} {step.version}: {step.description}")
    save_without_times(document.save, path)


def save_without_times(save: Callable[[IO[bytes]], object], path: Path, *, omit: bytes = b"") -> None:
    """Save an office document without times and matches of `omit`, so that the same texts give the same bytes."""
    written = io.BytesIO()
    save(written)
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            content = re.sub(omit, b"", source.read(name))
            target.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)


@contextmanager
def _writing(folder: Path, columns: Sequence[str], *, format: Format) -> Iterator[WritePage]:
    """Write the texts of all pages into one document at the end."""
    pages: list[Page] = []

    def write(page: Page, stem: str) -> Written:
        if format.name in _SHOW_IMAGES:
            try:
                size = decode_image(image_bytes(page), name=page.image).image.size
                page = replace(page, size=size, lines=tuple(scale_line(line, page, size) for line in page.lines))
            except DataError as error:
                return Written(0, [Skipped(SkipReason.BAD_IMAGE, page.where, error.message)])
        pages.append(page)
        return Written(len(page.transcribed_lines))

    yield write
    date = current_time().isoformat(timespec="seconds")
    step = ProcessingStep("dsocr", __version__, "Texts as their source has them.", "", date)
    format.write_pages(pages, folder / f"{_NAME}{format.suffix}", step)


def as_target(format: Format) -> Format:
    """Return a format of documents as one that a source can be converted to."""
    return replace(
        format,
        writing=partial(_writing, format=format),
        keeps_pages=True,
        keeps_regions=True,
        keeps_tables=format.is_one_file,
        next_step=f"open {{out}}/{_NAME}{format.suffix}",
    )


FORMATS = (
    Format(name="text", title="plain text", write_pages=write_text, suffix=".txt"),
    Format(
        name="characters",
        title="the same with the confidence of each character",
        write_pages=partial(write_json_lines, characters=True),
        suffix=".jsonl",
    ),
    Format(name="jsonl", title="a line of JSON for each line", write_pages=write_json_lines, suffix=".jsonl"),
    Format(name="hocr", title="hOCR", write_pages=write_hocr, suffix=".hocr"),
    Format(name="tei", title="TEI P5", write_pages=write_tei, suffix=".tei"),
    Format(
        name="docx",
        title="Word documents",
        write_pages=write_docx,
        suffix=".docx",
        multipage=True,
        packages=("docx",),
    ),
)
