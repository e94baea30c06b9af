"""TEI P5: a facsimile with the zones of lines, and the text with its line beginnings."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast
from xml.sax.saxutils import escape, quoteattr

from dsocr.document import Outline, Page, ProcessingStep, format_points
from dsocr.formats.format import Format
from dsocr.formats.xml import group_by_region, replace_forbidden

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
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

_MARKS = (
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
        file.write(_HEAD.format(name=quoteattr(step.software), version=quoteattr(version), **head))
        body: list[str] = []
        for number, page in enumerate(pages, start=1):
            file.writelines(_surface(page, number))
            body += _text(page, number)
        file.write("</facsimile>\n<text>\n<body>\n<div>\n")
        file.writelines(body)
        file.write("</div>\n</body>\n</text>\n</TEI>\n")


def _surface(page: Page, number: int) -> Iterator[str]:
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


def _text(page: Page, number: int) -> Iterator[str]:
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
    for pattern, element in _MARKS:
        text = pattern.sub(element, text)
    return text


FORMATS = (Format(name="tei", title="TEI P5", write_pages=write_tei, suffix=".tei"),)
