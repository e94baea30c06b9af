"""What was read as JSON lines: an object a line, `id` and `text` first, then what the prediction says.

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
    with writing_whole(path) as file:
        for page in pages:
            for line in page.lines:
                file.write(json.dumps(_row(page, line), ensure_ascii=False) + "\n")


def _row(page: ReadPage, line: ReadLine) -> dict[str, Any]:
    row: dict[str, Any] = {"id": line.id, "text": line.text}
    if line.outline is not None:
        row |= {
            "page": page.page.id,
            "region": line.region.id if line.region else None,
            "bbox": line.outline.box,
            "polygon": written(line.outline.polygon),
            "baseline": written(line.outline.baseline),
        }
    if line.was_there:
        row["was_there"] = True
    return row | dict(line.told)
