"""What was read as hOCR 1.2: XHTML with the box of each page, region, line and word.

Nobody knows where words stand on their line, so they share its width by their letters. A word of which no confidence
is known has its line's.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from dsocr.document import Box, bounds
from dsocr.formats.fill import Step
from dsocr.formats.writing import placed_words
from dsocr.formats.xml import without_forbidden
from dsocr.inference.pages import ReadLine, ReadPage
from dsocr.runs import writing_whole

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


def write_hocr(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """One document; lines without a text are left out."""
    with writing_whole(path) as file:
        system = quoteattr(f"{step.software} {step.version}; {step.settings}")
        file.write(_HEAD.format(title=escape(path.stem), system=system))
        for number, page in enumerate(pages, start=1):
            file.writelines(_page(page, number))
        file.write("</body>\n</html>\n")


def _page(page: ReadPage, number: int) -> Iterator[str]:
    name = without_forbidden((page.page.image or page.page.path).name).replace('"', "'")
    title = f'image "{name}"; bbox 0 0 {page.size[0]} {page.size[1]}; ppageno {number - 1}'
    yield f'<div class="ocr_page" id="page_{number}" title={quoteattr(title)}>\n'
    for place, (_, group) in enumerate(groupby(page.written, key=lambda line: line.region), start=1):
        lines = list(group)
        boxes = [box_of(line, page) for line in lines]
        around = bounds(
            corner for left, top, right, bottom in boxes for corner in ((left, top), (right - 1, bottom - 1))
        )
        yield f'<div class="ocr_carea" id="block_{number}_{place}" title="bbox {_told(around)}">\n'
        for row, (line, box) in enumerate(zip(lines, boxes, strict=True), start=1):
            yield _line(line, box, f"{number}_{place}_{row}")
        yield "</div>\n"
    yield "</div>\n"


def _line(line: ReadLine, box: Box, id_: str) -> str:
    title = f"bbox {_told(box)}{_baseline(line, box)}"
    sure = {word["start"]: word["confidence"] for word in line.told.get("words", ())}
    words = " ".join(
        f'<span class="ocrx_word" id="word_{id_}_{number}" title="bbox {_told(word.box or box)}'
        f'{_sureness(sure.get(word.start, line.confidence))}">{escape(word.text)}</span>'
        for number, word in enumerate(placed_words(without_forbidden(line.text), box), start=1)
    )
    return f'<span class="ocr_line" id="line_{id_}" title="{title}">{words}</span>\n'


def _sureness(confidence: float | None) -> str:
    return "" if confidence is None else f"; x_wconf {round(100 * confidence)}"


def _baseline(line: ReadLine, box: Box) -> str:
    """Slope and offset against the box's lower left corner, downwards positive, as hOCR has it."""
    points = line.outline.baseline if line.outline else ()
    if len(points) < 2 or points[-1][0] == points[0][0]:
        return ""
    slope = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    return f"; baseline {slope:.4f} {round(points[0][1] + slope * (box[0] - points[0][0]) - box[3])}"


def box_of(line: ReadLine, page: ReadPage) -> Box:
    """The line's box inside its page, which is all of the image where there is no outline."""
    width, height = page.size
    left, top, right, bottom = line.outline.box if line.outline else (0, 0, width, height)
    return max(left, 0), max(top, 0), min(right, width), min(bottom, height)


def _told(box: Box) -> str:
    return " ".join(map(str, box))
