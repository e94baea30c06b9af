"""What was read as TEI P5: a facsimile with the zones of regions and lines, and the text with its line beginnings."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from dsocr.document import Outline, format_points
from dsocr.formats.fill import Step
from dsocr.formats.xml import without_forbidden
from dsocr.inference.pages import ReadPage
from dsocr.runs import writing_whole

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0">
<teiHeader>
<fileDesc>
<titleStmt><title>{title}</title></titleStmt>
<publicationStmt><p>Transcribed by a program; not corrected.</p></publicationStmt>
<sourceDesc><p>The images named in the facsimile.</p></sourceDesc>
</fileDesc>
<encodingDesc><appInfo><application ident={name} version={version}><label>{label}</label>\
<desc>{settings}</desc></application></appInfo></encodingDesc>
</teiHeader>
<facsimile>
"""


def write_tei(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """One document; lines without a text have no zone."""
    with writing_whole(path) as file:
        numbers = ".".join(step.version.split(".")[:3])
        head = {"title": escape(path.stem), "label": escape(step.software), "settings": escape(step.settings)}
        file.write(_HEAD.format(name=quoteattr(step.software), version=quoteattr(numbers), **head))
        body: list[str] = []
        for number, page in enumerate(pages, start=1):
            file.writelines(_surface(page, number))
            body += _text(page, number)
        file.write("</facsimile>\n<text>\n<body>\n<div>\n")
        file.writelines(body)
        file.write("</div>\n</body>\n</text>\n</TEI>\n")


def _surface(page: ReadPage, number: int) -> Iterator[str]:
    width, height = page.size
    name = without_forbidden((page.page.image or page.page.path).name)
    yield f'<surface xml:id="p{number}" ulx="0" uly="0" lrx="{width}" lry="{height}">\n'
    yield f'<graphic url={quoteattr(name)} width="{width}px" height="{height}px"/>\n'
    for row, line in enumerate(page.written, start=1):
        if line.outline:
            sure = "" if line.confidence is None else f' n="{line.confidence:.4f}"'
            yield f'<zone xml:id="p{number}l{row}" type="line"{sure} {_place(line.outline)}/>\n'
    yield "</surface>\n"


def _place(outline: Outline) -> str:
    left, top, right, bottom = (max(side, 0) for side in outline.box)
    points = [(max(x, 0), max(y, 0)) for x, y in outline.polygon]
    drawn = f' points="{format_points(points)}"' if points else ""
    return f'ulx="{left}" uly="{top}" lrx="{right}" lry="{bottom}"{drawn}'


def _text(page: ReadPage, number: int) -> Iterator[str]:
    yield f'<pb n="{number}" facs="#p{number}"/>\n'
    row = 0
    for _, lines in groupby(page.written, key=lambda line: line.region):
        yield "<p>\n"
        for line in lines:
            row += 1
            facs = f' facs="#p{number}l{row}"' if line.outline else ""
            text = "<lb/>".join(map(escape, without_forbidden(line.text).split("\n")))
            yield f"<lb{facs}/>{text}\n"
        yield "</p>\n"
