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
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from markupsafe import Markup

from dsocr import __version__
from dsocr.document import (
    Box,
    Line,
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
from dsocr.formats.xml import escape_text, group_by_region, quote_attribute, replace_forbidden
from dsocr.images import decode_image, scale_page
from dsocr.io.files import current_time

if TYPE_CHECKING:
    from jinja2 import Environment

DOCUMENTS = ("text", "tei", "pdf", "docx")
"""Formats of documents that a source can be converted to, though they are no source of pages."""

_NAME = "transcription"
"""The name of a conversion's document."""
_SHOW_IMAGES = frozenset({"tei", "pdf"})
"""Formats that say where on the image a line is."""


def write_text(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write all texts: a blank line between regions, a form feed between pages; line images as place, tab, text."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        separator = ""
        for page in pages:
            if page.unit == "line":
                for line in page.lines:
                    file.write(f"{line.where}\t{line.text.replace(chr(10), ' / ')}\n")
                continue
            texts = ("\n".join(line.text for line in lines) for lines in group_by_region(page.transcribed_lines))
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


_TEI_MARKS = (
    (re.compile(r"~~(.+?)~~"), r"<del>\1</del>"),
    (re.compile(r"\\([^\\/<>]+)/"), r"<add>\1</add>"),
    (re.compile(r"(\w+)\[\?\]"), r"<unclear>\1</unclear>"),
    (re.compile(r"\[(?:unclear|нрзб\.?)\]"), '<gap reason="illegible"/>'),
)


def _write_template(pages: Iterable[Page], path: Path, step: ProcessingStep, *, template: str) -> None:
    """Write one document of all pages; lines without a text are omitted."""
    document = _environment().get_template(template).stream(pages=pages, step=step, title=path.stem)
    document.dump(str(path), encoding="utf-8")


@cache
def _environment() -> "Environment":
    """Return the environment of the templates: texts are escaped, and every attribute is `quoted`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dsocr.formats"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: Markup(escape_text(value)) if type(value) is str else value,  # noqa: S704
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "quoted": lambda value: Markup(quote_attribute(value)),  # noqa: S704
        "marked": _mark_up,
        "legal": replace_forbidden,
    }
    environment.globals |= {
        "regions": _regions,
        "words": word_boxes,
        "baseline": _hocr_baseline,
        "points": lambda outline: format_points((max(x, 0), max(y, 0)) for x, y in outline.polygon),
    }
    return environment


def _regions(page: Page) -> Iterator[tuple[Box, list[tuple[Line, Box]]]]:
    """Yield the box of each region, and its lines with theirs."""
    for lines in group_by_region(page.transcribed_lines):
        boxes = [page.visible_box(line) for line in lines]
        yield bounds_of_boxes(boxes), list(zip(lines, boxes, strict=True))


def _hocr_baseline(line: Line, box: Box) -> str:
    """Return slope and offset from the box's lower left corner, downwards positive, as hOCR defines them."""
    points = line.outline.baseline if line.outline else ()
    if len(points) < 2 or points[-1][0] == points[0][0]:
        return ""
    slope = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    return f"; baseline {slope:.4f} {round(points[0][1] + slope * (box[0] - points[0][0]) - box[3])}"


def _mark_up(text: str) -> Markup:
    r"""Escape a text and write the marks of the workbench and line breaks as elements.

    `~~x~~` was struck out, `\\x/` inserted; `[?]` stands after a doubtful word, `[unclear]` and `[нрзб]` for illegible
    ones.
    """
    rows = escape_text(text).split("\n")
    for pattern, element in _TEI_MARKS:
        rows = [pattern.sub(element, row) for row in rows]
    return Markup("<lb/>".join(rows))  # noqa: S704


def write_docx(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write a Word document: a heading and a page for each image, a paragraph for each region, a row for each line."""
    from docx import Document

    document = Document()
    for number, page in enumerate(pages):
        if number:
            document.add_page_break()
        document.add_heading(replace_forbidden(page.page or page.name), level=2)
        for lines in group_by_region(page.transcribed_lines):
            document.add_paragraph(replace_forbidden("\n".join(line.text for line in lines)))
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
            target.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


@contextmanager
def _writing(folder: Path, columns: Sequence[str], *, format: Format) -> Iterator[WritePage]:
    """Write the texts of all pages into one document at the end."""
    pages: list[Page] = []

    def write(page: Page, stem: str) -> Written:
        if format.name in _SHOW_IMAGES:
            try:
                page = scale_page(page, decode_image(image_bytes(page), name=page.image).image.size)
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
    Format(name="hocr", title="hOCR", write_pages=partial(_write_template, template="hocr.xml.jinja"), suffix=".hocr"),
    Format(name="tei", title="TEI P5", write_pages=partial(_write_template, template="tei.xml.jinja"), suffix=".tei"),
    Format(
        name="docx",
        title="Word documents",
        write_pages=write_docx,
        suffix=".docx",
        multipage=True,
        packages=("docx",),
    ),
)
