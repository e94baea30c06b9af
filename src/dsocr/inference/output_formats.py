"""Output formats of a transcription, one file each, and the table of them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from lxml import etree

from dsocr.document import Line, format_points
from dsocr.errors import DataError
from dsocr.formats.alto import Fill, alto_document
from dsocr.formats.fill import Step, fill_markup
from dsocr.formats.page import page_document
from dsocr.formats.writing import WholeImage
from dsocr.formats.xml import parse_xml
from dsocr.images import decode_image
from dsocr.inference.hocr import write_hocr
from dsocr.inference.inputs import Kind
from dsocr.inference.pages import ReadLine, ReadPage
from dsocr.inference.pdf_writer import write_pdf
from dsocr.inference.tei import write_tei
from dsocr.runs import writing_whole

Document = Callable[[WholeImage], tuple[etree._Element, int]]


def write_page(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """PAGE XML of 2019; a PAGE file that came in is filled."""
    for page in pages:
        _write(page, path, step, "PcGts", page_document)


def write_alto(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """ALTO 4.2, a `String` for each word; an ALTO file that came in is filled, and keeps what it has for a `String`."""
    for page in pages:
        _write(page, path, step, "alto", alto_document)


def write_filled(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """An ALTO or PAGE file as it came, with its texts."""
    for page in pages:
        if page.page.kind != "markup":
            hint = "give --format page or --format alto for images"
            raise DataError("is no ALTO or PAGE file that could be filled", where=page.page.id, hint=hint)
        path.write_bytes(_filled(page, step))


def _write(page: ReadPage, path: Path, step: Step, root: str, document: Document) -> None:
    if page.page.kind == "markup" and etree.QName(parse_xml(page.page.path)).localname == root:
        path.write_bytes(_filled(page, step))
        return
    image = page.page.image or page.page.path
    if page.page.kind == "pdf":
        # Programs want the image that the file names, and no file holds this one alone.
        content = page.page.content()
        is_jpeg = decode_image(content, name=page.page.id).format == "JPEG"
        image = path.with_suffix(".jpg" if is_jpeg else ".png")
        image.write_bytes(content)
    path.write_bytes(_new(page, image.name, step, document))


def _filled(page: ReadPage, step: Step) -> bytes:
    read = {line.place: _fill(line) for line in page.written if line.place is not None and not line.was_there}
    return fill_markup(page.page.path.read_bytes(), read, step)


def _new(page: ReadPage, image: str, step: Step, document: Document) -> bytes:
    """A new document without texts, filled as others are: confidences and steps are written in one place."""
    drawn = tuple(Line("", line.id, line.outline, line.region) for line in page.lines)
    root, _ = document(WholeImage(image, page.size, drawn))
    raw = etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)
    fills = {place: _fill(line) for place, line in enumerate(page.lines) if line.text}
    return fill_markup(raw, fills, step, in_words=True)


def _fill(line: ReadLine) -> Fill:
    return Fill(
        line.text,
        line.confidence,
        line.outline.box if line.outline else None,
        {word["start"]: word["confidence"] for word in line.told.get("words", ())},
        line.told.get("characters", ()),
    )


def write_text(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """The texts of all pages, in order."""
    with writing_whole(path) as file:
        before = ""
        for page in pages:
            if page.page.shows == "line":
                for line in page.lines:
                    file.write(f"{line.id}\t{line.text.replace(chr(10), ' / ')}\n")
                continue
            file.write(before + "\n\n".join(_regions(page)) + "\n")
            before = "\f"


def _regions(page: ReadPage) -> Iterator[str]:
    for _, lines in groupby(page.written, key=lambda line: line.region):
        yield "\n".join(line.text for line in lines)


def write_jsonl(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """One object a line, pages and lines in order; lines with no text are there too."""
    _write_jsonl(pages, path, characters=False)


def write_characters(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """The same with a list of confidences, one for each character of the text."""
    _write_jsonl(pages, path, characters=True)


def _write_jsonl(pages: Iterable[ReadPage], path: Path, *, characters: bool) -> None:
    with writing_whole(path) as file:
        for page in pages:
            for line in page.lines:
                file.write(json.dumps(row_of(page, line, characters=characters), ensure_ascii=False) + "\n")


def row_of(page: ReadPage, line: ReadLine, *, characters: bool = False) -> dict[str, Any]:
    """A line as JSON holds it."""
    told = {name: value for name, value in line.told.items() if characters or name != "characters"}
    row: dict[str, Any] = {"id": line.id, "text": line.text, **told}
    if line.was_there:
        row["was_there"] = True
    if line.outline is not None:
        row |= {
            "page": page.page.id,
            "region": line.region.id if line.region else None,
            "bbox": line.outline.box,
            "polygon": format_points(line.outline.polygon),
            "baseline": format_points(line.outline.baseline),
        }
    return row


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write what was read: `write` takes pages as they come, and the file is whole when it returns.

    Files end in `suffix`. `single` formats hold one page a file, so several pages need a folder. In a folder pages have
    files of their own, but those of one PDF stay together in formats that are `paged`.
    """

    name: str
    title: str
    suffix: str
    write: Callable[[Iterable[ReadPage], Path, Step], None]
    single: bool = False
    paged: bool = False


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("text", "plain text", ".txt", write_text),
        Format("characters", "the same with the confidence of each character", ".jsonl", write_characters),
        Format("jsonl", "a line of JSON for each line", ".jsonl", write_jsonl),
        Format("page", "PAGE XML", ".xml", write_page, single=True),
        Format("alto", "ALTO 4 XML", ".xml", write_alto, single=True),
        Format("hocr", "hOCR", ".hocr", write_hocr),
        Format("pdf", "searchable PDF", ".pdf", write_pdf, paged=True),
        Format("tei", "TEI P5", ".tei", write_tei),
        Format("filled", "ALTO and PAGE files as they came, with their texts", ".xml", write_filled, single=True),
    )
}

FORMAT_BY_SUFFIX = {format_.suffix: format_ for format_ in FORMATS.values() if format_.suffix != ".xml"}


def choose_formats(out: Path, names: Sequence[str], kinds: Sequence[Kind]) -> tuple[list[Format], bool]:
    """The formats that were asked for, else the one that the name of `out` ends in; and whether `out` is a folder.

    Where nothing is said, ALTO and PAGE files come back filled, and a folder gets PAGE, which says most and which the
    programs of archives read. A folder is what has no suffix that is known, or is there.
    """
    for name in names:
        if name not in FORMATS:
            raise DataError(f"unknown output format {name!r}; the formats are: {', '.join(FORMATS)}")
    suffix = out.suffix.lower()
    asked = [FORMATS[name] for name in dict.fromkeys(names)]
    if not asked and suffix in FORMAT_BY_SUFFIX:
        asked = [FORMAT_BY_SUFFIX[suffix]]
    if not asked and suffix in {"", ".xml"} and set(kinds) == {"markup"}:
        asked = [FORMATS["filled"]]
    if not asked and suffix == ".xml":
        raise DataError("both PAGE and ALTO end in .xml", where=out, hint="give --format page or --format alto")
    if not asked and suffix:
        endings = ", ".join(FORMAT_BY_SUFFIX)
        raise DataError(f"is no kind of output: give a folder, or a file ending in {endings}", where=out)
    asked = asked or [FORMATS["page"]]
    is_folder = out.is_dir() or suffix not in {format_.suffix for format_ in asked}
    if not is_folder and len(asked) > 1:
        raise DataError("a file holds one format", where=out, hint="name a folder")
    return asked, is_folder
