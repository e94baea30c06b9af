"""Texts of whole sources as one document to read: DOCX, and what `convert` writes as text, TEI or PDF."""

import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from dsocr import __version__
from dsocr.document import Page, ProcessingStep, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.format import DatasetWriter, Format, Written, image_bytes
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
    written = io.BytesIO()
    document.save(written)
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():  # without the time, so that the same texts give the same bytes
            target.writestr(zipfile.ZipInfo(name, _EARLIEST), source.read(name), zipfile.ZIP_DEFLATED)


class DocumentWriter:
    """Writes the texts of all pages into one document when it is closed."""

    def __init__(self, folder: Path, columns: Sequence[str], *, format: Format) -> None:
        self._path, self._format = folder / f"{_NAME}{format.suffix}", format
        self._pages: list[Page] = []

    def add(self, page: Page, stem: str) -> Written:
        """Keep the page, with its lines in the pixels of its image if the document shows where they are."""
        if self._format.name in _SHOW_IMAGES:
            try:
                size = decode_image(image_bytes(page), name=page.image).image.size
                page = replace(page, size=size, lines=tuple(scale_line(line, page, size) for line in page.lines))
            except DataError as error:
                return Written(0, [Skipped(SkipReason.BAD_IMAGE, page.where, error.message)])
        self._pages.append(page)
        return Written(len(page.transcribed_lines))

    def close(self) -> None:
        """Write the document."""
        date = current_time().isoformat(timespec="seconds")
        step = ProcessingStep("dsocr", __version__, "Texts as their source has them.", "", date)
        self._format.write_pages(self._pages, self._path, step)


def as_target(format: Format) -> Format:
    """Return a format of documents as one that a source can be converted to."""
    writer: Callable[[Path, Sequence[str]], DatasetWriter] = partial(DocumentWriter, format=format)
    return replace(
        format,
        open_writer=writer,
        keeps_pages=True,
        keeps_writers=False,
        keeps_regions=True,
        keeps_tables=format.is_one_file,
        next_step=f"open {{out}}/{_NAME}{format.suffix}",
    )


FORMATS = (Format(name="docx", title="Word documents", write_pages=write_docx, suffix=".docx", multipage=True),)
