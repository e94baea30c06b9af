"""hOCR 1.2: XHTML with the box of each page, region, line and word.

Word boxes are where a line recogniser saw the words; else words share the width of their line by their number of
characters. A word without a confidence of its own gets its line's.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast
from xml.sax.saxutils import escape, quoteattr

from dsocr.document import Box, Line, Page, ProcessingStep, bounds_of_boxes, word_boxes
from dsocr.formats.format import Format
from dsocr.formats.xml import group_by_region, replace_forbidden

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
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
        file.write(_HEAD.format(title=escape(path.stem), system=system))
        for number, page in enumerate(pages, start=1):
            file.writelines(_page(page, number))
        file.write("</body>\n</html>\n")


def _page(page: Page, number: int) -> Iterator[str]:
    name = replace_forbidden(page.image.name).replace('"', "'")
    width, height = cast("tuple[int, int]", page.size)
    title = f'image "{name}"; bbox 0 0 {width} {height}; ppageno {number - 1}'
    yield f'<div class="ocr_page" id="page_{number}" title={quoteattr(title)}>\n'
    for region_number, lines in enumerate(group_by_region(page.transcribed_lines), start=1):
        boxes = [page.visible_box(line) for line in lines]
        region = _numbers(bounds_of_boxes(boxes))
        yield f'<div class="ocr_carea" id="block_{number}_{region_number}" title="bbox {region}">\n'
        for line_number, (line, box) in enumerate(zip(lines, boxes, strict=True), start=1):
            yield _line(line, box, f"{number}_{region_number}_{line_number}")
        yield "</div>\n"
    yield "</div>\n"


def _line(line: Line, box: Box, id_: str) -> str:
    title = f"bbox {_numbers(box)}{_baseline(line, box)}"
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


def _baseline(line: Line, box: Box) -> str:
    """Return slope and offset from the box's lower left corner, downwards positive, as hOCR defines them."""
    points = line.outline.baseline if line.outline else ()
    if len(points) < 2 or points[-1][0] == points[0][0]:
        return ""
    slope = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    return f"; baseline {slope:.4f} {round(points[0][1] + slope * (box[0] - points[0][0]) - box[3])}"


def _numbers(box: Box) -> str:
    return " ".join(map(str, box))


FORMATS = (Format(name="hocr", title="hOCR", write_pages=write_hocr, suffix=".hocr"),)
