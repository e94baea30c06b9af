"""What was read as JSON lines: the text, how sure each word of it is, and what there is to look at.

Lines on pages also tell their page, region, box, polygon and baseline, in pixels of the upright image.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dsocr.data.sources.layout import written
from dsocr.data.targets.filling import Step
from dsocr.inference.pages import ReadLine, ReadPage
from dsocr.runs import writing_whole


def write_jsonl(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """One object a line, pages and lines in order; lines with no text are there too."""
    _write(pages, path, characters=False)


def write_characters(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """The same with a list of confidences, one for each character of the text."""
    _write(pages, path, characters=True)


def _write(pages: Iterable[ReadPage], path: Path, *, characters: bool) -> None:
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
            "polygon": written(line.outline.polygon),
            "baseline": written(line.outline.baseline),
        }
    return row
